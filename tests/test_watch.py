from __future__ import annotations

import hashlib
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from noisynet.agents import ValueAgent
from noisynet.config import Config, build_config
from noisynet.envs import make_environment
from noisynet.layers import noise_off, resample_noise
from noisynet.loops import load_agent, train
from noisynet.networks import view_with_own_noise
from noisynet.runs import (
    MetricsLog,
    RunError,
    RunFolder,
    StorageError,
    Trace,
    list_traces,
    read_traces,
    write_traces,
)
from noisynet.watch import ReplayDiffers, render_episode
from noisynet.watch.episode import action_names, choose_trace, play, screens
from noisynet.watch.panel import Panel
from noisynet.watch.value_sampling import ValueMeter
from noisynet.watch.video import _caption

av = pytest.importorskip("av")

SMALL = [
    "network.hidden=[16]",
    "replay.capacity_steps=200",
    "learning.starts_steps=20",
    "learning.batch_size=8",
]
DEEP_SEA = ["evaluation.period_frames=30", "evaluation.frames=15"]  # 3 whole episodes of 4, twice


def trained(path: Path, agent: str, environment: str, frames: int, settings: Sequence[str]) -> Path:
    config = build_config(agent, environment, frames=frames, settings=[*SMALL, *settings])
    assert isinstance(config, Config)
    folder = RunFolder.create_or_open(path, config.model_dump(mode="json"), must_match=["agent"])
    with folder.lock():
        train(config, folder)
    return path


@pytest.fixture(scope="module")
def noisy_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("noisy") / "run"
    return trained(path, "noisynet-dqn", "deep_sea/4", 60, DEEP_SEA)


@pytest.fixture(scope="module")
def plain_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plain") / "run"
    return trained(path, "dueling", "deep_sea/4", 60, DEEP_SEA)


def decoded(path: Path) -> tuple[list[NDArray[np.uint8]], Any]:
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(stream)]
        facts = (stream.codec_context.name, stream.codec_context.pix_fmt, stream.average_rate)
    return frames, facts


def newest_traces(run: Path, noise: Literal["on", "off"]) -> list[Trace]:
    files = [file for file in list_traces(RunFolder(run).traces_path) if file.noise == noise]
    return read_traces(files[-1].path)


