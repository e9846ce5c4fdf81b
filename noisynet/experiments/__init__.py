"""Experiments: many runs planned, carried out on one machine or a cluster, and continued.

Nothing here imports torch: the runs are processes of their own.
"""

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
