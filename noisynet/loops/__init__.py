"""Loops: where an agent, an environment and a replay meet, and a run is kept alive."""

from noisynet.loops.journal import Observer, evaluation_modes
from noisynet.loops.off_policy import FinishedEpisode, OffPolicyLoop, RunningEpisode, Tick
from noisynet.loops.training import (
    Outcome,
    Training,
    identity,
    load_agent,
    make_training,
    rehearse,
    train,
)

__all__ = [
    "FinishedEpisode",
    "Observer",
    "OffPolicyLoop",
    "Outcome",
    "RunningEpisode",
    "Tick",
    "Training",
    "evaluation_modes",
    "identity",
    "load_agent",
    "make_training",
    "rehearse",
    "train",
]
