"""The noisy layers of "Noisy Networks for Exploration", and the audit of their noise."""

from noisynet.layers.arguments import DEFAULT_SIGMA0, Noise
from noisynet.layers.audit import NoiseReport, check_noise
from noisynet.layers.checks import Check, Contract
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
from noisynet.layers.convert import make_noisy
from noisynet.layers.linear import NoisyLinear, Perturb, perturbed_weight, scale_noise
from noisynet.layers.lstm import NoisyLSTMCell
from noisynet.layers.record import NoiseEvent, NoiseLog, NoiseSample, record_noise

__all__ = [
    "DEFAULT_SIGMA0",
    "Check",
    "Contract",
    "Noise",
    "NoiseEvent",
    "NoiseLog",
    "NoiseReport",
    "NoiseSample",
    "NoisyLSTMCell",
    "NoisyLinear",
    "Perturb",
    "cache_weights",
    "check_noise",
    "drop_cached_weights",
    "held_noise",
    "hold_noise",
    "make_noisy",
    "noise_off",
    "noisy_layers",
    "perturbed_weight",
    "record_noise",
    "resample_noise",
    "scale_noise",
    "sigma_summary",
]
