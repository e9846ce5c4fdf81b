"""Agents: what acts and learns."""

from noisynet.agents.audit import audit_agent
from noisynet.agents.streams import numpy_stream, torch_stream
from noisynet.agents.value import EvaluationPolicy, Learnt, NonFiniteLoss, ValueAgent

__all__ = [
    "EvaluationPolicy",
    "Learnt",
    "NonFiniteLoss",
    "ValueAgent",
    "audit_agent",
    "numpy_stream",
    "torch_stream",
]
