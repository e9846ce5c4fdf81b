"""Networks: a torso, a head, and the two put together."""

from noisynet.networks.actor_critic import (
    ActorCriticNetwork,
    ActorCriticNetworkShape,
    State,
)
from noisynet.networks.build import NetworkShape, ValueNetwork, noisy_linear, view_with_own_noise
from noisynet.networks.convolutions import Convolved
from noisynet.networks.flat import flatten_parameters, views_of
from noisynet.networks.heads import DuelingHead, QHead, fully_connected
from noisynet.networks.passes import Share, Task, ValuePass, in_turn
from noisynet.networks.torso import Torso, TorsoKind, fitting_torso

__all__ = [
    "ActorCriticNetwork",
    "ActorCriticNetworkShape",
    "Convolved",
    "DuelingHead",
    "NetworkShape",
    "QHead",
    "Share",
    "State",
    "Task",
    "Torso",
    "TorsoKind",
    "ValueNetwork",
    "ValuePass",
    "fitting_torso",
    "flatten_parameters",
    "fully_connected",
    "in_turn",
    "noisy_linear",
    "view_with_own_noise",
    "views_of",
]
