"""NoisyNet in other libraries, and the audit of their agents."""

from noisynet.integrations.dispatch import (
    LIBRARIES,
    audit_arguments,
    check_noise,
    find_function,
    load_agent,
)

__all__ = ["LIBRARIES", "audit_arguments", "check_noise", "find_function", "load_agent"]
