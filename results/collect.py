"""Collects the runs of a study into the files of `results/<study>/`, from which pages are made.

noisynet sweep results/minatar/plan.toml --out runs/minatar
python results/collect.py runs/minatar minatar

Run it on the machine that made the runs, which is written down. The commit is the one that a run
names; for runs that name none, that of the imported noisynet or of --commit. Finished runs that
were collected earlier, from another folder or on another machine, stay.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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
    WITH_TRAINING,
    RunData,
    StudyData,
    load_study,
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

_ORIGIN: Final = ("versions", "machine", "hours", "ended", "from_study")

RunKey = tuple[str, str, str, int]
"""Agent, variant, environment and seed of a run."""

Origin = tuple[Mapping[str, Any], Mapping[str, Sequence[str]]]
"""Where runs come from, with the keys of a collection, and the names that each commit made."""


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

    Finished runs that are in `data.jsonl` already stay if the plan is the same and they are not
    found finished in `runs`.

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
    specs = planned(study, runs, results)
    _check_runs(specs, study, runs, results)
    training = study in WITH_TRAINING
    found = _find(specs, made_by, unfinished=unfinished, training=training)
    earlier = load_study(study, results)
    stored = committed(earlier, results)
    data: dict[str, RunData] = {}
    for spec in specs:
        new, old = found.runs.get(spec.name), stored.get(run_key(spec))
        chosen = new if new is not None and (new.finished or old is None) else old
        if chosen is not None:
            data[spec.name] = chosen
    kept = [name for name, run in data.items() if run is not found.runs.get(name)]
    if len(kept) == len(data):
        missing = len(specs) - len(found.finished) - len(found.unfinished)
        raise CollectError(
            f"expected finished runs of the study {study} in {runs}, got {len(found.finished)} "
            f"finished, {len(found.unfinished)} unfinished, {missing} missing; give the --out "
            f"of `noisynet sweep results/{study}/plan.toml`, or --unfinished"
        )
    finished = {spec.name for spec in specs if run_key(spec) in stored} | found.finished
    left = [spec.name for spec in specs if spec.name not in finished]
    provenance: dict[str, Any] = {
        "study": study,
        "plan": plan_digest(results / study / "plan.toml"),
        "planned": len(specs),
        "finished": len(finished),
        "unfinished": [name for name in left if name in found.unfinished],
        "missing": [name for name in left if name not in found.unfinished],
        "collections": _collections(earlier, kept, found, [n for n in data if n not in kept]),
    }
    size = write_study(provenance, data.values(), results)
    said = (
        f"{study}: {len(data)} of {len(specs)} runs, {size:,} bytes; "
        f"{len(provenance['unfinished'])} unfinished, {len(provenance['missing'])} missing"
    )
    if kept:
        said += f"; {len(kept)} kept from earlier collections"
    if earlier is not None and plan_changed(earlier, results):
        said += f"; the plan was changed: its {len(earlier.runs)} earlier runs were dropped"
    return said


def planned(study: str, runs: Path, results: Path) -> list[RunSpec]:
    """The runs of a plan, by environment, agent, variant and seed.

    Raises:
        CollectError: there is no plan.
    """
    plan = results / study / "plan.toml"
    if not plan.is_file():
        raise CollectError(f"expected a study, one of {', '.join(STUDIES)}; got {study!r}")
    specs = build_plan(str(plan), out=runs).specs
    environments = list(dict.fromkeys(spec.environment for spec in specs))
    labels = list(dict.fromkeys(spec.label for spec in specs))
    return sorted(
        specs,
        key=lambda spec: (
            *(environments.index(spec.environment), labels.index(spec.label)),
            spec.seed,
        ),
    )


def _check_runs(specs: Sequence[RunSpec], study: str, runs: Path, results: Path) -> None:
    if not runs.is_dir():
        raise CollectError(f"expected the --out of a sweep at {runs}, which is no folder")
    conflicts = {spec.name: config_conflict(spec) for spec in specs}
    wrong = [f"  {name}: {conflict}" for name, conflict in conflicts.items() if conflict]
    if wrong:
        raise CollectError(
            f"expected runs with the settings of {results / study / 'plan.toml'}, got others:\n"
            + "\n".join(wrong[:10])
        )


def run_key(run: RunSpec | RunData) -> RunKey:
    """What is different for every run of a study."""
    return run.agent, run.variant, run.environment, run.seed


def plan_changed(study: StudyData, results: Path) -> bool:
    """Whether the plan of a study is not that of its data."""
    return bool(study.provenance["plan"] != plan_digest(results / study.name / "plan.toml"))


def committed(study: StudyData | None, results: Path) -> dict[RunKey, RunData]:
    """The finished runs in `data.jsonl`; none if they are of another plan."""
    if study is None or plan_changed(study, results):
        return {}
    return {run_key(run): run for run in study.runs if run.finished}


@dataclass
class _Found:
    """What is in the folder of a sweep; runs by name.

    `commits` has the names of the runs that each commit made; a run that another commit resumed
    has a commit of the form "first and second".
    """

    runs: dict[str, RunData] = field(default_factory=dict)
    finished: set[str] = field(default_factory=set)
    unfinished: set[str] = field(default_factory=set)
    commits: dict[str, list[str]] = field(default_factory=dict)
    training_seconds: float = 0.0
    evaluation_seconds: float = 0.0
    ended: str = ""


def _find(specs: Sequence[RunSpec], made_by: str, *, unfinished: bool, training: bool) -> _Found:
    found = _Found()
    for spec in specs:
        if not spec.folder.exists():
            continue
        done = read_progress(spec).state is ProgressState.DONE
        (found.finished if done else found.unfinished).add(spec.name)
        run = read_run(spec.folder)
        found.training_seconds += run.training_seconds
        found.evaluation_seconds += run.evaluation_seconds
        status = RunFolder(spec.folder).read_status() or {}
        found.ended = max(found.ended, str(status.get("updated", "")))
        if len(run.curve) and (done or unfinished):
            found.runs[spec.name] = _run_data(spec, run, finished=done, training=training)
            commits = commit_of(RunFolder(spec.folder)) or made_by or commit()
            found.commits.setdefault(commits, []).append(spec.name)
    return found


def _run_data(spec: RunSpec, run: Run, *, finished: bool, training: bool) -> RunData:
    period, kept = run.protocol.period_frames, _thin(run.sigma)
    metrics = RunFolder(spec.folder).metrics_path
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
        incomplete=_incomplete(metrics, period),
        training=_training(metrics, spec.frames, period) if training else np.empty(0),
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


def _training(metrics: Path, frames: int, period: int) -> Floats:
    """The mean return of the last 100 training episodes, before each evaluation [K]."""
    points = frames // period
    found = np.full(points, np.nan)
    for row in read_rows(metrics, frames, points)[1]:
        mean = (row.model_extra or {}).get("score_mean_100")
        found[min(row.frames * points // frames, points - 1)] = np.nan if mean is None else mean
    return found


def write_study(provenance: Mapping[str, Any], runs: Iterable[RunData], results: Path) -> int:
    """Write `provenance.json` and `data.jsonl` of a study; return the bytes of the latter.

    Raises:
        CollectError: the data of all studies would be too large. Nothing is written.
    """
    text = "".join(f"{run.line()}\n" for run in runs)
    folder = results / provenance["study"]
    _check_size(folder.name, text, results)
    (folder / DATA).write_text(text)
    (folder / PROVENANCE).write_text(json.dumps(provenance, indent=2) + "\n")
    return len(text)


def _check_size(study: str, text: str, results: Path) -> None:
    others = [path for path in results.glob(f"*/{DATA}") if path.parent.name != study]
    total = len(text.encode()) + sum(path.stat().st_size for path in others)
    if total > MAX_BYTES:
        raise CollectError(
            f"expected at most {MAX_BYTES:,} bytes of data over all studies, got {total:,}; "
            "evaluate less often, or drop a study"
        )


# --- where runs come from ------------------------------------------------------------------------


def _collections(
    earlier: StudyData | None, kept: Sequence[str], found: _Found, new: Sequence[str]
) -> list[dict[str, Any]]:
    """Where the runs in `data.jsonl` come from: collections that have some of them, oldest first.

    Args:
        earlier: what is committed.
        kept: the names of its runs that stay.
        found: what is in the folder that is collected now.
        new: the names of its runs that are written.
    """
    origins = origins_of(earlier, kept)
    hours = {"training": found.training_seconds, "evaluation": found.evaluation_seconds}
    now = {
        "versions": _versions(),
        "machine": _machine(),
        "hours": {kind: round(seconds / 3600, 2) for kind, seconds in hours.items()},
        "ended": found.ended,
    }
    return describe_origins([*origins, (now, _only(found.commits, new))])


def origins_of(study: StudyData | None, names: Sequence[str]) -> list[Origin]:
    """The collections of a study, each with the commits that made some of these of its runs."""
    origins: list[Origin] = []
    for one in study.provenance["collections"] if study is not None and names else ():
        others: dict[str, list[str]] = one["other_commits"]
        listed = [name for made in others.values() for name in made]
        most = [name for name in one.get("names", names) if name not in listed]
        origins.append((one, _only({one["commit"]: most} | others, names)))
    return origins


def describe_origins(origins: Sequence[Origin]) -> list[dict[str, Any]]:
    """The entry `collections` of `provenance.json`, without those that have no runs."""
    origins = [(origin, commits) for origin, commits in origins if commits]
    return [_collection(origin, commits, named=len(origins) > 1) for origin, commits in origins]


def _only(commits: Mapping[str, Sequence[str]], runs: Sequence[str]) -> dict[str, list[str]]:
    """Commits that made some of these runs, and which."""
    made = {by: [name for name in runs if name in names] for by, names in commits.items()}
    return {by: names for by, names in made.items() if names}


def _collection(
    origin: Mapping[str, Any], commits: Mapping[str, Sequence[str]], *, named: bool
) -> dict[str, Any]:
    """An entry of `provenance.json`; with the names of its runs where there are other entries."""
    names = [name for made in commits.values() for name in made]
    most = max(commits, key=lambda by: len(commits[by]))
    return {
        "runs": len(names),
        **({"names": names} if named else {}),
        "commit": most,
        "other_commits": {by: made for by, made in commits.items() if by != most},
        **{key: origin[key] for key in _ORIGIN if key in origin},
    }


def commit_of(folder: RunFolder) -> str:
    """The commit that a run says it was made by, "a and b" if b resumed it; or empty."""
    made_by = folder.read_made_by()
    return " and ".join(dict.fromkeys(one["commit"][:12] for one in made_by if one.get("commit")))


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
