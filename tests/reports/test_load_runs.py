"""Loading run folders, intact and damaged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noisynet.reports.load_runs import (
    ReportError,
    find_runs,
    read_run,
    read_runs,
)
from noisynet.reports.study import make_studies
from noisynet.runs import MetricsLog

from .conftest import WriteRun


def change(folder: Path, file: str, **fields: Any) -> None:
    path = folder / file
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def test_everything_in_a_run_folder_is_loaded(write_run: WriteRun) -> None:
    folder = write_run("noisynet-dqn", "gym/A", 3, [1.0, 5.0, 2.0], scores_off=[0.0, 7.0, 1.0])
    run = read_run(folder)
    assert (run.agent, run.environment, run.family, run.seed) == ("noisynet-dqn", "gym/A", "gym", 3)
    assert (run.protocol.budget_frames, run.protocol.period_frames) == (300, 100)
    assert run.curve.tolist() == [1.0, 5.0, 2.0]
    assert run.curves["off"].tolist() == [0.0, 7.0, 1.0]
    assert run.training_seconds == 3 * 36
    assert run.evaluation_seconds == 3 * 4
    assert run.steps_per_second == pytest.approx(130)
    assert run.state == "finished"
    assert run.settings["exploration.sigma0"] == "0.5"
    assert "seed" not in run.settings
    assert list(run.sigma) == ["head.q.0", "head.q.2"]
    assert np.flatnonzero(~np.isnan(run.sigma["head.q.0"])).tolist() == [66, 133, 199]


def test_an_agent_without_noise_has_one_curve(write_run: WriteRun) -> None:
    run = read_run(write_run("dqn", "gym/A", 0, [4.0]))
    assert run.curve.tolist() == [4.0]
    assert list(run.curves) == ["off"]
    assert run.sigma == {}


def test_the_setting_evaluation_chooses_the_curve_of_the_score(write_run: WriteRun) -> None:
    settings = {"exploration.evaluation": "off"}
    run = read_run(
        write_run("noisynet-dqn", "gym/A", 0, [1.0], scores_off=[9.0], settings=settings)
    )
    assert run.curve.tolist() == [9.0]


def test_a_failed_run_has_its_reason_as_remark(write_run: WriteRun) -> None:
    folder = write_run("dqn", "gym/A", 0, [1.0])
    change(folder, "status.json", state="failed", reason="the loss is not finite")
    run = read_run(folder)
    assert (run.state, run.remarks) == ("failed", ("failed: the loss is not finite",))


def test_a_run_without_metrics_is_loaded(write_run: WriteRun) -> None:
    folder = write_run("noisynet-a3c", "gym/A", 0, [1.0])
    for name in ("metrics.jsonl", "timing.jsonl", "status.json"):
        (folder / name).unlink()
    run = read_run(folder)
    assert run.curve.size == 0
    assert run.state == "no status"
    assert np.isnan(run.steps_per_second)


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
    assert run.curve.tolist() == [8.0]
    assert run.sigma["q"][[40, 120]].tolist() == [0.04, 0.12]
    assert run.remarks == ("1 evaluations without a finite score are ignored",)


def test_an_incomplete_last_line_is_dropped(write_run: WriteRun) -> None:
    folder = write_run("dqn", "gym/A", 0, [1.0, 2.0])
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"kind":"evaluation","frames":300,"noi')
    assert read_run(folder).curve.tolist() == [1.0, 2.0]


def test_partial_returns_are_a_remark(write_run: WriteRun) -> None:
    folder = write_run("dqn", "gym/A", 0, [1.0, 2.0])
    path = folder / "metrics.jsonl"
    path.write_text(path.read_text().replace('"completed":true', '"completed":false', 1))
    (remark,) = read_run(folder).remarks
    assert remark.startswith("1 of 2 evaluations completed no episode")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{'kind'", "line 5 of .* is not a row"),
        ("[1]", "line 5 of .* is not a row"),
        ('{"kind":"evaluation","frames":1}', "line 5 .* noise: Field required; score: Field req"),
    ],
)
def test_a_damaged_line_is_an_error_that_names_it(
    write_run: WriteRun, line: str, message: str
) -> None:
    folder = write_run("dqn", "gym/A", 0, [1.0, 2.0])
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(ReportError, match=message):
        read_run(folder)


def test_runs_are_found_at_any_depth_and_each_once(write_run: WriteRun, tmp_path: Path) -> None:
    folders = [write_run("dqn", "gym/A", seed, [1.0]) for seed in range(2)]
    (tmp_path / "link").symlink_to(folders[0])
    (folders[0] / "checkpoints").mkdir()
    (folders[0] / "checkpoints" / "config.json").write_text("{}")  # run folders do not nest
    found = find_runs([tmp_path / "runs", folders[1], tmp_path / "link"])
    assert found == folders


def test_no_runs_is_an_error_that_names_the_folder(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match=r"no runs found in .*: expected folders with a con"):
        find_runs([tmp_path])
    with pytest.raises(ReportError, match="got nothing; give the --out of your runs"):
        find_runs([tmp_path / "absent"])
    (tmp_path / "file").touch()
    with pytest.raises(ReportError, match="got a file"):
        find_runs([tmp_path / "file"])
    with pytest.raises(ReportError, match="at least one run folder"):
        find_runs([])


def test_an_unreadable_run_is_skipped(write_run: WriteRun) -> None:
    good, bad = (write_run("dqn", "gym/A", seed, [1.0]) for seed in range(2))
    (bad / "config.json").write_text("{")
    runs, skipped = read_runs([good, bad])
    assert [run.path for run in runs] == [good]
    assert list(skipped) == [str(bad)]
    assert "config.json is not JSON" in skipped[str(bad)]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"agent": "sarsa"}, "has agent 'sarsa', expected one of dqn, noisynet-dqn"),
        ({"environment": "nes/mario"}, "expected an environment as atari/<rom>, minatar/<game>"),
        ({"environment": "atari/adventure"}, "atari has no game 'adventure'"),
        ({"environment": 3}, "environment: Input should be a valid string"),
        ({"frames": 0, "seed": None}, "seed: Input should be .*; frames: Input should be greater"),
        ({"evaluation": []}, "evaluation: Input should be"),
        ({"frames": 10**9, "evaluation": {"period_frames": 1, "frames": 1}}, "more than 100,000"),
    ],
)
def test_an_invalid_configuration_is_an_error(
    write_run: WriteRun, fields: dict[str, Any], message: str
) -> None:
    folder = write_run("dqn", "gym/A", 0, [1.0])
    change(folder, "config.json", **fields)
    with pytest.raises(ReportError, match=message):
        read_run(folder)


def test_reports_never_import_torch() -> None:
    code = "import sys; from noisynet.reports import report; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_printing_the_paper_needs_neither_matplotlib_nor_jinja2() -> None:
    code = (
        "import io, sys; from noisynet.reports import print_paper; print_paper(io.StringIO()); "
        "assert not {'matplotlib', 'jinja2'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("budget", "frames", "expected"),
    [
        (250, [100, 200, 250], [1.0, 2.0, 3.0]),  # the last one at the end of the budget
        (250, [104, 204, 252], [1.0, 2.0, 3.0]),
        (40, [40], [1.0]),  # shorter than a period
        (300, [100, 200, 250, 300], [1.0, 2.0, 4.0]),  # the budget was 250 before
        (300, [40, 100, 200, 300], [2.0, 3.0, 4.0]),  # the budget was 40 before
    ],
)
def test_an_evaluation_at_the_end_of_a_budget_replaces_no_other(
    budget: int, frames: list[int], expected: list[float], write_run: WriteRun
) -> None:
    folder = write_run("dqn", "gym/A", 0, [1.0], settings={"frames": budget})
    (folder / "metrics.jsonl").unlink()
    with MetricsLog(folder / "metrics.jsonl") as log:
        for score, frame in enumerate(frames, start=1):
            row = {"kind": "evaluation", "frames": frame, "noise": "off", "completed": True}
            log.append({**row, "score": float(score)})
    run = read_run(folder)
    assert run.curve.tolist() == expected
    (study,) = make_studies([run])
    (contender,) = study.contenders
    assert study.is_complete(run)
    assert study.frames(contender)[-1] == budget
