"""Networks: a torso, a head, and whole networks of both."""

from noisynet.networks.actor_critic import (
    ActorCriticNetwork,
    ActorCriticNetworkShape,
    LSTMState,
)
from noisynet.networks.build import (
    CategoricalNetwork,
    NetworkShape,
    ValueNetwork,
    freeze_sigma,
    make_value_network,
    noisy_linear,
    view_with_own_noise,
)
from noisynet.networks.flat_parameters import flatten_parameters, offsets_of, views_of
from noisynet.networks.heads import (
    CategoricalHead,
    DuelingCategoricalHead,
    DuelingHead,
    QHead,
    fully_connected,
)
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
    "CategoricalHead",
    "CategoricalNetwork",
    "Convolution",
    "DuelingCategoricalHead",
    "DuelingHead",
    "LSTMState",
    "NetworkShape",
    "QHead",
    "Torso",
    "ValueNetwork",
    "flatten_parameters",
    "freeze_sigma",
    "fully_connected",
    "make_value_network",
    "noisy_linear",
    "offsets_of",
    "resolve_torso",
    "view_with_own_noise",
    "views_of",
]
