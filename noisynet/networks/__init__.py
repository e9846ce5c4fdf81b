"""Networks: a torso, a head, and the two put together."""

from noisynet.networks.build import NetworkShape, ValueNetwork, view_with_own_noise
from noisynet.networks.heads import DuelingHead, QHead, fully_connected
from noisynet.networks.torso import Torso, TorsoKind

__all__ = [
    "DuelingHead",
    "NetworkShape",
    "QHead",
    "Torso",
    "TorsoKind",
    "ValueNetwork",
    "fully_connected",
    "view_with_own_noise",
]
