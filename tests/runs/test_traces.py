from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from noisynet.runs.files import RunDamaged, StorageError
from noisynet.runs.reading import Noise
from noisynet.runs.sealed import seal, unseal
from noisynet.runs.traces import Trace, list_traces, read_traces, write_traces


def _trace(episode: int, length: int, noise: Noise = "on", score: float = 1.5) -> Trace:
    actions = np.random.default_rng(episode).integers(0, 256, length, dtype=np.uint8)
    options = {"lives": 5, "sticky": 0.25}
    return Trace("atari/pong", 2**70 + episode, actions, score, 4000, episode, noise, options)


def _same(a: Trace, b: Trace) -> bool:
    fields = [f.name for f in dataclasses.fields(Trace) if f.name != "actions"]
    equal = all(getattr(a, name) == getattr(b, name) for name in fields)
    return equal and a.actions.dtype == b.actions.dtype and np.array_equal(a.actions, b.actions)


def test_round_trip(tmp_path: Path) -> None:
    traces = [_trace(0, 27_000), _trace(1, 0), _trace(2, 1, score=float("-inf"))]
    path, _ = write_traces(tmp_path / "traces", 4000, traces, noise="on")
    assert path.name == "000000004000-on.safetensors"
    read = read_traces(path)
    assert len(read) == 3
    assert all(_same(a, b) for a, b in zip(traces, read, strict=True))
    assert path.stat().st_size < 27_001 + 1000  # one byte per action


def test_more_actions_than_a_byte_can_number_take_two_bytes(tmp_path: Path) -> None:
    actions = np.array([0, 255, 256, 40_000], np.uint16)
    wide = dataclasses.replace(_trace(0, 1), actions=actions)
    (read,) = read_traces(write_traces(tmp_path, 4000, [wide], noise="on")[0])
    assert _same(read, wide)


def test_an_unfinished_episode_is_marked(tmp_path: Path) -> None:
    traces = [_trace(0, 5), dataclasses.replace(_trace(1, 3), finished=False)]
    read = read_traces(write_traces(tmp_path, 4000, traces, noise="on")[0])
    assert [trace.finished for trace in read] == [True, False]


def test_files_of_another_format_are_rejected(tmp_path: Path) -> None:
    path, _ = write_traces(tmp_path, 0, [], noise="off")
    header = unseal(path.read_bytes()) | {"format": 4}
    path.write_bytes(seal(save, {"actions": np.empty(0, np.uint8)}, header))
    with pytest.raises(RunDamaged, match="format 4; this version reads format 3"):
        read_traces(path)


def test_an_evaluation_without_an_episode(tmp_path: Path) -> None:
    assert read_traces(write_traces(tmp_path, 0, [], noise="off")[0]) == []


def test_writing_again_gives_the_same_bytes(tmp_path: Path) -> None:
    path, _ = write_traces(tmp_path, 4000, [_trace(0, 9)], noise="on")
    before = path.read_bytes()
    path.unlink()
    assert write_traces(tmp_path, 4000, [_trace(0, 9)], noise="on")[0].read_bytes() == before


def test_listing_is_by_evaluation_and_ignores_other_files(tmp_path: Path) -> None:
    assert list_traces(tmp_path / "missing") == []
    for evaluation in (10**13, 4000, 0):
        for noise in ("on", "off"):
            write_traces(tmp_path, evaluation, [], noise=noise)
    (tmp_path / ".000000000001-on.safetensors.tmp-9").write_bytes(b"")
    (tmp_path / "notes.txt").write_bytes(b"")
    found = [(file.evaluation, file.noise) for file in list_traces(tmp_path)]
    expected = [(e, noise) for e in (0, 4000, 10**13) for noise in ("off", "on")]
    assert found == expected
    assert all(read_traces(file.path) == [] for file in list_traces(tmp_path))


def test_a_file_holds_one_evaluation(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"evaluation 4000 with noise off, got .* noise on"):
        write_traces(tmp_path, 4000, [_trace(0, 3)], noise="off")
    with pytest.raises(ValueError, match="'on' or 'off'"):
        write_traces(tmp_path, 4000, [], noise="maybe")  # type: ignore[arg-type]


def test_actions_must_fit_a_byte() -> None:
    with pytest.raises(ValueError, match=r"got int64 of shape \(2,\)"):
        Trace("gym/x", 0, np.array([1, 2]), 0.0, 0, 0, "on")


def test_every_kind_of_damage_is_detected(tmp_path: Path) -> None:
    traces = [_trace(0, 40), _trace(1, 7)]
    path, _ = write_traces(tmp_path, 4000, traces, noise="on")
    whole = path.read_bytes()
    stream = random.Random(5)
    damaged = [b"", whole[:-1], whole[:8], whole + b"\0"]
    for position in range(len(whole)):
        flipped = bytearray(whole)
        flipped[position] ^= 1 << stream.randrange(8)
        damaged.append(bytes(flipped))
    for data in damaged:
        path.write_bytes(data)
        with pytest.raises(RunDamaged, match="not an intact file of traces"):
            read_traces(path)


def test_a_missing_file_is_a_storage_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="No such file"):
        read_traces(tmp_path / "none.safetensors")
