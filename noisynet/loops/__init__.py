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
    from noisynet.loops.off_policy import OffPolicyLoop, Tick
    from noisynet.loops.process import has_large_images
    from noisynet.loops.run import Outcome, Run, Trainer
    from noisynet.loops.run_log import Observer, WorkersObserver
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
    "Tick",
    "Trainer",
    "WorkersFailed",
    "WorkersObserver",
    "has_large_images",
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
        "off_policy": ["OffPolicyLoop", "Tick"],
        "process": ["has_large_images"],
        "run": ["Outcome", "Run", "Trainer"],
        "run_log": ["Observer", "WorkersObserver"],
        "supervisor": ["PATIENCE_SECONDS", "Health", "Phase"],
    },
)
