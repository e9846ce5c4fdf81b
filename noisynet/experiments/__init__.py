"""Experiments: many runs planned, carried out on one machine or a cluster, and continued.

Nothing here imports torch: the runs are processes of their own. Names are loaded when first used
(PEP 562), so that such a process does not load what only the sweep needs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from noisynet.experiments.plan import Plan, RunSpec, build_plan
    from noisynet.experiments.plan_file import PLANS, PlanError
    from noisynet.experiments.sweep import PLACES, Failure, SweepSummary, run_sweep

__all__ = [
    "PLACES",
    "PLANS",
    "Failure",
    "Plan",
    "PlanError",
    "RunSpec",
    "SweepSummary",
    "build_plan",
    "run_sweep",
]

_LOADED_LATER = {
    "Failure": "sweep",
    "PLACES": "sweep",
    "PLANS": "plan_file",
    "Plan": "plan",
    "PlanError": "plan_file",
    "RunSpec": "plan",
    "SweepSummary": "sweep",
    "build_plan": "plan",
    "run_sweep": "sweep",
}


def __getattr__(name: str) -> object:
    if name not in _LOADED_LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(f"{__name__}.{_LOADED_LATER[name]}"), name)
    globals()[name] = value
    return value
