"""Training loops, and the runs that log, evaluate, save and resume them.

Names are imported on first use: supervising workers needs neither torch nor an emulator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noisynet.lazy import lazy_attributes

if TYPE_CHECKING:
    from noisynet.loops.async_actors import WorkersFailed
    from noisynet.loops.episodes import FinishedEpisode
    from noisynet.loops.launch import load_agent, open_run, open_run_folder, train, try_build
    from noisynet.loops.off_policy import OffPolicyLoop
    from noisynet.loops.run import Outcome, Run
    from noisynet.loops.run_log import Observer
    from noisynet.loops.supervisor import PATIENCE_SECONDS, Health, Phase

__all__ = [
    "PATIENCE_SECONDS",
    "FinishedEpisode",
    "Health",
    "Observer",
    "OffPolicyLoop",
    "Outcome",
    "Phase",
    "Run",
    "WorkersFailed",
    "load_agent",
    "open_run",
    "open_run_folder",
    "train",
    "try_build",
]

__getattr__ = lazy_attributes(
    __name__,
    {
        "async_actors": ["WorkersFailed"],
        "episodes": ["FinishedEpisode"],
        "launch": ["load_agent", "open_run", "open_run_folder", "train", "try_build"],
        "off_policy": ["OffPolicyLoop"],
        "run": ["Outcome", "Run"],
        "run_log": ["Observer"],
        "supervisor": ["PATIENCE_SECONDS", "Health", "Phase"],
    },
)
