"""TensorBoard events of runs that are killed and resumed."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from loops.conftest import ACT, CHECKPOINT, EVALUATE
from loops.short_loops import configure
from noisynet.config import build_config
from noisynet.loops import open_run_folder, train
from noisynet.loops.hooks import TensorBoard
from noisynet.runs import RunFolder

if TYPE_CHECKING:
    from loops.conftest import Bench


def curves(run: Path, *, as_written: bool = False) -> dict[str, list[tuple[int, float]]]:
    """Return the curves that TensorBoard shows, or all events that were ever written."""
    events: Any = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    accumulator = events.EventAccumulator(
        str(run / "tensorboard"), purge_orphaned_data=not as_written
    )
    accumulator.Reload()
    return {
        tag: [
            # The speed is not part of the result.
            (event.step, 0.0 if tag == "train/steps_per_second" else event.value)
            for event in accumulator.Scalars(tag)
        ]
        for tag in accumulator.Tags()["scalars"]
    }


def test_a_resumed_run_shows_each_point_in_tensorboard_once(bench: Bench, tmp_path: Path) -> None:
    more = ("--tensorboard", "--set", "log_period_steps=10")
    whole = bench.command("deep_sea", tmp_path / "whole", *more)
    assert bench.run(whole).status == 0
    expected = curves(tmp_path / "whole" / "run")
    assert [step for step, _ in expected["sigma/head.q.0"]] == list(range(10, 401, 10))
    assert [step for step, _ in expected["evaluation/score"]] == [150, 300, 400]

    command, run = bench.command("deep_sea", tmp_path / "killed", *more), tmp_path / "killed/run"
    kills: list[tuple[str, int, int]] = [
        (ACT, 35, signal.SIGKILL),  # before the second checkpoint
        (ACT, 130, signal.SIGKILL),
        (
            EVALUATE,
            80,
            signal.SIGTERM,
        ),  # saved after the row of this frame and before its evaluation
        (CHECKPOINT, 1, signal.SIGKILL),  # the evaluation is shown but not saved
        (ACT, 90, signal.SIGKILL),
    ]
    for event, number, kill in kills:
        ended = bench.run(command, (event, number), kill)
        assert ended.status == (-kill if kill == signal.SIGKILL else 128 + kill), ended.said
    assert bench.run(command).status == 0
    written = curves(run, as_written=True)["sigma/head.q.0"]
    assert len(written) > len(expected["sigma/head.q.0"]) + 2  # some points were written twice
    assert curves(run) == expected


def test_a_damaged_timing_log_switches_tensorboard_off_and_the_run_continues(
    bench: Bench, tmp_path: Path
) -> None:
    command, run = bench.command("deep_sea", tmp_path), tmp_path / "run"
    assert bench.run([*command, "--frames", "300"]).status == 0
    (run / "timing.jsonl").write_text("no row\n")
    ended = bench.run([*command, "--tensorboard"])
    assert ended.status == 0, ended.said
    assert "TensorBoard is switched off: line 1 of " in ended.said
    assert bench.remains(run) == bench.reference("deep_sea")


def test_tensorboard_writes_nothing_before_the_run_starts(tmp_path: Path) -> None:
    board = TensorBoard(RunFolder(tmp_path), configure())
    board.close()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("agent", ["noisynet-dqn", "dqn", "a3c"])
def test_every_agent_has_its_score_return_length_and_settings_under_the_same_tags(
    agent: str, tmp_path: Path
) -> None:
    settings = ["frames=160", "network.hidden=[8]", "log_period_steps=40", "evaluation.frames=40"]
    if agent == "a3c":
        settings += ["workers=1"]
    else:
        settings += [
            "learning.starts_steps=20",
            "learning.batch_size=4",
            "learning.update_period_steps=1",
        ]
    config = build_config(agent, "deep_sea/4", settings=settings)
    folder = open_run_folder(tmp_path / "run", config)
    board = TensorBoard(folder, config)
    with folder.lock():
        outcome = train(config, folder, observers=[board])
    board.close()
    found = curves(folder.path)
    ((frames, score),) = found["evaluation/score"]
    assert frames == 160
    assert outcome.score == pytest.approx(score)
    common = {"return", "return_mean_100", "length_mean_100", "loss", "steps_per_second"}
    common |= {"gradient_norm"}
    assert {f"train/{name}" for name in common} <= set(found)
    assert found["train/length_mean_100"][-1] == (160, 4.0)
    assert ("train/epsilon" in found) == (agent == "dqn")
    noisy = {tag for tag in found if tag.startswith(("sigma/", "evaluation/score_noise_"))}
    assert bool(noisy) == (agent == "noisynet-dqn")
    events: Any = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    accumulator = events.EventAccumulator(str(folder.path / "tensorboard"))
    accumulator.Reload()
    summary = accumulator.summary_metadata["_hparams_/session_start_info"].plugin_data.content
    assert b"optimiser.learning_rate" in summary
