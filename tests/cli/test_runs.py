"""`noisynet evaluate`, `watch` and `list`."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from .calling import invoke


def test_evaluate_shows_noise_on_and_off_and_leaves_the_run_alone(
    trained: tuple[Path, str],
) -> None:
    run = trained[0]
    before = {path: path.stat().st_mtime_ns for path in sorted(run.rglob("*"))}
    ended = invoke("evaluate", str(run), "--frames", "40")
    assert ended.exit_code == 0, ended.output
    assert "noisynet-dqn on deep_sea/4 after 200 frames: device cpu" in ended.output
    shown = re.findall(
        r"^noise (on|off) +score +(\S+) +best +\S+ +episodes 10$", ended.output, re.M
    )
    assert [noise for noise, _ in shown] == ["on", "off"]
    # The training's own last evaluation played the same games with the same noise.
    assert re.findall(r"frame 200: score (\S+)", trained[1]) == [score for _, score in shown]
    assert {path: path.stat().st_mtime_ns for path in sorted(run.rglob("*"))} == before


def test_evaluate_of_no_run_says_what_was_expected(tmp_path: Path) -> None:
    ended = invoke("evaluate", str(tmp_path / "nothing"))
    assert ended.exit_code == 1
    assert "expected a run folder with a config.json" in ended.output
    assert not (tmp_path / "nothing").exists()


def test_list_shows_every_run_with_its_state(trained: tuple[Path, str]) -> None:
    run = trained[0]
    ended = invoke("list", "--out", str(run.parents[3]))
    assert ended.exit_code == 0
    assert re.fullmatch(rf"finished +200 of 200 frames +score \S+ +{run}\n", ended.output)


def test_list_without_runs_says_how_to_start_one(tmp_path: Path) -> None:
    ended = invoke("list", "--out", str(tmp_path))
    assert ended.exit_code == 0
    assert "noisynet train noisynet-dqn minatar/breakout" in ended.output


def test_watch_says_what_the_video_does_not_show(trained: tuple[Path, str], tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained[0], run)
    for trace in (run / "traces").glob("*-on.safetensors"):
        trace.unlink()
    video = tmp_path / "game.mp4"
    ended = invoke("watch", str(run), "-o", str(video), "--noise", "on")
    assert ended.exit_code == 0, ended.output
    assert "noise off" in ended.output
    assert video.stat().st_size > 0
