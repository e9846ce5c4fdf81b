"""Agents: what acts and learns."""

from noisynet.agents.actor_critic import ActorCriticAgent
from noisynet.agents.audit import audit_agent
from noisynet.agents.make import Agent, make_agent
from noisynet.agents.pairing import Learner
from noisynet.agents.policy import ActorCriticPolicy
from noisynet.agents.rollout import Rollout, RolloutLearnt
from noisynet.agents.streams import numpy_stream, torch_stream
from noisynet.agents.value import EvaluationPolicy, Learnt, NonFiniteLoss, ValueAgent

__all__ = [
    "ActorCriticAgent",
    "ActorCriticPolicy",
    "Agent",
    "EvaluationPolicy",
    "Learner",
    "Learnt",
    "NonFiniteLoss",
    "Rollout",
    "RolloutLearnt",
    "ValueAgent",
    "audit_agent",
    "make_agent",
    "numpy_stream",
    "torch_stream",
]
