"""Rendering an episode as a video."""

from __future__ import annotations

import hashlib
import shutil
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from noisynet.loops import load_agent
from noisynet.runs import RunError, StorageError, list_traces, write_traces
from noisynet.watch import ReplayMismatch, render_episode
from noisynet.watch.episode import replay, screens
from noisynet.watch.panel import CHOSEN, OTHER
from noisynet.watch.video import _game

from .conftest import newest_traces, trained

av = pytest.importorskip("av")


def decoded(path: Path) -> tuple[list[NDArray[np.uint8]], Any]:
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(stream)]
        facts = (stream.codec_context.name, stream.codec_context.pix_fmt, stream.average_rate)
    return frames, facts


def hashes(folder: Path) -> dict[str, tuple[str, int]]:
    return {
        str(path.relative_to(folder)): (
            hashlib.sha256(path.read_bytes()).hexdigest(),
            path.stat().st_mtime_ns,
        )
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_an_episode_is_rendered_as_mp4_and_the_run_is_not_changed(
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
    assert len(frames) == rendered.frames == 4 + 3  # the steps, and one second of the end
    assert rendered.seconds == pytest.approx(7 / 3)
    # 64 pixels of deep_sea/4, ten times, and the panel.
    assert {frame.shape for frame in frames} == {(640, 640 + 480, 3)}
    assert rendered.trace.episode == 2  # the last complete one
    assert rendered.notes == ()
    assert rendered.path == output


def test_the_video_shows_the_game_in_its_colours(noisy_run: Path, tmp_path: Path) -> None:
    rendered = render_episode(noisy_run, tmp_path / "game.mp4", samples=2)
    agent, _ = load_agent(noisy_run)
    episode = replay(rendered.trace, agent, steps=4, samples=2)
    expected = list(screens(rendered.trace, episode, 4))
    frames, _ = decoded(rendered.path)
    assert len(expected) == 5
    for frame, screen in zip(frames, expected, strict=False):
        shown = frame[80:640:160, 80:640:160].astype(int)  # the middle of each cell
        assert np.abs(shown - screen[8:64:16, 8:64:16]).max() <= 12  # chroma is halved, then coded


def test_rendering_is_deterministic(noisy_run: Path, tmp_path: Path) -> None:
    for name in ("a.mp4", "b.mp4"):
        render_episode(noisy_run, tmp_path / name, samples=4)
    a, b = (decoded(tmp_path / name)[0] for name in ("a.mp4", "b.mp4"))
    assert all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def test_an_agent_without_noise_falls_back_to_noise_off(plain_run: Path, tmp_path: Path) -> None:
    rendered = render_episode(plain_run, tmp_path / "game.mp4", noise="on")
    assert rendered.trace.noise == "off"
    assert "no traced evaluation with noise on" in rendered.notes[0]
    frames, facts = decoded(rendered.path)
    assert facts[2] == 3
    assert len(frames) == 4 + 3
    assert {frame.shape for frame in frames} == {(640, 640 + 480, 3)}


def test_an_agent_that_learns_distributions_has_a_second_panel(
    distributional_run: Path, tmp_path: Path
) -> None:
    rendered = render_episode(distributional_run, tmp_path / "game.mp4", samples=4)
    frames, _ = decoded(rendered.path)
    assert {frame.shape for frame in frames} == {(640, 640 + 480 + 440, 3)}
    assert len(frames) == rendered.frames == 4 + 3
    right = frames[0][:, 640 + 480 :].astype(int)
    for colour in (OTHER, CHOSEN):  # the columns of both actions
        assert (np.abs(right - colour).max(axis=2) < 25).sum() > 500


def test_steps_can_be_limited(plain_run: Path, tmp_path: Path) -> None:
    rendered = render_episode(plain_run, tmp_path / "game.mp4", noise="off", max_steps=2)
    assert len(decoded(rendered.path)[0]) == rendered.frames == 2 + 3


@pytest.mark.parametrize("ending", ["mp4", "gif"])
def test_without_a_traced_episode_a_new_one_is_played(
    noisy_run: Path, tmp_path: Path, ending: str
) -> None:
    run = tmp_path / "run"
    shutil.copytree(noisy_run, run)
    shutil.rmtree(run / "traces")
    rendered = render_episode(run, tmp_path / f"game.{ending}", samples=2)
    assert rendered.trace.evaluation == rendered.weights_frames == 60
    assert rendered.notes == (
        "the run has no evaluation yet: the newest weights play a new episode",
    )
    assert not (run / "traces").exists()
    with pytest.raises(RunError, match="expected traced evaluation episodes"):
        render_episode(run, tmp_path / "game.mp4", episode=0)


def test_a_new_episode_is_played_where_others_were_traced(noisy_run: Path, tmp_path: Path) -> None:
    rendered = render_episode(noisy_run, tmp_path / "game.mp4", episode="new", samples=2)
    assert (rendered.trace.evaluation, rendered.notes) == (60, ())
    assert len(decoded(rendered.path)[0]) == 4 + 3


def test_a_gif_has_a_picture_of_each_step_and_one_of_the_end(
    noisy_run: Path, tmp_path: Path
) -> None:
    rendered = render_episode(noisy_run, tmp_path / "game.gif", samples=2)
    with Image.open(rendered.path) as gif:
        assert (gif.format, gif.size, gif.n_frames) == ("GIF", (640 + 480, 640), 4 + 1)  # type: ignore[attr-defined]
        durations = []
        for number in range(5):
            gif.seek(number)
            durations.append(gif.info["duration"])
        assert gif.info["loop"] == 0
    assert durations == [330, 330, 330, 330, 1000]  # three steps a second
    assert rendered.frames == 5
    assert rendered.seconds == pytest.approx(4 / 3 + 1)


@pytest.mark.parametrize(
    ("screen", "size"),
    [
        ((160, 160), (640, 640)),  # MinAtar
        ((210, 160), (480, 630)),  # Atari
        ((400, 600), (600, 400)),  # CartPole: twice would be too wide
        ((500, 2000), (800, 200)),
    ],
)
def test_the_width_of_the_game_is_bounded(screen: tuple[int, int], size: tuple[int, int]) -> None:
    assert _game(np.zeros((*screen, 3), np.uint8)).size == size


def test_atari_is_shown_in_colour_at_three_times_its_size(tmp_path: Path) -> None:
    settings = ["evaluation.period_frames=120", "evaluation.frames=80"]
    run = trained(tmp_path / "run", "noisynet-dqn", "atari/pong", 200, settings)
    for file in list_traces(run / "traces"):
        if file.evaluation == 200:  # an older episode is shown with the newest weights
            file.path.unlink()
    rendered = render_episode(run, tmp_path / "game.mp4", noise="off", samples=2)
    frames, facts = decoded(rendered.path)
    assert facts[2] == 15
    assert len(frames) == 20 + 15
    assert {frame.shape for frame in frames} == {(630, 480 + 480, 3)}
    assert np.abs(frames[-1][300, 200].astype(int) - (144, 72, 17)).max() <= 12  # Pong's brown
    assert rendered.weights_frames == 200
    assert rendered.notes[0] == "this episode was stopped before its end"
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


def test_a_truncated_episode_can_be_rendered(noisy_run: Path, tmp_path: Path) -> None:
    *completed, truncated = newest_traces(
        noisy_run, "on"
    )  # 15 frames: 3 episodes of 4, and 3 steps
    assert [trace.finished for trace in completed] == [True, True, True]
    assert (truncated.finished, truncated.episode, len(truncated.actions)) == (False, 3, 3)
    rendered = render_episode(noisy_run, tmp_path / "game.mp4", episode=3, samples=2)
    assert rendered.trace.episode == 3
    assert rendered.notes == ("this episode was stopped before its end",)
    assert len(decoded(rendered.path)[0]) == 3 + 3


def altered_copy(run: Path, tmp_path: Path, **changes: Any) -> Path:
    """A copy of a run whose only trace is changed, with a valid checksum."""
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    trace = replace(newest_traces(run, "on")[0], **changes)
    for file in list_traces(copy / "traces"):
        file.path.unlink()
    write_traces(copy / "traces", trace.evaluation, [trace], noise="on")
    (copy / "metrics.jsonl").unlink()  # has the SHA-256 of the traces that were played
    return copy


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"score": 12.0}, "replayed, expected the 12 of its trace"),
        ({"actions": np.zeros(6, np.uint8)}, "ended after 4 actions .* expected the 6"),
        ({"environment": "deep_sea/5"}, "the trace belongs to another run"),
    ],
)
def test_an_episode_that_does_not_replay_is_refused_and_leaves_no_video(
    noisy_run: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    run = altered_copy(noisy_run, tmp_path, **changes)
    (tmp_path / "out").mkdir()
    with pytest.raises(ReplayMismatch, match=message):
        render_episode(run, tmp_path / "out" / "game.mp4", max_steps=1, samples=2)
    assert not list((tmp_path / "out").iterdir())


def test_a_failed_rendering_keeps_the_old_video(
    noisy_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "game.mp4"
    output.write_bytes(b"old")

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("noisynet.watch.encode.write_mp4", full_disk)
    with pytest.raises(StorageError, match=r"cannot write .*game\.mp4"):
        render_episode(noisy_run, output, samples=2)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"old"]


def test_missing_runs_and_invalid_arguments_are_refused(noisy_run: Path, tmp_path: Path) -> None:
    output = tmp_path / "game.mp4"
    with pytest.raises(RunError, match="expected a run folder with a config"):
        render_episode(tmp_path / "nowhere", output)
    with pytest.raises(ValueError, match=r"ends in \.mp4 or \.gif, got .*game\.avi"):
        render_episode(tmp_path / "nowhere", tmp_path / "game.avi")  # before the run is read
    with pytest.raises(ValueError, match="at least 1 noise sample, got 0"):
        render_episode(noisy_run, output, samples=0)
    with pytest.raises(ValueError, match="max_steps of at least 1, got 0"):
        render_episode(noisy_run, output, max_steps=0)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("module", ["av", "PIL.Image"])
def test_a_missing_package_is_an_error_with_its_install_command(
    noisy_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=r'pip install "noisynet\[video\]"'):
        render_episode(noisy_run, tmp_path / "game.mp4")
