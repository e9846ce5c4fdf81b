"""Loops: where an agent and an environment meet, and a run is kept alive.

Names are loaded when first used (PEP 562): what watches over workers needs neither torch nor an
emulator.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

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

_LOADED_LATER = {
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
}


def __getattr__(name: str) -> object:
    if name not in _LOADED_LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(f"{__name__}.{_LOADED_LATER[name]}"), name)
    globals()[name] = value
    return value
