"""Run folders as the report reads them, whole and broken."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noisynet.reports.load_runs import ReportError, find_runs, read_run, read_runs
from noisynet.runs import MetricsLog, RunDamaged

from .conftest import WriteRun


def change(folder: Path, file: str, **fields: Any) -> None:
    path = folder / file
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def test_a_run_is_read_whole(write_run: WriteRun) -> None:
    folder = write_run("noisynet-dqn", "gym/A", 3, [1.0, 5.0, 2.0], scores_off=[0.0, 7.0, 1.0])
    run = read_run(folder)
    assert (run.agent, run.environment, run.suite, run.seed) == ("noisynet-dqn", "gym/A", "gym", 3)
    assert (run.protocol.budget_frames, run.protocol.period_frames) == (300, 100)
    assert run.curve.points.tolist() == [1, 2, 3]
    assert run.curve.scores.tolist() == [1.0, 5.0, 2.0]
    assert run.curves["off"].scores.tolist() == [0.0, 7.0, 1.0]
    assert run.timing.training_seconds == 3 * 36
    assert run.timing.evaluation_seconds == 3 * 4
    assert run.timing.steps_per_second == pytest.approx(130)
    assert run.state == "finished"
    assert run.settings["exploration.sigma0"] == "0.5"
    assert "seed" not in run.settings
    assert list(run.sigma) == ["head.q.0", "head.q.2"]
    assert np.flatnonzero(~np.isnan(run.sigma["head.q.0"])).tolist() == [66, 133, 199]


def test_the_score_of_a_plain_agent_is_its_only_curve(write_run: WriteRun) -> None:
    run = read_run(write_run("dqn", "gym/A", 0, [4.0]))
    assert run.curve.scores.tolist() == [4.0]
    assert list(run.curves) == ["off"]
    assert run.sigma == {}


def test_which_curve_is_the_score_is_the_runs_own_setting(write_run: WriteRun) -> None:
    settings = {"exploration.evaluation": "off"}
    run = read_run(
        write_run("noisynet-dqn", "gym/A", 0, [1.0], scores_off=[9.0], settings=settings)
    )
    assert run.curve.scores.tolist() == [9.0]


def test_rows_that_training_writes_are_read(write_run: WriteRun) -> None:
    folder = write_run("noisynet-dqn", "gym/A", 0, [1.0, 2.0])
    (folder / "metrics.jsonl").unlink()
    with MetricsLog(folder / "metrics.jsonl") as log:
        log.append({"kind": "episode", "frames": 10, "score": 3.0})
        for frames in (40, 120):
            log.append({"kind": "train", "frames": frames, "sigma": {"q": frames / 1000}})
        # Two environments: the evaluation of 100 frames falls on 102.
        row = {"kind": "evaluation", "frames": 102, "noise": "on", "completed": True}
        log.append({**row, "score": 8.0})
        log.append({**row, "frames": 200, "score": float("nan")})
    run = read_run(folder)
    assert run.curve.points.tolist() == [1]
    assert run.curve.scores.tolist() == [8.0]
    assert run.sigma["q"][[40, 120]].tolist() == [0.04, 0.12]
    assert run.remarks == ("1 evaluations have no finite score and are left out",)


def test_a_line_that_was_never_finished_is_left_out(write_run: WriteRun) -> None:
    folder = write_run("dqn", "gym/A", 0, [1.0, 2.0])
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"kind":"evaluation","frames":300,"noi')
    assert read_run(folder).curve.scores.tolist() == [1.0, 2.0]


def test_returns_of_unfinished_episodes_are_mentioned(write_run: WriteRun) -> None:
    folder = write_run("dqn", "gym/A", 0, [1.0, 2.0])
    path = folder / "metrics.jsonl"
    path.write_text(path.read_text().replace('"completed":true', '"completed":false', 1))
    (remark,) = read_run(folder).remarks
    assert remark.startswith("1 of 2 evaluations completed no episode")


def test_a_failed_run_says_why(write_run: WriteRun) -> None:
    folder = write_run("dqn", "gym/A", 0, [1.0])
    change(folder, "status.json", state="failed", reason="the loss is not finite")
    run = read_run(folder)
    assert (run.state, run.remarks) == ("failed", ("failed: the loss is not finite",))


def test_a_run_that_has_only_begun_can_be_read(write_run: WriteRun) -> None:
    folder = write_run("noisynet-a3c", "gym/A", 0, [1.0])
    for name in ("metrics.jsonl", "timing.jsonl", "status.json"):
        (folder / name).unlink()
    run = read_run(folder)
    assert run.curve.scores.size == 0
    assert run.state == "no status"
    assert np.isnan(run.timing.steps_per_second)


# --- finding -------------------------------------------------------------------------------------


def test_runs_are_found_at_any_depth_and_each_once(write_run: WriteRun, tmp_path: Path) -> None:
    folders = [write_run("dqn", "gym/A", seed, [1.0]) for seed in range(2)]
    (tmp_path / "link").symlink_to(folders[0])
    (folders[0] / "checkpoints").mkdir()
    (folders[0] / "checkpoints" / "config.json").write_text("{}")  # below a run: no run
    found = find_runs([tmp_path / "runs", folders[1], tmp_path / "link"])
    assert found == folders


def test_no_runs_found_says_where_and_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match=r"no runs found in .*: expected folders that hold a con"):
        find_runs([tmp_path])
    with pytest.raises(ReportError, match="found nothing; give the --out of your runs"):
        find_runs([tmp_path / "absent"])
    (tmp_path / "file").touch()
    with pytest.raises(ReportError, match="found a file"):
        find_runs([tmp_path / "file"])
    with pytest.raises(ReportError, match="at least one run folder"):
        find_runs([])


# --- what cannot be read -------------------------------------------------------------------------


def test_an_unreadable_run_does_not_stop_the_others(write_run: WriteRun) -> None:
    good, bad = (write_run("dqn", "gym/A", seed, [1.0]) for seed in range(2))
    (bad / "config.json").write_text("{")
    runs, unreadable = read_runs([good, bad])
    assert [run.path for run in runs] == [good]
    assert [one.path for one in unreadable] == [bad]
    assert "config.json is not JSON" in unreadable[0].reason


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"agent": "rainbow"}, "has agent 'rainbow', expected one of dqn, noisynet-dqn"),
        ({"environment": "nes/mario"}, "expected one of the families atari, minatar"),
        ({"environment": 3}, "environment missing or of another kind"),
        ({"frames": 0, "seed": None}, "seed, frames missing"),
        ({"evaluation": []}, "evaluation.period_frames, evaluation.frames missing"),
    ],
)
def test_a_configuration_that_is_not_a_runs_is_named(
    write_run: WriteRun, fields: dict[str, Any], said: str
) -> None:
    folder = write_run("dqn", "gym/A", 0, [1.0])
    change(folder, "config.json", **fields)
    with pytest.raises(ReportError, match=said):
        read_run(folder)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{'kind'", "line 5 of .* is not JSON"),
        ("[1]", "line 5 of .* is a list, not a row"),
        ('{"kind":"evaluation","frames":1}', "a row of an evaluation without noise, frames or sc"),
    ],
)
def test_a_damaged_line_is_named(write_run: WriteRun, line: str, said: str) -> None:
    folder = write_run("dqn", "gym/A", 0, [1.0, 2.0])
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(RunDamaged, match=said):
        read_run(folder)


def test_reports_never_import_torch() -> None:
    rooms = "page, writing, figures, grid_figures, sigma_figures, interval_figures, ledger"
    code = f"import sys; from noisynet.reports import {rooms}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
