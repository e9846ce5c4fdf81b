"""The audit: which noise sample each pass used, and whether an agent keeps the noise contract."""

from noisynet.audit.checks import Contract
from noisynet.audit.log import NoiseEvent, NoiseLog, NoiseSample
from noisynet.audit.network import audit_network
from noisynet.audit.record import record_noise
from noisynet.audit.report import Check, NoiseReport
from noisynet.audit.synthetic import SyntheticData

__all__ = [
    "Check",
    "Contract",
    "NoiseEvent",
    "NoiseLog",
    "NoiseReport",
    "NoiseSample",
    "SyntheticData",
    "audit_network",
    "record_noise",
]
