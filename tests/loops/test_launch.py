"""From configurations to runs and agents: threads, folders, and other versions."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

import pytest
import torch
from safetensors.torch import load, save

from loops.short_loops import configure
from loops.test_run import Messages
from noisynet.config import Config, build_config
from noisynet.loops import load_agent, open_run, open_run_folder, train, try_build
from noisynet.runs import CheckpointMismatch, RunError, RunFolder, RunMismatch
from noisynet.runs.reading import read_object
from noisynet.runs.sealed import seal, unseal


def short(*settings: str) -> Config:
    return configure(
        *("frames=60", "checkpoint_period_frames=20", "evaluation.period_frames=1000", *settings)
    )


def started_with(path: Path, *settings: str) -> list[str]:
    """Train as the command line does; return the messages."""
    config, messages = short(*settings), Messages()
    folder = open_run_folder(path, config)
    with folder.lock():
        assert train(config, folder, observers=[messages]).finished
    return messages.texts


# --- threads -------------------------------------------------------------------------------------


def test_the_first_message_says_what_runs_where_and_the_size_to_come(tmp_path: Path) -> None:
    texts = started_with(tmp_path / "run")
    assert texts[0] == (
        "noisynet-dqn on deep_sea/4: device cpu, compute kernels, 1 thread, 60 frames, in "
        f"{tmp_path / 'run'}, 0.1 MB on disk"
    )


def test_the_number_of_threads_is_stored_and_used_again(tmp_path: Path) -> None:
    path = tmp_path / "run"
    assert "2 threads" in started_with(path, "threads=2")[0]
    assert torch.get_num_threads() == 1  # restored after the run
    assert RunFolder(path).read_config()["threads"] == 2
    config = short("frames=80")
    folder, messages = open_run_folder(path, config), Messages()
    with folder.lock(), open_run(config, folder, observers=[messages]) as run:
        assert torch.get_num_threads() == run.config.threads == 2
    assert "2 threads" in messages.texts[0]
    assert "was started with 2 threads and uses them again" in messages.texts[1]
    assert RunFolder(path).read_config()["threads"] == 2
    assert RunFolder(path).read_config()["frames"] == 80


def test_another_number_of_threads_is_accepted_with_a_note_and_stored(tmp_path: Path) -> None:
    path = tmp_path / "run"
    started_with(path)
    assert RunFolder(path).read_config()["threads"] == 1
    texts = started_with(path, "threads=2", "frames=80")
    assert "2 threads" in texts[0]
    assert "results may differ in the last bits" in texts[1]
    assert RunFolder(path).read_config()["threads"] == 2


# --- folders -------------------------------------------------------------------------------------


def test_a_run_that_cannot_be_built_leaves_no_folder(tmp_path: Path) -> None:
    for agent in ("dqn", "a3c"):
        config = build_config(agent, "deep_sea/4", settings=['environment_options={"bogus": 1}'])
        path = tmp_path / "runs" / "run"
        folder = open_run_folder(path, config)
        with folder.lock(), pytest.raises(ValueError, match="bogus"), open_run(config, folder):
            pass
        assert not path.parent.exists()


def test_trying_to_build_creates_nothing_and_fails_like_the_run(tmp_path: Path) -> None:
    try_build(short())
    with pytest.raises(ValueError, match="bogus"):
        try_build(build_config("dqn", "deep_sea/4", settings=['environment_options={"bogus": 1}']))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("setting", ["learning.discount=0.5", "seed=7", "log_period_steps=7"])
def test_every_setting_but_frames_and_threads_is_part_of_the_identity(
    setting: str, tmp_path: Path
) -> None:
    open_run_folder(tmp_path / "run", short())
    with pytest.raises(RunMismatch, match=setting.partition("=")[0]):
        open_run_folder(tmp_path / "run", short(setting))
    open_run_folder(tmp_path / "run", short("frames=61", "threads=3"))


# --- other versions ------------------------------------------------------------------------------

WHAT_TO_DO = "resume the run with the version that started it, or start a new run with another"


@pytest.mark.parametrize("change", ["additional", "missing"])
def test_a_folder_with_the_settings_of_another_version_is_rejected(
    change: str, tmp_path: Path
) -> None:
    started_with(tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    stored = folder.read_config()
    if change == "additional":
        stored["learning"]["abolished"] = True
    else:
        del stored["learning"]["n_step"]
    folder.write_config(stored)
    named = "abolished" if change == "additional" else "it has no learning.n_step"
    with pytest.raises(RunMismatch, match=f"config.json .*{named}.*{WHAT_TO_DO}"):
        started_with(tmp_path / "run")
    assert folder.read_config() == stored
    if change == "additional":
        with pytest.raises(RunMismatch, match=WHAT_TO_DO):
            load_agent(tmp_path / "run")


def test_checkpoints_of_an_earlier_schema_are_rejected(tmp_path: Path) -> None:
    """Such checkpoints may have an update that was begun and not finished."""
    started_with(tmp_path / "run")
    for generation in RunFolder(tmp_path / "run").checkpoints_path.iterdir():
        data = generation.read_bytes()
        header = unseal(data)
        assert header["schema"] == "value-agent/5"
        generation.write_bytes(seal(save, load(data), header | {"schema": "value-agent/4"}))
    message = f"has schema value-agent/4, .* reads schema value-agent/5; {WHAT_TO_DO}"
    with pytest.raises(CheckpointMismatch, match=message):
        started_with(tmp_path / "run")
    with pytest.raises(CheckpointMismatch, match=message):
        load_agent(tmp_path / "run")
    assert len(list(RunFolder(tmp_path / "run").checkpoints_path.iterdir())) == 2


# --- agents --------------------------------------------------------------------------------------


def test_the_loaded_agent_has_the_weights_of_the_newest_checkpoint(tmp_path: Path) -> None:
    config = short()
    folder = open_run_folder(tmp_path / "run", config)
    with folder.lock(), open_run(config, folder) as run:
        run.run()
        expected = {k: v.clone() for k, v in run.trainer.agent.online.state_dict().items()}
    before = {path: path.stat().st_mtime_ns for path in sorted(folder.path.rglob("*"))}
    agent, frames = load_agent(tmp_path / "run")
    assert frames == 60
    found = agent.online.state_dict()
    assert all(torch.equal(found[name], value) for name, value in expected.items())
    assert {path: path.stat().st_mtime_ns for path in sorted(folder.path.rglob("*"))} == before


def test_a_folder_without_a_run_or_a_checkpoint_has_no_agent(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"expected a run folder with a config\.json"):
        load_agent(tmp_path)
    open_run_folder(tmp_path / "run", short())
    with pytest.raises(RunError, match="has no checkpoint yet"):
        load_agent(tmp_path / "run")
    assert json.loads((tmp_path / "run" / "config.json").read_text())["threads"] is None


# --- budgets and records -------------------------------------------------------------------------


def test_a_shorter_budget_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    started_with(tmp_path / "run")
    before = (tmp_path / "run" / "config.json").read_bytes()
    with pytest.raises(RunMismatch, match=r"has a budget of 60 frames: .* got 40; .* --frames 60"):
        started_with(tmp_path / "run", "frames=40")
    assert (tmp_path / "run" / "config.json").read_bytes() == before


def test_a_run_records_what_made_it_and_every_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        started_with(tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    (made,) = read_object(folder.config_path)["made_by"]
    assert made["device"] == "cpu"
    assert made["versions"]["torch"] == metadata.version("torch")
    assert "made_by" not in folder.read_config()
    monkeypatch.setattr("platform.node", lambda: "another")
    started_with(tmp_path / "run", "frames=80")
    assert [one["machine"] for one in read_object(folder.config_path)["made_by"]] == [
        made["machine"],
        "another",
    ]
    assert folder.read_config()["frames"] == 80
