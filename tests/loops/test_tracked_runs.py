"""The pages of runs that are killed and resumed, in the trackers' local stores."""

from __future__ import annotations

import json
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from loops.conftest import ACT, EVALUATE, Bench, WarmProcess
from noisynet.config import load_config
from noisynet.integrations.wandb import read_log, stored_steps
from noisynet.loops.hooks import logged_numbers
from noisynet.runs import RunFolder


class TrackedRuns:
    """Short runs whose trackers write to local stores below `stores`."""

    def __init__(self, bench: Bench, stores: Path) -> None:
        self.bench, self.stores = bench, stores

    def kill_and_resume(self, tracker: str, out: Path) -> RunFolder:
        """Train with `--track tracker:kills`, killed in several places and resumed each time."""
        more: tuple[str, ...] = ("--track", f"{tracker}:kills", "--set", "log_period_steps=10")
        more += ("--set", "compute=torch", "--set", "learning.batch_size=8")
        command = self.bench.command("deep_sea", out, *more)
        send = f"noisynet.integrations.{tracker}:{tracker.capitalize()}Tracker._send"
        kills: list[tuple[str, int, int]] = [
            (ACT, 130, signal.SIGKILL),  # rows after the checkpoint will be written again
            (send, 3, signal.SIGKILL),  # between two rows of one checkpoint
            (EVALUATE, 20, signal.SIGTERM),  # the evaluation of a frame that has a row already
        ]
        for event, number, kill in kills:
            ended = self.bench.run(command, (event, number), kill)
            assert ended.status == (-kill if kill == signal.SIGKILL else 128 + kill), ended.said
        ended = self.bench.run(command)
        assert ended.status == 0, ended.said
        assert "switched off" not in ended.said
        return RunFolder(out / "run")


@pytest.fixture(scope="session")
def tracked_runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrackedRuns]:
    """Runs with trackers in local stores."""
    stores = tmp_path_factory.mktemp("stores")
    variables = {
        "WANDB_MODE": "offline",
        "TRACKIO_DIR": str(stores / "trackio"),
        "MLFLOW_TRACKING_URI": (stores / "mlflow").as_uri(),
        "MLFLOW_ALLOW_FILE_STORE": "true",
        "MLFLOW_DISABLE_TELEMETRY": "true",  # by a thread, which a fork would lose
        "WARM_MODULES": "wandb trackio mlflow",
    }
    warm = WarmProcess(tmp_path_factory.mktemp("said"), variables)
    yield TrackedRuns(Bench(warm, tmp_path_factory.mktemp("reference")), stores)
    warm.close()


def logged_rows(folder: RunFolder) -> list[tuple[int, dict[str, float]]]:
    """What a page has to show: for each frame in the logs its numbers but the speed."""
    rows: dict[int, dict[str, float]] = {}
    for frames, numbers in logged_numbers(folder, load_config(folder.read_config())):
        numbers.pop("train/steps_per_second", None)
        rows.setdefault(frames, {}).update(numbers)
    assert list(rows) == [*range(10, 401, 10)]
    assert "evaluation/score" in rows[300]
    return list(rows.items())


def stored_rows(run: Path, page: str) -> list[tuple[int, dict[str, float]]]:
    """Read the rows of a page as W&B has stored them, without its own columns and the speed."""
    messages: Any = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    found = []
    for file in sorted(run.glob(f"wandb/offline-run-*-{page}/*.wandb")):
        for data in read_log(file.read_bytes()):
            record = messages.Record.FromString(data)
            if record.HasField("history"):
                items = {
                    "/".join(item.nested_key) or item.key: json.loads(item.value_json)
                    for item in record.history.item
                }
                own = {k: v for k, v in items.items() if not k.startswith("_")}
                own.pop("train/steps_per_second", None)
                found.append((int(items["_step"]), own))
    return found


def test_a_killed_and_resumed_run_has_each_row_on_its_page_of_wandb_once(
    tracked_runs: TrackedRuns, tmp_path: Path
) -> None:
    pytest.importorskip("wandb")
    folder = tracked_runs.kill_and_resume("wandb", tmp_path)
    page = (folder.path / "tracking-id").read_text().strip()
    assert page.startswith("noisynet-dqn-deep-sea-4-seed-0-")
    starts = list(folder.path.glob("wandb/offline-run-*"))
    assert len(starts) == 4
    assert all(start.name.endswith(page) for start in starts)
    assert stored_rows(folder.path, page) == logged_rows(folder)
    assert stored_steps(folder.path, page) == [frames for frames, _ in logged_rows(folder)]


def test_a_killed_and_resumed_run_has_each_row_on_its_page_of_trackio_once(
    tracked_runs: TrackedRuns, tmp_path: Path
) -> None:
    pytest.importorskip("trackio")
    folder = tracked_runs.kill_and_resume("trackio", tmp_path)
    with closing(sqlite3.connect(tracked_runs.stores / "trackio" / "kills.db")) as store:
        pages = store.execute("SELECT DISTINCT run_id, run_name FROM metrics").fetchall()
        ((_, page),) = pages
        rows = store.execute("SELECT step, metrics FROM metrics ORDER BY id").fetchall()
    assert page == (folder.path / "tracking-id").read_text().strip()
    found = [(step, json.loads(numbers)) for step, numbers in rows]
    for _, numbers in found:
        numbers.pop("train/steps_per_second", None)
    assert found == logged_rows(folder)


def test_a_killed_and_resumed_run_has_each_row_on_its_page_of_mlflow_once(
    tracked_runs: TrackedRuns, tmp_path: Path
) -> None:
    pytest.importorskip("mlflow")
    folder = tracked_runs.kill_and_resume("mlflow", tmp_path)
    (page,) = (tracked_runs.stores / "mlflow").glob("*/*/metrics")  # one page
    points: dict[str, list[tuple[int, float]]] = {}
    for file in page.rglob("*"):
        if file.is_file():
            lines = [line.split() for line in file.read_text().splitlines()]
            key = str(file.relative_to(page))
            points[key] = [(int(step), float(value)) for _, value, step in lines]
    assert len(points.pop("train/steps_per_second")) == 40
    expected: dict[str, list[tuple[int, float]]] = {}
    for frames, numbers in logged_rows(folder):
        for tag, value in numbers.items():
            expected.setdefault(tag, []).append((frames, value))
    assert points == expected
    named = page.parent / "tags" / "noisynet.page"
    assert named.read_text() == (folder.path / "tracking-id").read_text().strip()
    assert (page.parent / "params" / "optimiser.learning_rate").exists()
