"""Lists the runs of a study that its `data.jsonl` lacks, and the sweeps that make them.

python results/missing.py minatar --out runs/minatar
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from collect import committed, plan_changed, planned, run_key
from studies import RESULTS, STUDIES, load_study

from noisynet.experiments import RunSpec

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def list_missing(study: str, out: Path, results: Path = RESULTS) -> str:
    """The missing runs of a study, and commands that make them.

    A sweep takes agents, environments and seeds, but no variants: the commands may also make runs
    that are in `data.jsonl`.

    Args:
        study: one of `STUDIES`.
        out: the --out of the sweeps.
        results: the folder of all studies.
    """
    specs, stored = planned(study, out, results), load_study(study, results)
    present = committed(stored, results)
    missing = [spec for spec in specs if run_key(spec) not in present]
    lines = [f"{study}: {len(missing)} of {len(specs)} runs are missing"]
    if stored is not None and plan_changed(stored, results):
        lines[0] += "; the plan was changed after its data"
    lines += [f"  {spec.name}" for spec in missing]
    lines += sweeps(f"results/{study}/plan.toml", specs, missing, out)
    cells = {_cell(spec) for spec in missing}
    more = sum(_cell(spec) in cells for spec in specs) - len(missing)
    if more:
        lines.append(f"The commands make other variants, too: {more} runs that are not missing.")
    return "\n".join(lines)


def sweeps(plan: str, specs: Sequence[RunSpec], missing: Sequence[RunSpec], out: Path) -> list[str]:
    """Commands that make the missing ones of the runs of a plan."""
    seeds = _grouped(((spec.environment, spec.agent), spec.seed) for spec in missing)
    agents = _grouped(((e, tuple(sorted(which))), agent) for (e, agent), which in seeds.items())
    grids = _grouped(((names, which), e) for (e, which), names in agents.items())
    commands = []
    for (names, which), environments in grids.items():
        words = ["noisynet", "sweep", plan]
        if set(names) != {spec.agent for spec in specs}:
            words += ["--agents", ",".join(names)]
        if set(environments) != {spec.environment for spec in specs}:
            words += ["--environments", ",".join(environments)]
        if set(which) != {spec.seed for spec in specs}:
            # "--seeds 2" would be two seeds.
            one = f"{which[0]}-{which[0]}"
            words += ["--seeds", ",".join(map(str, which)) if len(which) > 1 else one]
        commands.append(shlex.join([*words, "--out", str(out)]))
    return commands


def _cell(spec: RunSpec) -> tuple[str, str, int]:
    """What the options of a sweep can tell apart."""
    return spec.agent, spec.environment, spec.seed


def _grouped(pairs: Iterable[tuple[_Key, _Value]]) -> dict[_Key, tuple[_Value, ...]]:
    """The different values of each key, in order."""
    groups: dict[_Key, dict[_Value, None]] = {}
    for key, value in pairs:
        groups.setdefault(key, {})[value] = None
    return {key: tuple(values) for key, values in groups.items()}


def main() -> None:
    """List what is missing of a study from the command line."""
    parser = argparse.ArgumentParser(description="List the runs that results/STUDY/ lacks")
    parser.add_argument("study", choices=STUDIES, help="the study")
    parser.add_argument("--out", type=Path, help="the --out of the sweeps; default: runs/STUDY")
    given = parser.parse_args()
    print(list_missing(given.study, given.out or Path("runs") / given.study))


if __name__ == "__main__":
    main()
