"""The noisy layers of "Noisy Networks for Exploration"."""

from noisynet.layers.control import (
    build_weights,
    forget_weights,
    held_noise,
    hold_noise,
    noise_off,
    noisy_layers,
    resample_noise,
    sigma_summary,
)
from noisynet.layers.convert import make_noisy
from noisynet.layers.linear import DEFAULT_SIGMA0, Noise, NoisyLinear, scale_noise
from noisynet.layers.lstm import NoisyLSTMCell

__all__ = [
    "DEFAULT_SIGMA0",
    "Noise",
    "NoisyLSTMCell",
    "NoisyLinear",
    "build_weights",
    "forget_weights",
    "held_noise",
    "hold_noise",
    "make_noisy",
    "noise_off",
    "noisy_layers",
    "resample_noise",
    "scale_noise",
    "sigma_summary",
]
