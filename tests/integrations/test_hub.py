"""Agents on the Hub, against a stub of its HTTP API on loopback."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load as load_tensors

from noisynet import Agent, load
from noisynet.integrations.hub import check_repository, download, upload
from noisynet.runs import AgentFile, RunError, save_agent_file

from .hub_stub import Hub

pytest.importorskip("huggingface_hub")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the client's own


PUSH_AND_LOAD = """
import sys
from noisynet import load
from noisynet.cli import app

run, saved = sys.argv[1:]
app(["push", run, "someone/deep-sea"], standalone_mode=False)
load("hf://someone/deep-sea").save(saved)
"""


def test_a_pushed_run_is_loaded_again(hub: Hub, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"evaluation.period_frames": 60, "evaluation.frames": 20}
    agent = Agent(
        *("noisynet-dqn", "deep_sea/4"),
        device="cpu",
        folder=tmp_path / "run",
        compute="torch",
        starts_steps=40,
        **settings,
    )
    agent.learn(120, progress=False)
    saved = tmp_path / "loaded.safetensors"
    code = [sys.executable, "-c", PUSH_AND_LOAD, str(tmp_path / "run"), str(saved)]
    ended = subprocess.run(code, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "hf://someone/deep-sea\n"
    repository = hub.repositories["someone/deep-sea"]
    files = repository.revisions["main"]
    assert {"README.md", "agent.safetensors", "config.json", "evaluations.json"} <= set(files)
    assert ("replay.mp4" in files) == ("without a video" not in ended.stderr)
    assert repository.messages == ["noisynet-dqn on deep_sea/4, seed 0"]
    assert not repository.private
    assert {Path(name).suffix for name in files} <= {".md", ".safetensors", ".json", ".mp4"}
    assert 'load("hf://someone/deep-sea")' in files["README.md"].decode()
    assert len(json.loads(files["evaluations.json"])) == 4
    # Downloading asks for the weights alone, and they are those of the run.
    asked = [request for request in hub.requests if "/resolve/" in request]
    assert {request.rpartition("/")[2] for request in asked} == {"agent.safetensors"}
    mine = load_tensors(agent.save(tmp_path / "mine.safetensors").read_bytes())
    theirs = load_tensors(saved.read_bytes())
    assert mine.keys() == theirs.keys()
    assert all(mine[name].equal(theirs[name]) for name in mine)


def test_a_revision_is_loaded(hub: Hub, tmp_path: Path) -> None:
    for number, text in enumerate(("first", "second")):
        folder = tmp_path / text
        folder.mkdir()
        (folder / "agent.safetensors").write_text(text)
        upload(folder, "someone/it", private=True, message=str(number))
    assert hub.repositories["someone/it"].private
    assert download("hf://someone/it").read_text() == "second"
    assert download(f"hf://someone/it@{1:040x}").read_text() == "first"


def test_what_the_hub_lacks_is_named(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(
        RunError, match=r"cannot load hf://someone/nothing: 404 .*Repository Not Found"
    ):
        load("hf://someone/nothing")
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "config.json").write_text("{}")
    upload(tmp_path / "files", "someone/empty", message="no agent")
    with pytest.raises(RunError, match=r"cannot load hf://someone/empty: 404 .*Entry Not Found"):
        load("hf://someone/empty")
    hub.token = "another"
    with pytest.raises(RunError, match=r"cannot push to someone/empty: .*401"):
        upload(tmp_path / "files", "someone/empty", message="refused")


def test_a_file_that_is_no_agent_is_refused(hub: Hub, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "agent.safetensors").write_bytes(b"\x80\x04cos\nsystem\n")  # a pickle
    upload(folder, "someone/pickle", message="a pickle")
    with pytest.raises(RunError, match=r"expected a file that Agent\.save wrote"):
        load("hf://someone/pickle")


def test_a_module_that_a_shared_agent_names_is_not_imported_unasked(
    hub: Hub, tmp_path: Path
) -> None:
    pytest.importorskip("gymnasium")
    agent = Agent("noisynet-dqn", "CartPole-v1", device="cpu")
    config = {**agent.config.model_dump(mode="json"), "environment": "gym/this:CartPole-v1"}
    folder = tmp_path / "files"
    save_agent_file(folder / "agent.safetensors", AgentFile(config, 0, {}))
    upload(folder, "someone/module", message="names a module")
    sys.modules.pop("this", None)
    with pytest.raises(ValueError, match="whose module would be imported: pass environment="):
        load("hf://someone/module")
    assert "this" not in sys.modules


@pytest.mark.parametrize("name", ["name", "a/b/c", "a/b@main", "../x y"])
def test_repositories_are_user_and_name(name: str) -> None:
    with pytest.raises(ValueError, match="expected a repository as user/name"):
        check_repository(name)
    check_repository("some-one/deep_sea.4")


def test_other_names_are_refused() -> None:
    with pytest.raises(ValueError, match="expected hf://user/name or hf://user/name@revision"):
        load("hf://name")


def test_without_the_package_the_pip_line_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match=re.escape('pip install "noisynet[hub]"')):
        load("hf://someone/it")
    assert os.environ.get("HF_ENDPOINT") is None
