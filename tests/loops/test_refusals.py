"""What a run rejects: non-finite numbers, other runs' checkpoints, and pickles."""

from __future__ import annotations

import ast
import pickle
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from safetensors.torch import save

import noisynet
from noisynet.runs import RunFolder, save_checkpoint
from noisynet.runs.sealed import seal, unseal

if TYPE_CHECKING:
    from loops.conftest import Bench


# --- numbers that are not finite ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        # After the first update the weights are finite, but not the values.
        (["optimiser.learning_rate=1e30"], "expected a finite loss at update 2, got nan: "),
        # After it the weights are infinite, which the next update detects.
        (["optimiser.learning_rate=1e39"], "got nan: first in 'head."),
        # A checkpoint that is due before the next update must not be written.
        (
            ["optimiser.learning_rate=1e39", "checkpoint_period_frames=1"],
            "expected finite tensors after update 1, got NaN or infinite values: first in "
            "'agent.online.head.",
        ),
    ],
)
def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_a_finite_checkpoint(
    settings: list[str], message: str, bench: Bench, tmp_path: Path
) -> None:
    command = bench.command("deep_sea", tmp_path)
    for setting in settings:
        command += ["--set", setting]
    for _ in range(2):  # and again from that checkpoint
        ended = bench.run(command)
        assert ended.status == 1, ended.said
        assert message in ended.said
        assert "Traceback" not in ended.said
        status = RunFolder(tmp_path / "run").read_status()
        assert status is not None
        assert status["state"] == "failed"
        assert message in status["reason"]
        assert status["frames"] < 68  # the second update
        checkpoint = bench.newest(tmp_path / "run")
        assert all(bool(tensor.isfinite().all()) for tensor in checkpoint.tensors.values())


# --- other runs -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("position", "other", "message"),
    [
        (1, "noisynet-dueling", "agent: the folder has 'noisynet-dqn', this command has "),
        (2, "deep_sea/5", "environment: the folder has 'deep_sea/4', this command has "),
    ],
)
def test_the_folder_of_another_agent_or_game_is_rejected(
    position: int, other: str, message: str, bench: Bench, run: Path
) -> None:
    command = bench.command("deep_sea", run.parent)
    command[position] = other
    ended = bench.run(command)
    assert ended.status == 1
    assert f"{run} belongs to another run" in ended.said
    assert f"{message}'{other}'" in ended.said


def test_the_folder_of_another_seed_or_setting_is_rejected(bench: Bench, run: Path) -> None:
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
    ],
)
def test_the_checkpoint_of_another_run_is_rejected(
    key: str, theirs: Any, ours: str, bench: Bench, run: Path
) -> None:
    newest = bench.newest(run)
    header = unseal((run / "checkpoints" / f"{newest.step:012d}.safetensors").read_bytes())
    save_checkpoint(
        run / "checkpoints",
        replace(newest, step=newest.step + 1),
        schema=header["schema"],
        identity={**header["identity"], key: theirs},
    )
    before = sorted(path.name for path in (run / "checkpoints").iterdir())
    ended = bench.run(bench.command("deep_sea", run.parent))
    assert ended.status == 1
    assert f"the checkpoint of step {newest.step + 1} is for " in ended.said
    assert f"{key} {theirs!r}" in ended.said.partition("this run is ")[0]
    assert ours in ended.said.partition("this run is ")[2]
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == before


# --- pickles --------------------------------------------------------------------------------------


class _Malicious:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.mark,))


@pytest.mark.parametrize("sealed", [False, True])
def test_a_pickle_in_place_of_a_checkpoint_is_renamed_and_never_executed(
    sealed: bool, bench: Bench, run: Path, tmp_path: Path
) -> None:
    mark = tmp_path / "executed"
    data = pickle.dumps(_Malicious(mark))
    pickle.loads(data)
    mark.unlink()  # loading it has an effect
    newest = max((run / "checkpoints").glob("[0-9]" * 12 + ".safetensors"))
    if sealed:  # even in a file that verifies
        header = unseal(newest.read_bytes())
        data = seal(lambda _, text: save({}, text) + data, {}, header)
    newest.write_bytes(data)
    ended = bench.run(bench.command("deep_sea", run.parent))
    assert ended.status == 0, ended.said
    assert f"is damaged and was renamed to {newest.name}.corrupt" in ended.said
    assert not mark.exists()
    assert bench.remains(run) == bench.reference("deep_sea")


def test_nothing_but_the_integrations_can_unpickle() -> None:
    modules = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
    calls = {("torch", "load"), ("torch", "save"), ("np", "load"), ("np", "save")}
    package = Path(noisynet.__file__).parent
    # Files of other libraries are pickles; the command line reads them only with --trust.
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
