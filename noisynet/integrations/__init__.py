"""NoisyNet in other libraries, and the audit of their agents."""

from noisynet.integrations.dispatch import LIBRARIES, check_noise, load_agent

__all__ = ["LIBRARIES", "check_noise", "load_agent"]
