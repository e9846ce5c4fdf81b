"""Agents: what acts and learns."""

from noisynet.agents.actor_critic import ActorCriticAgent
from noisynet.agents.audit import audit_agent
from noisynet.agents.compute import Compute, choose_device, resolve_compute, shared_rmsprop_for
from noisynet.agents.make import Agent, make_agent
from noisynet.agents.policy import ActorCriticPolicy, EvaluationPolicy, ValuePolicy
from noisynet.agents.rollout import Rollout, RolloutLearnt
from noisynet.agents.streams import numpy_stream, torch_stream
from noisynet.agents.update import Learnt, NonFiniteLoss, Update
from noisynet.agents.value import PlainUpdate, ValueAgent

__all__ = [
    "ActorCriticAgent",
    "ActorCriticPolicy",
    "Agent",
    "Compute",
    "EvaluationPolicy",
    "Learnt",
    "NonFiniteLoss",
    "PlainUpdate",
    "Rollout",
    "RolloutLearnt",
    "Update",
    "ValueAgent",
    "ValuePolicy",
    "audit_agent",
    "choose_device",
    "make_agent",
    "numpy_stream",
    "resolve_compute",
    "shared_rmsprop_for",
    "torch_stream",
]
