"""Experiments: many runs planned, carried out on one machine or a cluster, and continued.

Nothing here imports torch: the runs are processes of their own. Names are loaded when first used
(PEP 562), so that such a process does not load what only the sweep needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noisynet.lazy import lazy_attributes

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

__getattr__ = lazy_attributes(
    __name__,
    {
        "plan": ["Plan", "RunSpec", "build_plan"],
        "plan_file": ["PLANS", "PlanError"],
        "sweep": ["PLACES", "Failure", "SweepSummary", "run_sweep"],
    },
)
