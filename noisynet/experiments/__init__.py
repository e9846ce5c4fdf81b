"""Sweeps: plans of many runs, run on one machine or a Ray cluster, and resumed.

Runs are processes of their own, so that nothing here imports torch. Submodules are imported on
first use: the process of a run does not load what only the sweep needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noisynet.lazy import lazy_attributes

if TYPE_CHECKING:
    from noisynet.experiments.plan import Plan, RunSpec, build_plan
    from noisynet.experiments.plan_file import PLANS, PlanError
    from noisynet.experiments.process import ProcessOptions
    from noisynet.experiments.sweep import RUNNERS, FailedRun, SweepSummary, run_sweep

__all__ = [
    "PLANS",
    "RUNNERS",
    "FailedRun",
    "Plan",
    "PlanError",
    "ProcessOptions",
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
        "process": ["ProcessOptions"],
        "sweep": ["RUNNERS", "FailedRun", "SweepSummary", "run_sweep"],
    },
)
