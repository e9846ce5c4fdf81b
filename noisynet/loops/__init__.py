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
        "ActorTraining": "async_actors",
        "FinishedEpisode": "off_policy",
        "Health": "supervisor",
        "Observer": "journal",
        "OffPolicyLoop": "off_policy",
        "Outcome": "training",
        "PATIENCE_SECONDS": "supervisor",
        "Phase": "supervisor",
        "RunningEpisode": "replaying",
        "Tick": "off_policy",
        "Training": "training",
        "WorkersFailed": "async_actors",
        "WorkersObserver": "journal",
        "evaluation_modes": "journal",
        "identity": "training",
        "load_agent": "launch",
        "make_actor_training": "async_actors",
        "make_training": "training",
        "rehearse": "launch",
        "train": "launch",
    },
)
