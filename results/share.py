"""Copies to a study the finished runs that the data of another study have with the same settings.

python results/share.py controls minatar

Studies that share runs need not make them twice, also where the run folders are gone.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from collect import (
    CollectError,
    Origin,
    committed,
    describe_origins,
    origins_of,
    planned,
    run_key,
    write_study,
)
from studies import RESULTS, STUDIES, RunData, load_study, plan_digest

_ANY: Path = Path("runs")  # the folder of the runs does not matter


def share(source: str, study: str, results: Path = RESULTS) -> str:
    """Copy finished runs from one study to another that lacks them.

    Args:
        source: the study that has the runs.
        study: the study that lacks them.
        results: the folder of all studies.

    Returns:
        What was copied, one line.

    Raises:
        CollectError: there is nothing to copy, or the data of all studies would be too large.
            Nothing is written.
    """
    given, earlier = load_study(source, results), load_study(study, results)
    offered, present = committed(given, results), committed(earlier, results)
    theirs = {run_key(spec): spec.config for spec in planned(source, _ANY, results)}
    data: dict[str, RunData] = {}
    shared, missing = [], []
    for spec in planned(study, _ANY, results):
        key = run_key(spec)
        if key in present:
            data[spec.name] = present[key]
        elif key in offered and theirs[key] == spec.config:
            data[spec.name] = offered[key]
            shared.append(spec.name)
        else:
            missing.append(spec.name)
    if not shared:
        raise CollectError(
            f"expected finished runs of the study {source} that {study} lacks, with the settings "
            "of both plans; got none"
        )
    kept = [name for name in data if name not in shared]
    origins = origins_of(earlier, kept)
    origins += [_from_study(source, origin) for origin in origins_of(given, shared)]
    provenance: dict[str, Any] = {
        "study": study,
        "plan": plan_digest(results / study / "plan.toml"),
        "planned": len(data) + len(missing),
        "finished": len(data),
        "unfinished": [],
        "missing": missing,
        "collections": describe_origins(origins),
    }
    write_study(provenance, data.values(), results)
    runs = "1 run" if len(shared) == 1 else f"{len(shared)} runs"
    return f"{study}: {runs} of {source} added, {len(missing)} missing"


def _from_study(source: str, origin: Origin) -> Origin:
    """The origin of runs that are copied; their hours are counted in the other study."""
    collection, commits = origin
    hours = {"training": 0.0, "evaluation": 0.0}
    return {"from_study": source, **collection, "hours": hours}, commits


def main() -> None:
    """Share runs from the command line."""
    parser = argparse.ArgumentParser(description="Copy runs from results/SOURCE to results/STUDY")
    parser.add_argument("source", choices=STUDIES, help="the study that has the runs")
    parser.add_argument("study", choices=STUDIES, help="the study that lacks them")
    given = parser.parse_args()
    try:
        print(share(given.source, given.study))
    except CollectError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
