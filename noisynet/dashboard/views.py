"""What the page shows, as JSON: the list of runs, one run, and agents compared.

A view is a dictionary of named parts. A part is sent again only when it has changed.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from noisynet.dashboard.read_runs import Runs, Samples, WatchedRun
from noisynet.reports.agents import AGENTS, STYLES, settings_difference
from noisynet.runs import RunError
from noisynet.runs.encoding import flatten

Floats = NDArray[np.float64]

GRID_POINTS: Final = 300
_OTHER_COLOUR: Final = "#666666"
_LAYER_COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


def runs_view(runs: Runs) -> dict[str, Any]:
    """One row for each run."""
    return {key: _row(run) for key, run in runs.by_key.items()}


def _row(run: WatchedRun) -> dict[str, Any]:
    return {
        "name": run.name,
        "agent": run.config.agent,
        "environment": run.config.environment,
        "seed": run.config.seed,
        "state": run.state,
        "reason": run.error or (run.status and run.status.reason) or "",
        "frames": run.frames,
        "of": run.config.frames,
        "speed": _newest_speed(run),
        "left": _seconds_left(run),
        "score": _finite(_score(run)),
        "disk": run.disk_bytes,
        "owner": f"process {run.owner.pid} on {run.owner.host}" if run.owner else "",
        "changed": round(run.changed_at),
    }


def _score(run: WatchedRun) -> float:
    """The score of the newest evaluation; the status of a failed run has none."""
    if run.status and run.status.score is not None:
        return run.status.score
    evaluated = [one.columns["score"][-1] for one in run.evaluations.values() if one.x]
    return [*evaluated, math.nan][0]


def _newest_speed(run: WatchedRun) -> float | None:
    speeds = run.clock.columns.get("steps per second")
    return _finite(speeds[-1]) if speeds and run.state == "running" else None


def _seconds_left(run: WatchedRun) -> float | None:
    """The time left, evaluations included, at the speed of the later half of the run."""
    x, hours = run.clock.x, run.clock.columns.get("hours")
    if run.state != "running" or not hours:
        return None
    middle = len(x) // 2 if len(x) > 4 else 0
    frames, spent = x[-1] - x[middle], hours[-1] - hours[middle]
    left = max(0, run.config.frames - run.frames)
    return round(3600 * spent / frames * left) if frames > 0 else None


def _finite(value: float) -> float | None:
    return float(f"{value:.5g}") if math.isfinite(value) else None


# --- one run -------------------------------------------------------------------------------------


def run_view(run: WatchedRun) -> dict[str, Any]:
    """One run: its row, charts, settings and log."""
    training, clock = run.training, run.clock
    scores = {
        f"noise {mode}" if len(run.evaluations) > 1 else "score": (found, "score")
        for mode, found in sorted(run.evaluations.items(), reverse=True)
    }
    colours = (_colour(run.config.agent), "#555555")
    sigma = {name: (training, name) for name in training.columns if name.startswith("Σ̄")}
    return {
        "row": _row(run),
        "score": _chart("Score of evaluations", scores, colours),
        "return": _chart("Mean return of 100 episodes", {"return": (training, "return")}, colours),
        "loss": _chart("Loss", {"loss": (training, "loss")}, colours),
        "sigma": _chart("Σ̄ by layer", sigma, _LAYER_COLOURS),
        "speed": _chart("Steps per second", {"steps/s": (clock, "steps per second")}, colours),
        "settings": [[key, json.dumps(value)] for key, value in run.flat_config.items()],
        "made_by": [
            [key, json.dumps(value)]
            for maker in run.config.made_by
            for key, value in flatten(maker.model_dump()).items()
        ],
        "log": _log(run),
    }


def _log(run: WatchedRun) -> str:
    try:
        return run.log_tail()
    except RunError as error:
        return str(error)


def _chart(
    title: str, series: Mapping[str, tuple[Samples, str]], colours: Sequence[str]
) -> dict[str, Any]:
    """A chart of one or more series over the union of their frames."""
    grid = np.unique(np.concatenate([np.empty(0), *(samples.x for samples, _ in series.values())]))
    lines = []
    for index, (name, (samples, column)) in enumerate(series.items()):
        values = np.full(len(grid), np.nan)
        values[np.searchsorted(grid, samples.x)] = samples.columns.get(column, math.nan)
        if np.isfinite(values).any():
            colour = colours[index % len(colours)]
            lines.append({"name": name, "colour": colour, "y": _rounded(values)})
    return {"title": title, "unit": "frames", "x": _rounded(grid, 12), "lines": lines}


def _rounded(values: Iterable[float], digits: int = 5) -> list[float | None]:
    return [float(f"{v:.{digits}g}") if math.isfinite(v) else None for v in values]


def _colour(agent: str) -> str:
    return STYLES[agent].colour if agent in STYLES else _OTHER_COLOUR


# --- agents compared -----------------------------------------------------------------------------


def compare_view(runs: Runs, environment: str, noise: str, unit: str) -> dict[str, Any]:
    """The agents of one environment: the mean over seeds, and their range.

    Args:
        runs: all of them.
        environment: its name; the first one if there is no such environment.
        noise: evaluations with noise "on" or "off"; agents without noise have only one mode.
        unit: of the x axis, "frames" or "hours" of training and evaluation.
    """
    names = sorted({run.config.environment for run in runs.by_key.values()} - {""})
    chosen = environment if environment in names else next(iter(names), None)
    groups = _groups([run for run in runs.by_key.values() if run.config.environment == chosen])
    curves = {
        name: [curve for run in group if (curve := _curve(run, noise, unit)) is not None]
        for name, group in groups.items()
    }
    points = [x for found in curves.values() for x, _ in found]
    grid = np.unique(np.concatenate([np.empty(0), *points]))
    if unit == "hours" or len(grid) > GRID_POINTS:  # seeds do not share their hours
        grid = np.linspace(0.0, grid[-1], GRID_POINTS) if len(grid) else grid
    lines, table, used = [], [], Counter[str]()
    for name, group in groups.items():
        agent = group[0].config.agent
        used[agent] += 1
        style = {"name": name, "colour": _colour(agent), "dash": used[agent] - 1}
        seeds = [np.interp(grid, x, y, left=np.nan, right=np.nan) for x, y in curves[name]]
        lines += [style | line for line in _mean_and_range(np.array(seeds))] if seeds else []
        table.append({**style, **_summary(group, [y for _, y in curves[name]])})
    title = f"{chosen}: mean and range over seeds" if chosen else "No runs yet"
    x = _rounded(grid, 12 if unit == "frames" else 5)
    return {
        "environments": names,
        "chosen": chosen,
        "chart": {"title": title, "unit": unit, "x": x, "lines": lines},
        "table": table,
    }


def _mean_and_range(seeds: Floats) -> list[dict[str, Any]]:
    """Lines of the mean over seeds [S, K]: as far as all have come, and on from there.

    A single line would jump wherever a seed ends.
    """
    complete = np.asarray(~np.isnan(seeds).any(axis=0))
    some = np.asarray(~np.isnan(seeds).all(axis=0))
    end = int(np.flatnonzero(complete)[-1]) if complete.any() else 0
    ahead = some & (np.arange(len(some)) >= end)

    def over(where: NDArray[np.bool_], function: Callable[..., Floats]) -> list[float | None]:
        values = np.full(len(some), np.nan)
        if where.any():
            values[where] = function(seeds[:, where], axis=0)
        return _rounded(values)

    lines: list[dict[str, Any]] = [{"y": over(complete, np.mean)}]
    if len(seeds) > 1:
        lines[0] |= {"low": over(complete, np.min), "high": over(complete, np.max)}
    if ahead.sum() > complete.any():  # more than the point at which it begins
        lines.append({"y": over(ahead, np.nanmean), "faint": True})
    return lines


def _groups(runs: Sequence[WatchedRun]) -> dict[str, list[WatchedRun]]:
    """Runs by agent, and by the settings in which they differ; in the order of the report."""
    found: dict[str, list[WatchedRun]] = {}
    agents = {run.config.agent for run in runs}
    for agent in sorted(agents, key=lambda a: (AGENTS.index(a) if a in AGENTS else 99, a)):
        of_agent = [run for run in runs if run.config.agent == agent]
        common = dict(Counter(run.settings for run in of_agent).most_common(1)[0][0])
        title = STYLES[agent].title if agent in STYLES else agent
        for run in of_agent:
            variant = settings_difference(dict(run.settings), common)
            found.setdefault(f"{title} [{variant}]" if variant else title, []).append(run)
    return found


def _curve(run: WatchedRun, noise: str, unit: str) -> tuple[Floats, Floats] | None:
    """The evaluations of a run, [K] and [K], with x increasing; None if it has none."""
    samples = run.evaluations.get(noise) or next(iter(run.evaluations.values()), None)
    if samples is None or (unit == "hours" and not run.clock.x):
        return None
    x, y = np.array(samples.x), np.array(samples.columns["score"])
    if unit == "hours":
        x = np.interp(x, run.clock.x, run.clock.columns["hours"])
    x, first = np.unique(x[np.isfinite(y)], return_index=True)
    return (x, y[np.isfinite(y)][first]) if len(x) else None


def _summary(group: Sequence[WatchedRun], scores: Sequence[Floats]) -> dict[str, Any]:
    last = [float(y[-1]) for y in scores]
    best = [float(y.max()) for y in scores]
    return {
        "seeds": len(group),
        "frames": min(run.frames for run in group),
        "last": _finite(float(np.mean(last))) if last else None,
        "best": _finite(float(np.mean(best))) if best else None,
        "states": dict(Counter(run.state for run in group)),
    }
