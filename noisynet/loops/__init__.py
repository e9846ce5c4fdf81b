"""Loops: where an agent and an environment meet, and a run is kept alive.

Names are loaded when first used (PEP 562): what watches over workers needs neither torch nor an
emulator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noisynet.lazy import lazy_attributes

if TYPE_CHECKING:
    from noisynet.loops.async_actors import ActorTraining, WorkersFailed, make_actor_training
    from noisynet.loops.journal import Observer, WorkersObserver, evaluation_modes
    from noisynet.loops.launch import load_agent, rehearse, train
    from noisynet.loops.off_policy import FinishedEpisode, OffPolicyLoop, Tick
    from noisynet.loops.replaying import RunningEpisode
    from noisynet.loops.supervisor import PATIENCE_SECONDS, Health, Phase
    from noisynet.loops.training import Outcome, Training, identity, make_training

__all__ = [
    "PATIENCE_SECONDS",
    "ActorTraining",
    "FinishedEpisode",
    "Health",
    "Observer",
    "OffPolicyLoop",
    "Outcome",
    "Phase",
    "RunningEpisode",
    "Tick",
    "Training",
    "WorkersFailed",
    "WorkersObserver",
    "evaluation_modes",
    "identity",
    "load_agent",
    "make_actor_training",
    "make_training",
    "rehearse",
    "train",
]

__getattr__ = lazy_attributes(
    __name__,
    {
        "async_actors": ("ActorTraining", "WorkersFailed", "make_actor_training"),
        "journal": ("Observer", "WorkersObserver", "evaluation_modes"),
        "launch": ("load_agent", "rehearse", "train"),
        "off_policy": ("FinishedEpisode", "OffPolicyLoop", "Tick"),
        "replaying": ("RunningEpisode",),
        "supervisor": ("Health", "PATIENCE_SECONDS", "Phase"),
        "training": ("Outcome", "Training", "identity", "make_training"),
    },
)
