"""What a run refuses: numbers that are not finite, others' checkpoints, and code in disguise."""

from __future__ import annotations

import ast
import json
import pickle
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import noisynet
from noisynet.loops.training import SCHEMA
from noisynet.runs import RunFolder, save_checkpoint
from noisynet.runs.manifest import FileRecord, Manifest

if TYPE_CHECKING:
    from loops.conftest import Bench

ACT = "noisynet.agents.value:ValueAgent.act"


@pytest.fixture(scope="session")
def killed_run(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed after three quarters of its way."""
    out = tmp_path_factory.mktemp("killed")
    assert bench.run(bench.command("deep_sea", out), (ACT, 310)).status == -signal.SIGKILL
    return out / "run"


@pytest.fixture
def run(killed_run: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(killed_run, tmp_path / "run"))


# --- numbers that are not finite ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        # After the first update the weights are finite, but no longer what they lead to.
        (["optimiser.learning_rate=1e30"], "expected a finite loss at update 2, got nan: "),
        # After it they are infinite, and the next update finds that out.
        (["optimiser.learning_rate=1e39"], "got nan: first in 'head."),
        # A checkpoint is due before the next update: it must not be written.
        (
            ["optimiser.learning_rate=1e39", "checkpoint_period_frames=1"],
            "expected finite tensors after update 1, got NaN or infinite values: first in "
            "'agent.online.head.",
        ),
    ],
)
def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_a_finite_checkpoint(
    settings: list[str], told: str, bench: Bench, tmp_path: Path
) -> None:
    command = bench.command("deep_sea", tmp_path)
    for setting in settings:
        command += ["--set", setting]
    for _ in range(2):  # and it does so again from that checkpoint
        ended = bench.run(command)
        assert ended.status == 1, ended.said
        assert told in ended.said
        assert "Traceback" not in ended.said
        status = RunFolder(tmp_path / "run").read_status()
        assert status is not None
        assert status["state"] == "failed"
        assert told in status["reason"]
        assert status["frames"] < 68  # the second update
        checkpoint = bench.newest(tmp_path / "run")
        assert all(bool(tensor.isfinite().all()) for tensor in checkpoint.tensors.values())


# --- others' folders and checkpoints --------------------------------------------------------------


@pytest.mark.parametrize(
    ("position", "other", "told"),
    [
        (1, "noisynet-dueling", "agent: the folder has 'noisynet-dqn', this command has "),
        (2, "deep_sea/5", "environment: the folder has 'deep_sea/4', this command has "),
    ],
)
def test_the_folder_of_another_agent_or_game_is_refused_naming_both(
    position: int, other: str, told: str, bench: Bench, run: Path
) -> None:
    command = bench.command("deep_sea", run.parent)
    command[position] = other
    ended = bench.run(command)
    assert ended.status == 1
    assert f"{run} is another run's folder" in ended.said
    assert f"{told}'{other}'" in ended.said


def test_the_folder_of_another_seed_or_setting_is_refused_naming_both(
    bench: Bench, run: Path
) -> None:
    more = ("--seed", "7", "--set", "learning.discount=0.9")
    ended = bench.run(bench.command("deep_sea", run.parent, *more))
    assert ended.status == 1
    assert "seed: the folder has 0, this command has 7" in ended.said
    assert "learning.discount: the folder has 0.99, this command has 0.9" in ended.said


@pytest.mark.parametrize(
    ("key", "theirs", "ours"),
    [
        ("environment", "atari/pong", "environment 'deep_sea/4'"),
        ("num_actions", 18, "num_actions 2"),
        ("agent", "dqn", "agent 'noisynet-dqn'"),
        ("seed", 7, "seed 0"),
        ("num_envs", 4, "num_envs 1"),
        ("schema", "value-agent/0", f"schema {SCHEMA}"),
    ],
)
def test_the_checkpoint_of_another_run_is_refused_naming_both(
    key: str, theirs: Any, ours: str, bench: Bench, run: Path
) -> None:
    newest = bench.newest(run)
    manifest = json.loads(
        (run / "checkpoints" / f"{newest.step:012d}" / "manifest.json").read_text()
    )
    about = {**manifest["identity"], "schema": manifest["schema"], key: theirs}
    save_checkpoint(
        run / "checkpoints",
        replace(newest, step=newest.step + 1),
        schema=about.pop("schema"),
        identity=about,
    )
    held = sorted(path.name for path in (run / "checkpoints").iterdir())
    ended = bench.run(bench.command("deep_sea", run.parent))
    assert ended.status == 1
    came = f"schema {theirs}" if key == "schema" else f"{key} {theirs!r}"
    assert f"the checkpoint of step {newest.step + 1} is for " in ended.said
    assert came in ended.said.partition("this run is ")[0]
    assert ours in ended.said.partition("this run is ")[2]
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == held


# --- code in disguise -----------------------------------------------------------------------------


class _Malicious:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.mark,))


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("name", ["tensors.safetensors", "state.json"])
def test_a_pickle_in_place_of_a_checkpoint_is_set_aside_and_never_executed(
    name: str, sealed: bool, bench: Bench, run: Path, tmp_path: Path
) -> None:
    mark = tmp_path / "executed"
    data = pickle.dumps(_Malicious(mark))
    pickle.loads(data)
    mark.unlink()  # it does work
    newest = max((run / "checkpoints").glob("[0-9]" * 12))
    (newest / name).write_bytes(data)
    if sealed:  # even where the manifest vouches for it
        manifest = Manifest.decode((newest / "manifest.json").read_bytes())
        files = {**manifest.files, name: FileRecord.of(data)}
        (newest / "manifest.json").write_bytes(replace(manifest, files=files).encode())
    ended = bench.run(bench.command("deep_sea", run.parent))
    assert ended.status == 0, ended.said
    assert f"is set aside as {newest.name}.corrupt" in ended.said
    assert not mark.exists()
    assert bench.remains(run) == bench.reference("deep_sea")


def test_nothing_but_the_integrations_can_unpickle() -> None:
    modules = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
    calls = {("torch", "load"), ("torch", "save"), ("np", "load"), ("np", "save")}
    package = Path(noisynet.__file__).parent
    # Other libraries' files are pickles: the command line reads them only with --trust.
    files = sorted(set(package.rglob("*.py")) - set((package / "integrations").glob("*.py")))
    assert len(files) > 40
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            where = f"{path}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.Import):
                found = {alias.name.split(".")[0] for alias in node.names} & modules
                assert not found, where
            elif isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] not in modules, where
                names = {(node.module, alias.name) for alias in node.names}
                assert not names & {("torch", "load"), ("torch", "save"), ("numpy", "load")}, where
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert (node.value.id, node.attr) not in calls, where
            elif isinstance(node, ast.keyword):
                assert node.arg != "allow_pickle", where
