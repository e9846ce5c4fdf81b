"""Single bits flipped, and files truncated, in every file of a real run: nothing is silent."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from loops.conftest import remains
from loops.short_loops import configure
from loops.test_run import Messages
from noisynet.config import Config
from noisynet.loops import open_run_folder, train
from noisynet.loops.verify import verify_run
from noisynet.reports.load_runs import read_run
from noisynet.runs import RunError

_STEPS: Final = 150  # where the run is stopped; its replay has wrapped several times by then


def _config() -> Config:
    return configure(
        *("frames=200", "checkpoint_period_frames=40", "replay.capacity_steps=30"),
        *("evaluation.period_frames=60", "evaluation.frames=16", "log_period_steps=20"),
        *("num_envs=2", "replay.kind=prioritised"),
    )


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was interrupted, with two checkpoints, traces and a replay."""
    path, stops = tmp_path_factory.mktemp("stopped") / "run", iter([False] * _STEPS + [True] * 9)
    with (folder := open_run_folder(path, _config())).lock():
        assert not train(_config(), folder, stop=lambda: next(stops)).finished
    assert verify_run(path)[1] == []
    return path


@pytest.fixture(scope="module")
def ended(stopped: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The digests of the run when it is continued without any damage."""
    return _continued(Path(shutil.copytree(stopped, tmp_path_factory.mktemp("ended") / "run")))


def _continued(path: Path, said: Messages | None = None) -> dict[str, str]:
    with (folder := open_run_folder(path, _config())).lock():
        train(_config(), folder, observers=[said or Messages()], keep_replay=True)
    return remains(path)


def _flips(run: Path, count: int, seed: int) -> list[tuple[str, int]]:
    """Bits to flip: as many in small files as in large ones."""
    random = np.random.default_rng(seed)
    files = sorted(p for p in run.rglob("*") if p.is_file() and p.stat().st_size)
    chosen = [files[number % len(files)] for number in range(count)]
    return [
        (str(path.relative_to(run)), int(random.integers(8 * path.stat().st_size)))
        for path in chosen
    ]


def _flip(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def _unnoticed(stopped: Path, run: Path, flips: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """The flips, each alone, that `noisynet show --verify` does not notice."""
    shutil.copytree(stopped, run)
    missed = []
    for name, bit in flips:
        _flip(run / name, bit)
        if not verify_run(run)[1]:
            missed.append((name, bit))
        _flip(run / name, bit)
    assert verify_run(run)[1] == []
    return missed


def _check_flips(stopped: Path, ended: dict[str, str], scratch: Path, count: int) -> None:
    flips = _flips(stopped, count, seed=count)
    missed = _unnoticed(stopped, scratch / "run", flips)
    kinds = Counter(Path(name).parts[0] for name, _ in missed)
    # Slots of the replay outside its window, and spellings of JSON with the same value.
    assert set(kinds) <= {"replay", "config.json", "status.json"}, kinds
    assert len(missed) < len(flips) / 3
    # Harmless: with all of them at once, the run is the same.
    before = read_run(scratch / "run")
    for name, bit in missed:
        _flip(scratch / "run" / name, bit)
    after = read_run(scratch / "run")
    assert (after.settings, after.made_by) == (before.settings, before.made_by)
    assert _continued(scratch / "run") == ended


def test_flipped_bits_are_noticed_or_change_nothing(
    stopped: Path, ended: dict[str, str], tmp_path: Path
) -> None:
    _check_flips(stopped, ended, tmp_path, 120)


@pytest.mark.slow
def test_thousands_of_flipped_bits_are_noticed_or_change_nothing(
    stopped: Path, ended: dict[str, str], tmp_path: Path
) -> None:
    _check_flips(stopped, ended, tmp_path, 3000)


def _resumes_as_told(stopped: Path, ended: dict[str, str], run: Path, name: str, bit: int) -> str:
    """Continue a run with a flipped bit; return how it was noticed, or "same"."""
    shutil.copytree(stopped, run)
    _flip(run / name, bit)
    said = Messages()
    try:
        same = _continued(run, said) == ended
    except RunError as error:
        return "refused" if str(run) in str(error) else f"refused without a path: {error}"
    told = [text for text in said.texts if "damaged" in text or "trying" in text]
    assert same or told, (name, bit)
    return "said" if told else "same"


def _check_resumed(stopped: Path, ended: dict[str, str], scratch: Path, count: int) -> Counter[str]:
    read = ("checkpoints", "replay", "metrics.jsonl", "config.json")
    flips = [flip for flip in _flips(stopped, 9 * count, 7) if flip[0].startswith(read)][:count]
    return Counter(
        _resumes_as_told(stopped, ended, scratch / str(number), *flip)
        for number, flip in enumerate(flips)
    )


def test_a_run_with_a_flipped_bit_is_refused_says_so_or_ends_the_same(
    stopped: Path, ended: dict[str, str], tmp_path: Path
) -> None:
    counts = _check_resumed(stopped, ended, tmp_path, 12)
    assert set(counts) <= {"refused", "said", "same"}
    assert counts["same"] < 12


@pytest.mark.slow
def test_many_runs_with_a_flipped_bit_are_refused_say_so_or_end_the_same(
    stopped: Path, ended: dict[str, str], tmp_path: Path
) -> None:
    assert set(_check_resumed(stopped, ended, tmp_path, 200)) == {"refused", "said", "same"}


def test_truncated_files_are_noticed(stopped: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(stopped, tmp_path / "run"))
    random = np.random.default_rng(0)
    for path in sorted(p for p in run.rglob("*") if p.is_file() and p.stat().st_size):
        data = path.read_bytes()
        for length in {0, len(data) // 2, len(data) - 2, int(random.integers(len(data)))}:
            path.write_bytes(data[: max(0, length)])
            assert verify_run(run)[1], (path, length)
        path.write_bytes(data)
    assert verify_run(run)[1] == []


def test_a_missing_file_is_noticed(stopped: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(stopped, tmp_path / "run"))
    for path in sorted(p for p in run.rglob("*") if p.is_file() and p.stat().st_size):
        data = path.read_bytes()
        path.unlink()
        # A killed run may have no status yet, and one checkpoint is enough.
        if path.name != "status.json" and path.parent.name != "checkpoints":
            assert verify_run(run)[1], path
        path.write_bytes(data)
