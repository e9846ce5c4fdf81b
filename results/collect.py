"""Collects the runs of a study into the files of `results/<study>/`, from which pages are made.

noisynet sweep results/minatar/plan.toml --out runs/minatar
python results/collect.py runs/minatar minatar

Run it on the machine that made the runs, which is written down. The commit is the one that a run
names; for runs that name none, that of the imported noisynet or of --commit.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import numpy as np
from studies import (
    DATA,
    MAX_BYTES,
    PROVENANCE,
    RESULTS,
    STUDIES,
    RunData,
    plan_digest,
)

import noisynet
from noisynet.experiments import PlanError, RunSpec, build_plan
from noisynet.experiments.progress import ProgressState, config_conflict, read_progress
from noisynet.reports.load_runs import SIGMA_POINTS, NoiseMode, ReportError, Run, read_run
from noisynet.reports.scores import Floats
from noisynet.runs import RunFolder
from noisynet.runs.reading import read_rows

SIGMA_SAMPLES: Final = 21
"""Σ̄ is kept at this many points of a run."""
NOISE_MODES: Final[tuple[NoiseMode, ...]] = ("on", "off")
_PACKAGES: Final = ("torch", "numpy", "numba", "minatar", "ale-py")


class CollectError(Exception):
    """The runs of a study cannot be collected; the message is for the user."""


def collect(
    runs: Path,
    study: str,
    results: Path = RESULTS,
    *,
    unfinished: bool = False,
    made_by: str = "",
) -> str:
    """Write `data.jsonl` and `provenance.json` of a study.

    Args:
        runs: the --out of its sweep.
        study: one of `STUDIES`.
        results: the folder of all studies.
        unfinished: include runs that have evaluations but are not finished.
        made_by: the commit of runs that do not name theirs; by default that of the imported
            noisynet.

    Returns:
        What was collected, one line.

    Raises:
        CollectError: there is no plan or no run, a run has other settings than the plan, or the
            data of all studies would be too large. Nothing is written.
    """
    specs = _planned(study, runs, results)
    data: list[RunData] = []
    states: dict[str, list[str]] = {"finished": [], "unfinished": [], "missing": []}
    seconds = {"training": 0.0, "evaluation": 0.0}
    commits: dict[str, list[str]] = {}
    ended = ""
    for spec in specs:
        done = read_progress(spec).state is ProgressState.DONE
        if not spec.folder.exists():
            states["missing"].append(spec.name)
            continue
        states["finished" if done else "unfinished"].append(spec.name)
        run = read_run(spec.folder)
        seconds["training"] += run.training_seconds
        seconds["evaluation"] += run.evaluation_seconds
        ended = max(ended, str((RunFolder(spec.folder).read_status() or {}).get("updated", "")))
        if len(run.curve) and (done or unfinished):
            data.append(_run_data(spec, run, finished=done))
            for name in _commits(spec) or [made_by or commit()]:
                commits.setdefault(name, []).append(spec.name)
    if not data:
        counts = ", ".join(f"{len(names)} {state}" for state, names in states.items())
        raise CollectError(
            f"expected finished runs of the study {study} in {runs}, got {counts}; give the --out "
            f"of `noisynet sweep results/{study}/plan.toml`, or --unfinished"
        )
    text = "".join(f"{run.line()}\n" for run in data)
    _check_size(study, text, results)
    most = max(commits, key=lambda name: len(commits[name]))
    provenance = {
        "study": study,
        "plan": plan_digest(results / study / "plan.toml"),
        "commit": most,
        "other_commits": {name: names for name, names in commits.items() if name != most},
        "versions": _versions(),
        "machine": _machine(),
        "hours": {kind: round(spent / 3600, 2) for kind, spent in seconds.items()},
        "ended": ended,
        "planned": len(specs),
        "finished": len(states["finished"]),
        "unfinished": states["unfinished"],
        "missing": states["missing"],
    }
    (results / study / DATA).write_text(text)
    (results / study / PROVENANCE).write_text(json.dumps(provenance, indent=2) + "\n")
    return (
        f"{study}: {len(data)} of {len(specs)} runs, {len(text):,} bytes; "
        f"{len(states['unfinished'])} unfinished, {len(states['missing'])} missing"
    )


def _planned(study: str, runs: Path, results: Path) -> list[RunSpec]:
    """The runs of a plan, by environment, agent, variant and seed."""
    plan = results / study / "plan.toml"
    if not plan.is_file():
        raise CollectError(f"expected a study, one of {', '.join(STUDIES)}; got {study!r}")
    if not runs.is_dir():
        raise CollectError(f"expected the --out of a sweep at {runs}, which is no folder")
    specs = build_plan(str(plan), out=runs).specs
    conflicts = {spec.name: config_conflict(spec) for spec in specs}
    wrong = [f"  {name}: {conflict}" for name, conflict in conflicts.items() if conflict]
    if wrong:
        raise CollectError(
            f"expected runs with the settings of {plan}, got others:\n" + "\n".join(wrong[:10])
        )
    environments = list(dict.fromkeys(spec.environment for spec in specs))
    labels = list(dict.fromkeys(spec.label for spec in specs))
    return sorted(
        specs,
        key=lambda spec: (
            *(environments.index(spec.environment), labels.index(spec.label)),
            spec.seed,
        ),
    )


def _run_data(spec: RunSpec, run: Run, *, finished: bool) -> RunData:
    period, kept = run.protocol.period_frames, _thin(run.sigma)
    return RunData(
        agent=spec.agent,
        variant=spec.variant,
        environment=spec.environment,
        seed=spec.seed,
        frames=spec.frames,
        period_frames=period,
        finished=finished,
        score_noise=run.score_noise,
        scores={mode: run.curves[mode] for mode in NOISE_MODES if mode in run.curves},
        incomplete=_incomplete(RunFolder(spec.folder).metrics_path, period),
        sigma_frames=[round((point + 0.5) * spec.frames / SIGMA_POINTS) for point in kept],
        sigma={layer: values[kept] for layer, values in run.sigma.items()},
    )


def _thin(sigma: Mapping[str, Floats]) -> list[int]:
    """At most `SIGMA_SAMPLES` of the points at which every layer has a value; both ends too."""
    if not sigma:
        return []
    present = np.flatnonzero(~np.isnan(list(sigma.values())).any(axis=0))
    chosen = np.linspace(0, len(present) - 1, min(SIGMA_SAMPLES, len(present))).round()
    return [int(present[int(index)]) for index in chosen]


def _incomplete(metrics: Path, period: int) -> dict[NoiseMode, list[int]]:
    """The numbers of evaluations without a completed episode, by noise mode."""
    rows, _ = read_rows(metrics, 1, 0)
    found: dict[NoiseMode, list[int]] = {}
    for row in rows:
        if not row.completed:
            found.setdefault(row.noise, []).append(max(row.frames // period, 1))
    return found


def _check_size(study: str, text: str, results: Path) -> None:
    others = [path for path in results.glob(f"*/{DATA}") if path.parent.name != study]
    total = len(text.encode()) + sum(path.stat().st_size for path in others)
    if total > MAX_BYTES:
        raise CollectError(
            f"expected at most {MAX_BYTES:,} bytes of data over all studies, got {total:,}; "
            "evaluate less often, or drop a study"
        )


# --- where runs come from ------------------------------------------------------------------------


def _commits(spec: RunSpec) -> list[str]:
    """The commits that a run says it was made by: more than one if it was resumed by another."""
    made_by = RunFolder(spec.folder).read_made_by()
    return list(dict.fromkeys(one["commit"][:12] for one in made_by if one.get("commit")))


def commit() -> str:
    """The commit of the noisynet that is imported; with "-dirty" if it was changed."""
    package = Path(noisynet.__file__).parent
    command = ["git", "-C", str(package), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.check_output(command, text=True, stderr=subprocess.DEVNULL).strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "noisynet": metadata.version("noisynet")}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def _machine() -> dict[str, Any]:
    cpu, info = platform.processor() or platform.machine(), Path("/proc/cpuinfo")
    if info.exists():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = names[0].partition(":")[2].strip() if names else cpu
    return {"cpu": cpu, "cores": os.cpu_count(), "system": platform.system()}


def main() -> None:
    """Collect a study from the command line."""
    parser = argparse.ArgumentParser(description="Collect the runs of a study into results/STUDY/")
    parser.add_argument("runs", type=Path, help="the --out of its sweep")
    parser.add_argument("study", choices=STUDIES, help="the study")
    parser.add_argument("--unfinished", action="store_true", help="include unfinished runs")
    parser.add_argument("--commit", default="", help="of runs that do not name theirs")
    given = parser.parse_args()
    options = {"unfinished": given.unfinished, "made_by": given.commit}
    try:
        print(collect(given.runs, given.study, **options))
    except (CollectError, PlanError, ReportError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
