"""Throughputs from the logs of runs, and those shipped with the package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from importlib import resources
from pathlib import Path

import pytest

from experiments.conftest import write_logs
from noisynet.experiments import build_plan
from noisynet.experiments.throughput import (
    FILE,
    Throughput,
    measure_throughput,
    measure_throughputs,
    shipped_throughput,
)
from noisynet.runs import MetricsLog

ROOT = Path(__file__).parents[2]


def test_the_throughput_of_a_run_is_read_from_its_logs(tmp_path: Path) -> None:
    spec = build_plan("classic", out=tmp_path).specs[1]
    assert spec.agent == "noisynet-dqn"
    folder = write_logs(spec, "running", 2_000, evaluations=2)
    throughput = measure_throughput(folder, spec.config)
    # An evaluation is 2,500 frames with noise and 2,500 without, in 50 s.
    assert throughput == Throughput(50.0, 1.0, 100.0, "its own log")
    # 48,000 frames at 50/s, and 10 evaluations of 5,000 frames at 100/s.
    assert throughput.seconds_left(spec, 2_000) == 960 + 500


def test_rows_before_the_first_update_do_not_count(tmp_path: Path) -> None:
    spec = build_plan("classic", out=tmp_path).specs[0]
    folder = write_logs(spec, "running", 0)
    with MetricsLog(folder.timing_path) as timing, MetricsLog(folder.metrics_path) as metrics:
        # Acting alone is fast; the row in which learning begins is of both.
        for steps, updates, speed in ((100, 0, 900), (200, 7, 500), (300, 107, 90), (400, 207, 80)):
            row = {"kind": "train", "frames": steps}
            assert measure_throughput(folder, spec.config) is None or steps > 300
            metrics.append(row | {"steps": steps, "updates": updates})
            timing.append(row | {"seconds": 10, "steps_per_second": speed})
    assert measure_throughput(folder, spec.config) == Throughput(85.0, 1.0, None, "its own log")


def test_a_run_without_logs_has_no_throughput(tmp_path: Path) -> None:
    spec = build_plan("classic", out=tmp_path).specs[0]
    assert measure_throughput(write_logs(spec, "running", 0), spec.config) is None


def test_throughputs_are_medians_by_agent_and_family(tmp_path: Path) -> None:
    specs = build_plan("classic", out=tmp_path).specs
    for spec in (specs[0], specs[4], specs[1]):
        write_logs(spec, "finished", 2_000)
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "config.json").write_text('{"agent": "dqn"}')
    assert measure_throughputs(tmp_path) == {
        ("dqn", "gym"): Throughput(50.0, 1.0, None, f"2 runs below {tmp_path}"),
        ("noisynet-dqn", "gym"): Throughput(50.0, 1.0, None, f"1 run below {tmp_path}"),
    }


@pytest.mark.parametrize(
    ("family", "agent", "file", "table"),
    [
        ("atari", "noisynet-dqn", "dqn.json", "update every 4 steps"),
        ("atari", "a3c", "a3c.json", "two workers"),
        ("minatar", "dueling", "minatar.json", "update every step"),
    ],
)
def test_shipped_throughputs_are_those_of_the_benchmarks(
    family: str, agent: str, file: str, table: str
) -> None:
    """Run `python benchmarks/throughput.py` after the benchmarks if this fails."""
    results = json.loads((ROOT / "benchmarks" / "results" / file).read_text())
    shipped = shipped_throughput(agent, family)
    assert shipped is not None
    assert shipped.steps_per_second == results[table][agent]["steps_per_second"]
    assert shipped.frames_per_step == (4 if family == "atari" else 1)


def test_an_agent_that_was_not_measured_has_no_shipped_throughput() -> None:
    assert shipped_throughput("dueling", "deep_sea") is None
    assert shipped_throughput("dqn", "no_such_family") is None


def test_the_wheel_contains_the_shipped_throughputs(tmp_path: Path) -> None:
    wheel = pytest.importorskip("hatchling.builders.wheel")
    (path,) = wheel.WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    installed = tmp_path / "site-packages"
    with zipfile.ZipFile(path) as archive:
        archive.extractall(installed)
    code = (
        "import noisynet\n"
        "from noisynet.experiments.throughput import shipped_throughput\n"
        "print(noisynet.__file__, shipped_throughput('dqn', 'atari').steps_per_second)"
    )
    output = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    packaged = json.loads((resources.files("noisynet.experiments") / FILE).read_text("utf-8"))
    expected = packaged["families"]["atari"]["dqn"]["steps_per_second"]
    assert output == [str(installed / "noisynet" / "__init__.py"), str(expected)]
