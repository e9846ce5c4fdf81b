"""The noisy layers of "Noisy Networks for Exploration"."""

from noisynet.layers.arguments import DEFAULT_SIGMA0, Distribution, Noise, NoiseFunction
from noisynet.layers.control import (
    cache_weights,
    drop_cached_weights,
    held_noise,
    hold_noise,
    noise_off,
    noisy_layers,
    resample_noise,
    sigma_summary,
)
from noisynet.layers.convert import make_noisy, make_plain
from noisynet.layers.linear import NoisyLinear, Perturb, perturbed_weight, scale_noise
from noisynet.layers.lstm import NoisyLSTMCell

__all__ = [
    "DEFAULT_SIGMA0",
    "Distribution",
    "Noise",
    "NoiseFunction",
    "NoisyLSTMCell",
    "NoisyLinear",
    "Perturb",
    "cache_weights",
    "drop_cached_weights",
    "held_noise",
    "hold_noise",
    "make_noisy",
    "make_plain",
    "noise_off",
    "noisy_layers",
    "perturbed_weight",
    "resample_noise",
    "scale_noise",
    "sigma_summary",
]