def hashes(folder: Path) -> dict[str, tuple[str, int]]:
    return {
        str(path.relative_to(folder)): (
            hashlib.sha256(path.read_bytes()).hexdigest(),
            path.stat().st_mtime_ns,
        )
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


# --- the video ---------------------------------------------------------------------------------


def test_a_noisy_episode_becomes_an_mp4_and_the_run_stays_as_it_is(
    noisy_run: Path, tmp_path: Path
) -> None:
    before = hashes(noisy_run)
    random_before = torch.get_rng_state()
    output = tmp_path / "new folder" / "game.mp4"
    rendered = render_episode(noisy_run, output, episode="last", samples=8)
    assert hashes(noisy_run) == before
    assert torch.equal(torch.get_rng_state(), random_before)
    assert [path.name for path in output.parent.iterdir()] == ["game.mp4"]

    frames, facts = decoded(output)
    assert facts == ("h264", "yuv420p", Fraction(3))
    assert len(frames) == rendered.frames == 4 + 3  # the steps, and a second of the end
    assert rendered.seconds == pytest.approx(7 / 3)
    # 64 pixels of deep_sea/4, ten times, and the panel.
    assert {frame.shape for frame in frames} == {(640, 640 + 480, 3)}
    assert rendered.trace.episode == 2  # the last whole one
    assert rendered.score == rendered.trace.score
    assert rendered.notes == ()
    assert rendered.path == output


def test_the_video_shows_the_game_in_its_colours(noisy_run: Path, tmp_path: Path) -> None:
    rendered = render_episode(noisy_run, tmp_path / "game.mp4", samples=2)
    agent, _ = load_agent(noisy_run)
    played = play(rendered.trace, agent, steps=4, samples=2)
    expected = list(screens(rendered.trace, played, 4))
    frames, _ = decoded(rendered.path)
    assert len(expected) == 5
    for frame, screen in zip(frames, expected, strict=False):
        shown = frame[80:640:160, 80:640:160].astype(int)  # the middle of each cell
        assert np.abs(shown - screen[8:64:16, 8:64:16]).max() <= 12  # chroma is halved, then coded


def test_the_same_episode_is_rendered_the_same_twice(noisy_run: Path, tmp_path: Path) -> None:
    for name in ("a.mp4", "b.mp4"):
        render_episode(noisy_run, tmp_path / name, samples=4)
    a, b = (decoded(tmp_path / name)[0] for name in ("a.mp4", "b.mp4"))
    assert all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def test_a_plain_agent_has_one_value_per_action_and_falls_back_to_noise_off(
    plain_run: Path, tmp_path: Path
) -> None:
    rendered = render_episode(plain_run, tmp_path / "game.mp4", noise="on")
    assert rendered.trace.noise == "off"
    assert "no evaluation with noise on" in rendered.notes[0]
    frames, facts = decoded(rendered.path)
    assert facts[2] == 3
    assert len(frames) == 4 + 3
    assert {frame.shape for frame in frames} == {(640, 640 + 480, 3)}


def test_steps_can_be_limited(plain_run: Path, tmp_path: Path) -> None:
    rendered = render_episode(plain_run, tmp_path / "game.mp4", noise="off", max_steps=2)
    assert len(decoded(rendered.path)[0]) == rendered.frames == 2 + 3


def test_atari_is_shown_in_colour_at_three_times_its_size(tmp_path: Path) -> None:
    settings = ["evaluation.period_frames=120", "evaluation.frames=80"]
    run = trained(tmp_path / "run", "noisynet-dqn", "atari/pong", 200, settings)
    rendered = render_episode(run, tmp_path / "game.mp4", noise="off", samples=2)
    frames, facts = decoded(rendered.path)
    assert facts[2] == 15
    assert len(frames) == 20 + 15
    assert {frame.shape for frame in frames} == {(630, 480 + 480, 3)}
    assert np.abs(frames[-1][300, 200].astype(int) - (144, 72, 17)).max() <= 12  # Pong's brown
    assert rendered.weights_frames == 200
    assert rendered.notes[0] == "the evaluation ended before this episode did"
    assert "at 120 training frames" in rendered.notes[1]
    assert "weights at 200" in rendered.notes[1]


def test_without_h264_mpeg4_is_used(
    noisy_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(av.codec, "codecs_available", {"mpeg4"})
    rendered = render_episode(noisy_run, tmp_path / "game.mp4", samples=2)
    frames, facts = decoded(rendered.path)
    assert facts[:2] == ("mpeg4", "yuv420p")
    assert len(frames) == rendered.frames


# --- which episode -----------------------------------------------------------------------------


@pytest.fixture
def evaluated(tmp_path: Path) -> RunFolder:
    """Evaluations at 10 and 20 frames with scores that tell the episodes apart."""
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
def test_the_episode_that_is_meant_is_chosen(
    evaluated: RunFolder,
    episode: str | int,
    noise: Literal["on", "off"],
    expected: tuple[int, int],
) -> None:
    trace, notes = choose_trace(evaluated, episode, noise)
    assert (trace.evaluation, trace.episode, trace.noise) == (*expected, noise)
    assert notes == []


def test_an_episode_that_the_evaluation_cut_off_is_not_the_best(evaluated: RunFolder) -> None:
    with MetricsLog(evaluated.metrics_path) as metrics:
        row = {"kind": "evaluation", "frames": 10, "noise": "on", "completed": False}
        metrics.append(row)
    trace, _ = choose_trace(evaluated, "best", "on")
    assert (trace.evaluation, trace.episode) == (20, 1)


def test_an_unfinished_episode_is_neither_the_best_nor_the_last_of_others(
    evaluated: RunFolder,
) -> None:
    file = list_traces(evaluated.traces_path)[-1]
    traces = read_traces(file.path)
    cut = replace(traces[-1], score=99.0, episode=3, finished=False)
    write_traces(evaluated.traces_path, 20, [*traces, cut], noise="on")
    assert [choose_trace(evaluated, name, "on")[0].score for name in ("best", "last")] == [7.0, 4.0]
    assert choose_trace(evaluated, 3, "on")[0].score == 99.0  # it can still be asked for


def test_where_no_episode_was_finished_the_unfinished_one_is_chosen(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    for evaluation, score in ((10, 2.0), (20, 1.0)):
        cut = Trace("deep_sea/4", 0, np.zeros(2, np.uint8), score, evaluation, 0, "on", {}, False)
        write_traces(folder.traces_path, evaluation, [cut], noise="on")
    assert choose_trace(folder, "best", "on")[0].evaluation == 10
    assert choose_trace(folder, "last", "on")[0].evaluation == 20
    assert choose_trace(folder, 0, "on")[0].evaluation == 20


def test_the_unfinished_episode_of_an_evaluation_can_be_watched(
    noisy_run: Path, tmp_path: Path
) -> None:
    *whole, cut = newest_traces(noisy_run, "on")  # 15 frames: three games of four, and three steps
    assert [trace.finished for trace in whole] == [True, True, True]
    assert (cut.finished, cut.episode, len(cut.actions)) == (False, 3, 3)
    rendered = render_episode(noisy_run, tmp_path / "game.mp4", episode=3, samples=2)
    assert rendered.trace.episode == 3
    assert rendered.notes == ("the evaluation ended before this episode did",)
    assert len(decoded(rendered.path)[0]) == 3 + 3


def test_an_unknown_episode_is_refused(evaluated: RunFolder) -> None:
    with pytest.raises(RunError, match=r"at 20 frames .* has no episode 3: .* in 0\.\.2"):
        choose_trace(evaluated, 3, "on")
    for wrong in ("worst", "-1", -1, True, "1.5"):
        with pytest.raises(ValueError, match="'best', 'last' or a number from 0"):
            choose_trace(evaluated, wrong, "on")
    with pytest.raises(ValueError, match="noise 'on' or 'off', got 'maybe'"):
        choose_trace(evaluated, "best", "maybe")  # type: ignore[arg-type]


def test_a_run_without_traces_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"expected traced evaluation episodes .* got none"):
        choose_trace(RunFolder(tmp_path), "best", "on")


# --- what is refused ---------------------------------------------------------------------------


def altered_copy(run: Path, tmp_path: Path, **changes: Any) -> Path:
    """A run whose only traced episode is another's with changes, under a sound checksum."""
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    trace = replace(newest_traces(run, "on")[0], **changes)
    for file in list_traces(copy / "traces"):
        file.path.unlink()
    write_traces(copy / "traces", trace.evaluation, [trace], noise="on")
    return copy


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"score": 12.0}, "played again, expected the 12 of its trace"),
        ({"actions": np.zeros(6, np.uint8)}, "ended after 4 actions .* expected the 6"),
        ({"environment": "deep_sea/5"}, "the trace is of another run"),
    ],
)
def test_an_episode_that_does_not_replay_is_refused_and_leaves_no_video(
    noisy_run: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    run = altered_copy(noisy_run, tmp_path, **changes)
    (tmp_path / "out").mkdir()
    with pytest.raises(ReplayDiffers, match=message):
        render_episode(run, tmp_path / "out" / "game.mp4", max_steps=1, samples=2)
    assert not list((tmp_path / "out").iterdir())


def test_a_game_in_colour_that_goes_another_way_is_refused(noisy_run: Path) -> None:
    trace = newest_traces(noisy_run, "on")[0]
    played = play(trace, load_agent(noisy_run)[0], steps=4, samples=1)
    wrong = replace(played, rewards=played.rewards + 1)
    with pytest.raises(ReplayDiffers, match="in colour gave reward"):
        list(screens(trace, wrong, 4))


def test_a_video_that_cannot_be_finished_leaves_the_old_one(
    noisy_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "game.mp4"
    output.write_bytes(b"old")

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("noisynet.watch.video._encode", full_disk)
    with pytest.raises(StorageError, match=r"cannot write .*game\.mp4"):
        render_episode(noisy_run, output, samples=2)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"old"]


def test_missing_runs_and_wrong_arguments_are_named(noisy_run: Path, tmp_path: Path) -> None:
    output = tmp_path / "game.mp4"
    with pytest.raises(RunError, match="expected a run folder with a config"):
        render_episode(tmp_path / "nowhere", output)
    with pytest.raises(ValueError, match=r"ends in \.mp4, got .*game\.gif"):
        render_episode(noisy_run, tmp_path / "game.gif")
    with pytest.raises(ValueError, match="at least 1 noise sample, got 0"):
        render_episode(noisy_run, output, samples=0)
    with pytest.raises(ValueError, match="max_steps of at least 1, got 0"):
        render_episode(noisy_run, output, max_steps=0)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("module", ["av", "PIL.Image"])
def test_a_missing_package_is_named_with_the_line_that_installs_it(
    noisy_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=r'pip install "noisynet\[video\]"'):
        render_episode(noisy_run, tmp_path / "game.mp4")


# --- what is measured --------------------------------------------------------------------------


@pytest.mark.parametrize("noise", ["factorised", "independent"])
@pytest.mark.parametrize("agent_name", ["noisynet-dqn", "noisynet-dueling"])
def test_the_spread_is_that_of_as_many_draws_of_the_network(agent_name: str, noise: str) -> None:
    """Against drawing one network after the other and asking it for Q."""
    settings = [*SMALL, f"exploration.noise={noise}", "exploration.sigma0=0.5"]
    config = build_config(agent_name, "deep_sea/4", settings=settings)
    assert isinstance(config, Config)
    with make_environment("deep_sea/4") as environment:
        agent = ValueAgent(config, environment.spec)
    trace = Trace("deep_sea/4", 0, np.zeros(4, np.uint8), 0.0, 0, 0, "on")
    states = np.eye(16, dtype=np.float32)[:3, None]  # [3, 1, 16]
    meter = ValueMeter(agent, trace, 400)
    for state in states:
        meter.add(state[None])
    values = meter.values()

    network, stream = view_with_own_noise(agent.online), torch.Generator().manual_seed(1)
    drawn = []
    with torch.no_grad():
        for _ in range(800):
            resample_noise(network, stream)
            drawn.append(network(torch.from_numpy(states)).numpy())
        with noise_off(network):
            mean = network(torch.from_numpy(states)).numpy()
    q = np.stack(drawn)  # [800, 3, 2]
    np.testing.assert_allclose(values.mean_weights, mean, rtol=1e-5)
    spread = q.std(axis=0).max()
    quartiles = np.quantile(q, (0.25, 0.75), axis=0)
    assert np.abs(values.draws[..., 2] - q.mean(axis=0)).max() < 0.25 * spread
    assert np.abs(values.draws[..., 1] - quartiles[0]).max() < 0.25 * spread
    assert np.abs(values.draws[..., 3] - quartiles[1]).max() < 0.25 * spread
    assert (np.diff(values.draws[..., [0, 1, 3, 4]], axis=2) > 0).all()
    share = (q.argmax(axis=2) == 0).mean(axis=0)
    assert np.abs(values.greedy_share[:, 0] - share).max() < 0.12
    np.testing.assert_allclose(values.greedy_share.sum(axis=1), 1)
    disagree = (q.argmax(axis=2) != mean.argmax(axis=1)).mean(axis=0)
    assert np.abs(values.disagreement - disagree).max() < 0.12


def test_returns_are_discounted_sums_of_rewards_as_learnt_from(noisy_run: Path) -> None:
    agent, _ = load_agent(noisy_run)
    trace = newest_traces(noisy_run, "on")[0]
    played = play(trace, agent, steps=4, samples=1)
    discount = agent.config.learning.discount
    for t in range(4):
        ahead = sum(discount**k * reward for k, reward in enumerate(played.rewards[t:]))
        assert played.returns[t] == pytest.approx(ahead, abs=1e-12)
    assert played.ended
    assert len(played.values.mean_weights) == 4


def test_plain_values_are_their_own_spread(plain_run: Path) -> None:
    agent, _ = load_agent(plain_run)
    played = play(newest_traces(plain_run, "off")[0], agent, steps=2, samples=32)
    q = played.values.mean_weights
    assert q.shape == (2, 2)
    assert (played.values.draws == q[..., None]).all()
    assert (played.values.disagreement == 0).all()


@pytest.mark.parametrize(
    ("environment", "options", "expected"),
    [
        ("atari/pong", {}, ["no-op", "fire", "right", "left", "right fire", "left fire"]),
        ("atari/pong", {"pong_actions": "original"}, ["no-op", "right", "left"]),
        ("minatar/breakout", {"minimal_actions": True}, ["no-op", "left", "right"]),
        ("deep_sea/4", {}, ["action 0", "action 1"]),
    ],
)
def test_actions_have_names(environment: str, options: dict[str, Any], expected: list[str]) -> None:
    trace = Trace(environment, 0, np.zeros(1, np.uint8), 0.0, 0, 0, "off", options)
    assert action_names(trace, len(expected)) == expected


# --- what is drawn -----------------------------------------------------------------------------


def test_the_panel_marks_the_chosen_action_and_warns_of_other_weights(noisy_run: Path) -> None:
    from noisynet.watch.panel import CHOSEN, MARGIN, NOTICE

    agent, frames = load_agent(noisy_run)
    trace = newest_traces(noisy_run, "on")[0]
    played = play(trace, agent, steps=4, samples=8)
    for shift in (0, 30):
        caption = _caption(trace, agent, frames + shift, 8)
        panel = Panel(caption, played, trace.actions, 640)
        for step in range(4):
            picture = np.asarray(panel.draw(step))
            assert picture.shape == (640, 480, 3)
            middles = [panel.plot_top + panel.row_height * row + 12 for row in (0, 1)]
            marked = [tuple(picture[y, MARGIN + 2]) == CHOSEN for y in middles]
            assert marked == [action == trace.actions[step] for action in (0, 1)]
            warned = (picture[60:90] == NOTICE).all(axis=2).any()
            assert bool(warned) == (shift > 0)
            assert str(frames + shift) in caption.weights


def test_a_panel_of_many_actions_shows_those_played_most(plain_run: Path) -> None:
    agent, frames = load_agent(plain_run)
    trace = newest_traces(plain_run, "off")[0]
    played = play(trace, agent, steps=2, samples=1)
    wide = replace(
        played,
        values=replace(
            played.values,
            mean_weights=np.zeros((2, 40)),
            draws=np.zeros((2, 40, 5)),
            greedy_share=np.zeros((2, 40)),
        ),
    )
    caption = replace(_caption(trace, agent, frames, 1), actions=[f"action {a}" for a in range(40)])
    chosen = np.full(len(trace.actions), 39, np.uint8)
    panel = Panel(caption, wide, chosen, 100)
    assert panel.rows == [*range(17), 39]
    assert panel.draw(1, "game over").size == (480, panel.height)
