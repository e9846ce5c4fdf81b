"""Loading metrics.jsonl, complete and damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from noisynet.reports.load_metrics import SIGMA_POINTS, read_evaluations_and_sigma, read_timing
from noisynet.reports.load_runs import read_run
from noisynet.runs import MetricsLog, RunDamaged

from .conftest import WriteRun


def test_rows_written_by_metrics_log_are_loaded(write_run: WriteRun) -> None:
    folder = write_run("noisynet-dqn", "gym/A", 0, [1.0, 2.0])
    (folder / "metrics.jsonl").unlink()
    with MetricsLog(folder / "metrics.jsonl") as log:
        log.append({"kind": "episode", "frames": 10, "score": 3.0})
        for frames in (40, 120):
            log.append({"kind": "train", "frames": frames, "sigma": {"q": frames / 1000}})
        # Two environments: the evaluation at 100 frames comes at 102.
        row = {"kind": "evaluation", "frames": 102, "noise": "on", "completed": True}
        log.append({**row, "score": 8.0})
        log.append({**row, "frames": 200, "score": float("nan")})
    run = read_run(folder)
    assert run.curve.points.tolist() == [1]
    assert run.curve.scores.tolist() == [8.0]
    assert run.sigma["q"][[40, 120]].tolist() == [0.04, 0.12]
    assert run.remarks == ("1 evaluations without a finite score are ignored",)


def test_an_incomplete_last_line_is_dropped(write_run: WriteRun) -> None:
    folder = write_run("dqn", "gym/A", 0, [1.0, 2.0])
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"kind":"evaluation","frames":300,"noi')
    assert read_run(folder).curve.scores.tolist() == [1.0, 2.0]


def test_partial_returns_are_a_remark(write_run: WriteRun) -> None:
    folder = write_run("dqn", "gym/A", 0, [1.0, 2.0])
    path = folder / "metrics.jsonl"
    path.write_text(path.read_text().replace('"completed":true', '"completed":false', 1))
    (remark,) = read_run(folder).remarks
    assert remark.startswith("1 of 2 evaluations completed no episode")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{'kind'", "line 5 of .* is not JSON"),
        ("[1]", "line 5 of .* is a list, not a row"),
        ('{"kind":"evaluation","frames":1}', "an evaluation row without noise, frames or score"),
    ],
)
def test_a_damaged_line_is_an_error_that_names_it(
    write_run: WriteRun, line: str, message: str
) -> None:
    folder = write_run("dqn", "gym/A", 0, [1.0, 2.0])
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(RunDamaged, match=message):
        read_run(folder)


def test_sigma_is_sampled_at_points_of_the_budget(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with MetricsLog(path) as log:
        for frames in (0, 4, 5, 999, 1000):
            log.append({"kind": "train", "frames": frames, "sigma": {"q": float(frames)}})
    rows, sigma = read_evaluations_and_sigma(path, 1000, noisy=True)
    assert rows == []
    # 5 frames for each point; the last row of a point counts.
    assert sigma["q"][[0, 1, SIGMA_POINTS - 1]].tolist() == [4.0, 5.0, 1000.0]
    assert read_evaluations_and_sigma(path, 1000, noisy=False) == ([], {})


def test_a_missing_timing_file_has_no_duration(tmp_path: Path) -> None:
    timing = read_timing(tmp_path / "timing.jsonl")
    assert (timing.training_seconds, timing.evaluation_seconds) == (0.0, 0.0)
