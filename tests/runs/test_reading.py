"""What is read back from a run folder: schemas, bounds and digests."""

from __future__ import annotations

import hashlib
import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from noisynet.runs.files import RunDamaged
from noisynet.runs.metrics import MetricsLog
from noisynet.runs.reading import (
    FileDigest,
    Owner,
    StoredStatus,
    encode_object,
    read_lines,
    read_object,
    read_rows,
    read_timing,
    validate,
)


def test_an_object_comes_back_and_has_its_sha256(tmp_path: Path) -> None:
    value = {"b": [1, 2.5, None], "a": {"limit": math.inf}, "text": "é"}
    (tmp_path / "o.json").write_bytes(encode_object(value))
    assert read_object(tmp_path / "o.json") == value
    assert list(json.loads((tmp_path / "o.json").read_text())) == ["b", "a", "text", "sha256"]


def test_what_could_not_be_read_again_is_not_stored() -> None:
    for value in ({"path": "\udcff"}, {"x" * 201: 1}, {"large": 10**40}):
        with pytest.raises(RunDamaged, match="what is to be stored"):
            encode_object(value)


def test_a_changed_object_is_damaged_unless_its_sha256_was_removed(tmp_path: Path) -> None:
    path = tmp_path / "o.json"
    path.write_bytes(encode_object({"frames": 100}).replace(b"100", b"101"))
    with pytest.raises(RunDamaged, match=r"o\.json does not match its SHA-256: it was changed"):
        read_object(path)
    stored = json.loads(path.read_text())
    del stored["sha256"]
    path.write_text(json.dumps(stored))  # also formatted in another way
    assert read_object(path) == {"frames": 101}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "a JSON list, not an object"),
        ('{"a":' * 20 + "1" + "}" * 20, "more than 16 levels"),
        (json.dumps({"a": "x" * 10_001}), "a text of more than 10,000"),
        (json.dumps({"x" * 201: 1}), "a name of more than 200"),
        ('{"a":1' + "0" * 31 + "}", "an integer that is not within"),
        ('{"a":NaN}', "has the number nan"),
        ('{"a":1e400}', "has the number inf"),
        (json.dumps({"a": ["x" * 9000] * 40}), "expected at most 262,144"),
    ],
)
def test_what_no_run_writes_is_damaged(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "o.json").write_text(text)
    with pytest.raises(RunDamaged, match=message):
        read_object(tmp_path / "o.json")


def test_the_errors_of_a_schema_name_file_and_fields(tmp_path: Path) -> None:
    with pytest.raises(RunDamaged, match=r"^here: pid: Input .* or equal to 1; since: Field req"):
        validate(Owner, {"pid": -1, "host": "h"}, "here")
    # No setting has a digit in its name: "sha256" with a flipped bit is not taken for one.
    with pytest.raises(RunDamaged, match="String should match pattern"):
        validate(StoredStatus, {"state": "running", "rha256": "0"}, "here")


def test_lines_are_complete_and_bounded(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    assert list(read_lines(path)) == []
    path.write_bytes(b"a\nb\nunfinished")
    assert list(read_lines(path)) == [b"a", b"b"]
    path.write_bytes(b"a\n" + b"x" * (1 << 20) + b"x\n")
    with pytest.raises(RunDamaged, match="a line of more than 1,048,576 bytes"):
        list(read_lines(path))
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(RunDamaged, match=r"expected a regular file at .*, got a FIFO"):
        list(read_lines(path))


@pytest.mark.parametrize("data", [b"abc\nXef\nmore\n", b"abc\n", b""])
def test_a_log_that_does_not_begin_as_it_did_is_damaged(tmp_path: Path, data: bytes) -> None:
    path, begun = tmp_path / "m.jsonl", b"abc\ndef\n"
    expected = FileDigest(bytes=len(begun), sha256=hashlib.sha256(begun).hexdigest())
    path.write_bytes(begun + b"more\n")
    assert list(read_lines(path, expected)) == [b"abc", b"def", b"more"]
    path.write_bytes(data)
    with pytest.raises(RunDamaged, match="expected the 8 bytes that the run had written"):
        list(read_lines(path, expected))


def _row(**fields: Any) -> dict[str, Any]:
    return {"kind": "evaluation", "frames": 8, "noise": "on", "score": 1.0, **fields}


def test_training_rows_are_sampled_at_points_of_the_budget(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with MetricsLog(path) as log:
        for frames in (0, 4, 5, 999, 1000):
            log.append({"kind": "train", "frames": frames, "sigma": {"q": float(frames)}})
        log.append({"kind": "episode", "frames": 3})
        log.append(_row(score=math.nan))
    (evaluation,), training = read_rows(path, 1000, 200)
    assert math.isnan(evaluation.score)
    # 5 frames for each point; the last row of a point counts.
    assert [row.frames for row in training] == [4, 5, 1000]
    assert training[1].sigma == {"q": 5.0}
    assert read_rows(path, 1000, 0)[1] == []


@pytest.mark.parametrize(
    "fields", [{"score": "1O"}, {"score": 1e308}, {"noise": "maybe"}, {"frames": -1}]
)
def test_a_row_that_does_not_fit_is_damage_with_its_number(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    path = tmp_path / "metrics.jsonl"
    with MetricsLog(path) as log:
        log.append(_row())
        log.append(_row(**fields))
    with pytest.raises(RunDamaged, match=rf"line 2 of {path} is not a row: {next(iter(fields))}: "):
        read_rows(path, 10, 0)


def test_timing_has_durations_that_can_be_added(tmp_path: Path) -> None:
    path = tmp_path / "timing.jsonl"
    assert read_timing(path) == []
    with MetricsLog(path) as log:
        log.append({"kind": "train", "frames": 4, "seconds": 2.0, "steps_per_second": 5.0})
        log.append({"kind": "evaluation", "frames": 4, "seconds": 1})
    assert [(row.kind, row.seconds) for row in read_timing(path)] == [
        ("train", 2.0),
        ("evaluation", 1.0),
    ]
    with MetricsLog(path) as log:
        log.append({"kind": "train", "frames": 4, "seconds": -1.0})
    with pytest.raises(RunDamaged, match=r"line 3 .* seconds"):
        read_timing(path)
