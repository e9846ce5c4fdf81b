from __future__ import annotations

import hashlib
import math
import os
from pathlib import Path

import pytest

from noisynet.runs.files import RunDamaged
from noisynet.runs.lock import RunLocked
from noisynet.runs.metrics import MetricsLog, NoMetrics, read_metrics


def test_rows_come_back_in_order_and_bytes_are_fixed(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with MetricsLog(path) as log:
        log.append({"frames": 4, "loss": 0.1, "kind": "learn"})
        log.append({"loss": math.nan, "frames": 8})
    expected = b'{"frames":4,"loss":0.1,"kind":"learn"}\n{"loss":"nan","frames":8}\n'
    assert path.read_bytes() == expected
    first, second = read_metrics(path)
    assert list(first) == ["frames", "loss", "kind"]
    assert math.isnan(second["loss"])


def test_a_row_is_in_the_file_when_append_returns(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(path)
    for frames in range(3):
        log.append({"frames": frames})
        assert read_metrics(path)[-1] == {"frames": frames}
    log.close()


def test_truncating_to_a_checkpoint_gives_the_file_of_an_uninterrupted_run(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole.jsonl", tmp_path / "broken.jsonl"
    rows = [{"frames": 4 * i, "loss": 1 / (i + 1)} for i in range(20)]
    with MetricsLog(whole) as log:
        for row in rows:
            log.append(row)

    offset, done = 0, 0
    for checkpoint, killed in [(3, 7), (9, 9), (12, 20)]:
        with MetricsLog(broken) as log:
            log.truncate(offset)
            for row in rows[done:checkpoint]:
                log.append(row)
            offset, done = log.offset(), checkpoint
            for row in rows[checkpoint:killed]:
                log.append(row)
        with broken.open("ab") as file:
            file.write(b'{"frames":99,"lo')  # the kill came in the middle of a row
    with MetricsLog(broken) as log:
        log.truncate(offset)
        for row in rows[done:]:
            log.append(row)
    assert broken.read_bytes() == whole.read_bytes()


def test_truncating_to_zero_empties_the_file(tmp_path: Path) -> None:
    with MetricsLog(tmp_path / "m.jsonl") as log:
        log.append({"a": 1})
        log.truncate(0)
        assert log.offset() == 0
        log.append({"a": 2})
    assert read_metrics(tmp_path / "m.jsonl") == [{"a": 2}]


def test_a_file_shorter_than_at_the_checkpoint_is_damaged(tmp_path: Path) -> None:
    with MetricsLog(tmp_path / "m.jsonl") as log:
        log.append({"a": 1})
        with pytest.raises(RunDamaged, match=r"has 8 bytes .* but 9 at the time"):
            log.truncate(9)
        with pytest.raises(RunDamaged, match=r"no row of .* ends at byte 3"):
            log.truncate(3)
        with pytest.raises(ValueError, match="negative"):
            log.truncate(-1)
        assert log.offset() == 8


@pytest.mark.parametrize("tail", [b'{"a":', b'{"a":2}', b"\0" * 200_000, b"\xff"])
def test_an_unfinished_last_line_is_ignored_and_dropped_on_opening(
    tmp_path: Path, tail: bytes
) -> None:
    path = tmp_path / "m.jsonl"
    path.write_bytes(b'{"a":1}\n' + tail)
    assert read_metrics(path) == [{"a": 1}]
    assert path.read_bytes().endswith(tail)  # reading changes nothing
    with MetricsLog(path) as log:
        log.append({"a": 3})
    assert path.read_bytes() == b'{"a":1}\n{"a":3}\n'


def test_an_invalid_line_before_the_last_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_bytes(b'{"a":1}\n{"a"\n{"a":3}\n')
    with pytest.raises(RunDamaged, match="line 2 of "):
        read_metrics(path)
    path.write_bytes(b"7\n")
    with pytest.raises(RunDamaged, match=r"line 1 .* is a int, not a row"):
        read_metrics(path)


def test_a_missing_file_has_no_rows(tmp_path: Path) -> None:
    assert read_metrics(tmp_path / "m.jsonl") == []
    MetricsLog(tmp_path / "m.jsonl").close()
    assert read_metrics(tmp_path / "m.jsonl") == []


def test_a_row_that_cannot_be_encoded_leaves_the_file_unchanged(tmp_path: Path) -> None:
    with MetricsLog(tmp_path / "m.jsonl") as log:
        log.append({"a": 1})
        with pytest.raises(TypeError, match="b: expected"):
            log.append({"b": object()})
        assert log.offset() == 8


def test_the_log_of_training_in_memory_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with NoMetrics() as log:
        log.append({"kind": "train"})
        assert log.offset() == 0
        log.truncate(0)
    assert list(tmp_path.iterdir()) == []


def test_the_digest_of_appended_rows_is_that_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    with MetricsLog(path) as log:
        for row in range(5):
            log.append({"row": row})
            expected = hashlib.sha256(path.read_bytes()).hexdigest()
            assert (log.digest().bytes, log.digest().sha256) == (path.stat().st_size, expected)
        third = 3 * len('{"row":0}\n')
        log.truncate(third)
        assert log.digest().sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
        log.append({"row": "x" * 3_000_000})  # longer than what is read at once
        last = log.digest()
    with path.open("ab") as file:
        file.write(b'{"unfinished"')
    with MetricsLog(path) as log:
        assert log.digest() == last


def test_changed_rows_do_not_match_the_checkpoint_and_nothing_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    with MetricsLog(path) as log:
        log.append({"row": 0})
        first = log.digest()
        log.append({"row": 1})
    path.write_bytes(changed := path.read_bytes().replace(b"0", b"7"))
    with MetricsLog(path) as log:
        with pytest.raises(RunDamaged, match=r"the first 10 bytes of .* rows were changed"):
            log.truncate(first.bytes, first.sha256)
        assert path.read_bytes() == changed
        log.truncate(first.bytes)  # checkpoints of earlier versions have no digest


def test_a_process_that_must_not_write_any_more_is_stopped_before_it_does(tmp_path: Path) -> None:
    def refuse() -> None:
        raise RunLocked("lost")

    with MetricsLog(tmp_path / "m.jsonl", refuse) as log:
        with pytest.raises(RunLocked):
            log.append({"row": 1})
        with pytest.raises(RunLocked):
            log.truncate(0)
    assert (tmp_path / "m.jsonl").read_bytes() == b""


def test_a_file_without_line_ends_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "m.jsonl").touch()
    os.truncate(tmp_path / "m.jsonl", 1 << 40)
    with pytest.raises(RunDamaged, match="no line end after byte 0"):
        MetricsLog(tmp_path / "m.jsonl")
