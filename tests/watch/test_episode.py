"""Choosing a traced episode and replaying it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from noisynet.loops import load_agent
from noisynet.runs import (
    MetricsLog,
    RunError,
    RunFolder,
    Trace,
    list_traces,
    read_traces,
    write_traces,
)
from noisynet.watch.episode import ReplayMismatch, choose_trace, play_episode, replay, screens

from .conftest import newest_traces


@pytest.fixture
def evaluated(tmp_path: Path) -> RunFolder:
    """Evaluations at 10 and 20 frames with distinct scores."""
    folder = RunFolder(tmp_path / "run")

    def write(evaluation: int, noise: Literal["on", "off"], scores: Sequence[float]) -> None:
        traces = [
            Trace("deep_sea/4", 0, np.zeros(4, np.uint8), score, evaluation, episode, noise)
            for episode, score in enumerate(scores)
        ]
        write_traces(folder.traces_path, evaluation, traces, noise=noise)

    write(10, "on", [1.0, 7.0, 2.0])
    write(20, "on", [3.0, 5.0, 4.0])
    write(10, "off", [9.0])
    write(20, "off", [9.0, 8.0])
    return folder


@pytest.mark.parametrize(
    ("episode", "noise", "expected"),
    [
        ("best", "on", (10, 1)),  # over all evaluations of this noise mode
        ("best", "off", (20, 0)),  # the newest of equals
        ("last", "on", (20, 2)),
        ("last", "off", (20, 1)),
        (0, "on", (20, 0)),
        ("1", "on", (20, 1)),
    ],
)
def test_episodes_are_chosen_by_name_or_number(
    evaluated: RunFolder,
    episode: str | int,
    noise: Literal["on", "off"],
    expected: tuple[int, int],
) -> None:
    trace, notes = choose_trace(evaluated, episode, noise)
    assert (trace.evaluation, trace.episode, trace.noise) == (*expected, noise)
    assert notes == []


def test_an_episode_of_an_incomplete_evaluation_is_not_the_best(evaluated: RunFolder) -> None:
    with MetricsLog(evaluated.metrics_path) as metrics:
        row = {"kind": "evaluation", "frames": 10, "noise": "on", "completed": False}
        metrics.append({**row, "score": 9.0})
    trace, _ = choose_trace(evaluated, "best", "on")
    assert (trace.evaluation, trace.episode) == (20, 1)


def test_a_truncated_episode_is_neither_the_best_nor_the_last(
    evaluated: RunFolder,
) -> None:
    file = list_traces(evaluated.traces_path)[-1]
    traces = read_traces(file.path)
    cut = replace(traces[-1], score=99.0, episode=3, finished=False)
    write_traces(evaluated.traces_path, 20, [*traces, cut], noise="on")
    assert [choose_trace(evaluated, name, "on")[0].score for name in ("best", "last")] == [7.0, 4.0]
    assert choose_trace(evaluated, 3, "on")[0].score == 99.0  # it can be chosen by number


def test_without_completed_episodes_a_truncated_one_is_chosen(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    for evaluation, score in ((10, 2.0), (20, 1.0)):
        cut = Trace("deep_sea/4", 0, np.zeros(2, np.uint8), score, evaluation, 0, "on", {}, False)
        write_traces(folder.traces_path, evaluation, [cut], noise="on")
    assert choose_trace(folder, "best", "on")[0].evaluation == 10
    assert choose_trace(folder, "last", "on")[0].evaluation == 20
    assert choose_trace(folder, 0, "on")[0].evaluation == 20


def test_an_unknown_episode_is_refused(evaluated: RunFolder) -> None:
    with pytest.raises(RunError, match=r"at 20 frames .* has no episode 3: .* in 0\.\.2"):
        choose_trace(evaluated, 3, "on")
    for wrong in ("worst", "-1", -1, True, "1.5"):
        with pytest.raises(ValueError, match="'best', 'last', 'new' or a number from 0"):
            choose_trace(evaluated, wrong, "on")
    with pytest.raises(ValueError, match="noise 'on' or 'off', got 'maybe'"):
        choose_trace(evaluated, "best", "maybe")  # type: ignore[arg-type]


def test_a_run_without_traces_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"expected traced evaluation episodes .* got none"):
        choose_trace(RunFolder(tmp_path), "best", "on")


def test_a_played_episode_is_a_whole_one_that_replays(noisy_run: Path) -> None:
    agent, frames = load_agent(noisy_run)
    for noise in ("on", "off"):
        trace = play_episode(agent, frames, noise=noise)
        assert (trace.evaluation, trace.noise, len(trace.actions)) == (frames, noise, 4)
        assert replay(trace, agent, steps=1, samples=1).ended


def test_a_played_episode_without_an_end_is_stopped(
    noisy_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("noisynet.watch.episode._MAX_PLAYED_STEPS", 3)
    agent, frames = load_agent(noisy_run)
    trace = play_episode(agent, frames)
    assert (len(trace.actions), trace.finished) == (3, False)


def test_an_agent_without_noise_plays_with_noise_off(plain_run: Path) -> None:
    assert play_episode(*load_agent(plain_run), noise="on").noise == "off"


def test_a_replay_in_colour_with_other_rewards_is_refused(noisy_run: Path) -> None:
    trace = newest_traces(noisy_run, "on")[0]
    episode = replay(trace, load_agent(noisy_run)[0], steps=4, samples=1)
    wrong = replace(episode, rewards=episode.rewards + 1)
    with pytest.raises(ReplayMismatch, match="in colour gave reward"):
        list(screens(trace, wrong, 4))


def test_returns_are_discounted_sums_of_rewards(noisy_run: Path) -> None:
    agent, _ = load_agent(noisy_run)
    trace = newest_traces(noisy_run, "on")[0]
    episode = replay(trace, agent, steps=4, samples=1)
    discount = agent.config.learning.discount
    for t in range(4):
        ahead = sum(discount**k * reward for k, reward in enumerate(episode.rewards[t:]))
        assert episode.returns[t] == pytest.approx(ahead, abs=1e-12)
    assert episode.ended
    assert len(episode.values.mean_weights) == 4


def test_without_noise_all_samples_are_equal(plain_run: Path) -> None:
    agent, _ = load_agent(plain_run)
    episode = replay(newest_traces(plain_run, "off")[0], agent, steps=2, samples=32)
    q = episode.values.mean_weights
    assert q.shape == (2, 2)
    assert (episode.values.spread == q[..., None]).all()
    assert (episode.values.disagreement == 0).all()
