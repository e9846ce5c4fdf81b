"""`noisynet evaluate`, `watch`, `runs` and `show`."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from noisynet import load

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
        r"^noise (on|off) +score +(\S+) ± \S+ standard deviation, n = 10, best \S+$",
        ended.output,
        re.M,
    )
    assert [noise for noise, _ in shown] == ["on", "off"]
    # The training's own last evaluation played the same games with the same noise.
    assert re.findall(r"frame 200: score (\S+)", trained[1]) == [score for _, score in shown]
    assert {path: path.stat().st_mtime_ns for path in sorted(run.rglob("*"))} == before


def test_evaluate_plays_so_many_episodes(trained: tuple[Path, str]) -> None:
    ended = invoke("evaluate", str(trained[0]), "--episodes", "3")
    assert ended.exit_code == 0, ended.output
    assert len(re.findall(r"n = 3, best", ended.output)) == 2
    assert invoke("evaluate", str(trained[0]), "--episodes", "0").exit_code == 2


@pytest.mark.parametrize("command", ["evaluate", "watch", "show", "push"])
def test_a_folder_that_is_no_run_is_refused_with_the_run_below_it(
    command: str, trained: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "noisynet.loops", None)  # nothing slow is imported
    monkeypatch.setitem(sys.modules, "noisynet.watch", None)
    more = ("user/name",) if command == "push" else ()
    ended = invoke(command, str(tmp_path / "nothing"), *more)
    assert ended.exit_code == 1
    assert "expected a run folder with a config.json" in ended.output
    assert "see `noisynet runs`" in ended.output
    assert not (tmp_path / "nothing").exists()
    run = trained[0]
    assert f"did you mean {run}?" in invoke(command, str(run.parent), *more).output


def test_runs_are_a_table_with_their_states(trained: tuple[Path, str]) -> None:
    run = trained[0]
    ended = invoke("runs", "--out", str(run.parents[3]))
    assert ended.exit_code == 0
    header, row = ended.output.splitlines()
    assert header.split() == ["state", "frames", "of", "score", "updated", "folder"]
    assert re.fullmatch(rf"finished +200 +200 +-?\d+\.\d\d +\S+ +{run}", row)


def test_runs_as_json_hold_what_the_table_shows(trained: tuple[Path, str], tmp_path: Path) -> None:
    shutil.copytree(trained[0], tmp_path / "copy")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "config.json").write_text("{")
    copy, damaged = json.loads(invoke("runs", "--out", str(tmp_path), "--json").output)
    assert (copy["agent"], copy["state"], copy["frames"]) == ("noisynet-dqn", "finished", 200)
    assert (damaged["state"], damaged["frames"]) == ("unreadable", None)
    assert "is not JSON" in damaged["error"]
    assert json.loads(invoke("runs", "--out", str(tmp_path / "none"), "--json").output) == []


def test_no_runs_says_how_to_start_one(tmp_path: Path) -> None:
    ended = invoke("runs", "--out", str(tmp_path))
    assert ended.exit_code == 0
    assert "noisynet train noisynet-dqn minatar/breakout" in ended.output


def test_show_has_progress_evaluations_and_the_settings_of_the_run(
    trained: tuple[Path, str],
) -> None:
    ended = invoke("show", str(trained[0]))
    assert ended.exit_code == 0, ended.output
    lines = [line.split() for line in ended.output.splitlines()]
    assert ["agent", "noisynet-dqn"] in lines
    assert ["state", "finished"] in lines
    assert [line[:2] for line in lines if line[1:2] in (["on"], ["off"])] == [
        *(["100", "on"], ["100", "off"], ["200", "on"], ["200", "off"])
    ]
    assert ["network.hidden", "[16]", "[64,", "64]"] in lines
    assert not any(line[:1] == ["learning.discount"] for line in lines)  # as in the preset
    assert re.search(r"^on disk +\d+\.\d MB$", ended.output, re.M)
    assert re.search(
        r"^made by +python 3\.\S+, noisynet \S+, torch .*; commit \S+$", ended.output, re.M
    )
    assert re.search(r"^ +device cpu of .*, \d+ cores, ", ended.output, re.M)


def test_show_of_no_run_names_the_command_that_lists_them(tmp_path: Path) -> None:
    ended = invoke("show", str(tmp_path))
    assert ended.exit_code == 1
    assert "see `noisynet runs`" in ended.output


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "game.avi"], "the ending of --output expected .mp4 or .gif, got '.avi'"),
        (["--play", "--episode", "2"], "choose one of them"),
        (["--episode", "worst"], "--episode expected best, last or a number, got 'worst'"),
    ],
)
def test_watch_refuses_wrong_options_before_it_reads_the_run(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    ended = invoke("watch", str(tmp_path / "nowhere"), *arguments)
    assert ended.exit_code == 2
    assert message in ended.output


def test_watch_plays_a_new_episode_and_writes_a_gif(
    trained: tuple[Path, str], tmp_path: Path
) -> None:
    video = tmp_path / "game.gif"
    ended = invoke("watch", str(trained[0]), "--play", "-o", str(video), "--max-steps", "3")
    assert ended.exit_code == 0, ended.output
    assert "4 pictures" in ended.output
    assert video.read_bytes().startswith(b"GIF89a")


def test_watch_plays_an_episode_of_a_saved_agent(trained: tuple[Path, str], tmp_path: Path) -> None:
    saved, video = tmp_path / "agent.safetensors", tmp_path / "game.gif"
    load(trained[0]).save(saved)
    ended = invoke("watch", str(saved), "-o", str(video), "--noise", "off", "--max-steps", "3")
    assert ended.exit_code == 0, ended.output
    assert f"MB: {video}" in ended.output.replace("\n", "")
    assert video.read_bytes().startswith(b"GIF89a")
    ended = invoke("watch", str(saved), "--episode", "2")
    assert ended.exit_code == 2
    assert "a saved agent has no traced episodes" in ended.output


def test_watch_of_a_file_that_is_no_agent_says_what_it_expected(tmp_path: Path) -> None:
    other = tmp_path / "notes.safetensors"
    other.write_text("not weights")
    ended = invoke("watch", str(other))
    assert ended.exit_code == 1
    assert "expected a file that Agent.save wrote" in ended.output


def test_show_verifies_every_file_of_a_run(trained: tuple[Path, str], tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained[0], run)
    ended = invoke("show", str(run), "--verify")
    assert ended.exit_code == 0, ended.output
    assert re.fullmatch(rf"\d+ files of {run} are intact\n", ended.output)
    trace = max((run / "traces").iterdir())
    trace.write_bytes(trace.read_bytes()[:-1])
    ended = invoke("show", str(run), "--verify")
    assert ended.exit_code == 1
    assert f"damaged: {trace} is not an intact file of traces" in ended.output
    assert re.search(rf"noisynet: 1 of \d+ files of {run} are damaged", ended.output)
