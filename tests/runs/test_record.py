"""One run as reports, lists and the dashboard read it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from noisynet.runs import MetricsLog, RunFolder, RunRecord, Unreadable, read_run

CONFIG: dict[str, Any] = {
    "agent": "dqn",
    "environment": "minatar/breakout",
    "seed": 3,
    "frames": 100,
    "evaluation": {"period_frames": 50, "frames": 10},
    "network": {"hidden": [8]},
}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A run with one evaluation, whose status has the digests of its logs."""
    folder = RunFolder.create_or_open(tmp_path / "run", CONFIG, must_match=["agent"])
    with MetricsLog(folder.metrics_path) as log:
        log.append({"kind": "train", "frames": 40, "loss": 0.5, "sigma": {}})
        log.append({"kind": "evaluation", "frames": 50, "noise": "off", "score": 2.0})
        folder.write_status(
            "running", frames=50, score=2.0, files={"metrics.jsonl": dict(log.digest())}
        )
    return folder


def test_a_record_has_configuration_status_and_rows(folder: RunFolder) -> None:
    record = read_run(folder.path, points=10)
    assert isinstance(record, RunRecord)
    assert (record.config.agent, record.config.evaluation.period_frames) == ("dqn", 50)
    assert record.settings["network"] == {"hidden": [8]}
    assert record.status is not None
    assert (record.status.frames, record.status.score) == (50, 2.0)
    assert [row.score for row in record.evaluations] == [2.0]
    assert [row.model_extra for row in record.training] == [{"loss": 0.5}]
    assert record.timing == []
    without = read_run(folder.path)
    assert isinstance(without, RunRecord)
    assert without.evaluations == []


def test_a_running_run_has_an_owner_and_a_killed_one_has_not(folder: RunFolder) -> None:
    with folder.lock():
        record = read_run(folder.path)
        assert isinstance(record, RunRecord)
        assert record.owner is not None
        assert (record.state, record.owner.pid) == ("running", os.getpid())
    record = read_run(folder.path)
    assert isinstance(record, RunRecord)
    assert (record.state, record.owner) == ("killed", None)
    folder.status_path.unlink()
    record = read_run(folder.path)
    assert isinstance(record, RunRecord)
    assert (record.state, record.status) == ("new", None)


@pytest.mark.parametrize("name", ["config.json", "status.json", "metrics.jsonl"])
def test_one_changed_byte_makes_a_run_unreadable(folder: RunFolder, name: str) -> None:
    path = folder.path / name
    data = path.read_bytes()
    assert b"50" in data
    path.write_bytes(data.replace(b"50", b"51", 1))
    found = read_run(folder.path, points=10)
    assert isinstance(found, Unreadable)
    assert str(path) in found.reason


def test_rows_that_came_after_the_status_are_read(folder: RunFolder) -> None:
    with MetricsLog(folder.metrics_path) as log:
        log.append({"kind": "evaluation", "frames": 100, "noise": "off", "score": 3.0})
    record = read_run(folder.path, points=10)
    assert isinstance(record, RunRecord)
    assert [row.score for row in record.evaluations] == [2.0, 3.0]


def test_a_folder_without_configuration_is_unreadable(tmp_path: Path) -> None:
    found = read_run(tmp_path / "missing")
    assert isinstance(found, Unreadable)
    assert "config.json" in found.reason
