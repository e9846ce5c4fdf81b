"""Networks: a torso, a head, and whole networks of both."""

from noisynet.networks.actor_critic import (
    ActorCriticNetwork,
    ActorCriticNetworkShape,
    LSTMState,
)
from noisynet.networks.build import (
    NetworkShape,
    ValueNetwork,
    freeze_sigma,
    noisy_linear,
    view_with_own_noise,
)
from noisynet.networks.flat_parameters import flatten_parameters, offsets_of, views_of
from noisynet.networks.heads import DuelingHead, QHead, fully_connected
from noisynet.networks.torso import (
    CONVOLUTIONS,
    Convolution,
    Torso,
    resolve_torso,
)

__all__ = [
    "CONVOLUTIONS",
    "ActorCriticNetwork",
    "ActorCriticNetworkShape",
    "Convolution",
    "DuelingHead",
    "LSTMState",
    "NetworkShape",
    "QHead",
    "Torso",
    "ValueNetwork",
    "flatten_parameters",
    "freeze_sigma",
    "fully_connected",
    "noisy_linear",
    "offsets_of",
    "resolve_torso",
    "view_with_own_noise",
    "views_of",
]
