"""NoisyNet inside the libraries that people already use, and the audit of their agents' noise."""

from noisynet.integrations.agents import LIBRARIES, check_noise, load

__all__ = ["LIBRARIES", "check_noise", "load"]
