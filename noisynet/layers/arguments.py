"""Checks of the layers' arguments: every error says what was expected and what was given."""

from __future__ import annotations

import difflib
import math
import numbers
import operator
from collections.abc import Mapping
from typing import Final, Literal, get_args

import torch
from torch import Tensor

Noise = Literal["factorised", "independent"]
"""How ε is drawn: p + q numbers for a layer of p inputs and q outputs, or one for each weight."""

Distribution = Literal["gaussian", "uniform", "rademacher"]
"""The distribution of these numbers. Each has mean 0 and variance 1; the paper's is Gaussian, which
it calls no restriction (section 1). Uniform: on [−√3, √3]. Rademacher: −1 or 1."""

NoiseFunction = Literal["signed_sqrt", "identity"]
"""f of factorised noise (Eqs. 10, 11): the paper's sgn(x)√|x|, or x itself."""

DEFAULT_SIGMA0: Final[dict[str, float]] = {"factorised": 0.5, "independent": 0.017}
"""σ0 of section 3.2: divided by √p for factorised noise, used as it is for independent noise."""


def check_size(name: str, value: int) -> int:
    """Return `value` as an int (NumPy integers are accepted), or raise naming the argument."""
    try:
        size = operator.index(value)
    except TypeError:
        size = None
    if size is None or isinstance(value, bool):
        raise TypeError(f"{name} expected a positive integer, got {value!r}.")
    if size < 1:
        raise ValueError(f"{name} expected a positive integer, got {size}.")
    return size


def check_choice(name: str, value: str, choices: object) -> None:
    """Refuse a value that is none of the choices, and suggest the nearest one.

    Args:
        name: of the argument.
        value: what was given.
        choices: a `Literal`, such as `Noise`.
    """
    *others, last = get_args(choices)
    if value not in (*others, last):
        near = difflib.get_close_matches(str(value), (*others, last), n=1, cutoff=0.3)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        expected = f"{', '.join(map(repr, others))} or {last!r}"
        raise ValueError(f"{name} expected {expected}, got {value!r}{hint}")


def check_noise_options(noise: Noise, distribution: Distribution, f: NoiseFunction) -> None:
    """Refuse unknown names, and an f for independent noise, which has none."""
    check_choice("noise", noise, Noise)
    check_choice("distribution", distribution, Distribution)
    check_choice("f", f, NoiseFunction)
    if noise == "independent" and f != "signed_sqrt":
        raise ValueError(
            "f expected 'signed_sqrt', the default, with independent noise, which f does not "
            f"shape, got {f!r}."
        )


def check_dtype(dtype: torch.dtype | None) -> None:
    """Refuse a dtype that is not floating-point."""
    if dtype is not None and not dtype.is_floating_point:
        raise TypeError(f"dtype expected a floating-point type such as torch.float32, got {dtype}.")


def checked_sigma0(sigma0: float | None, noise: Noise) -> float:
    """Return σ0 as a float, the paper's value where it is None."""
    if sigma0 is None:
        return DEFAULT_SIGMA0[noise]
    if not isinstance(sigma0, numbers.Real) or isinstance(sigma0, bool):
        raise TypeError(f"sigma0 expected a number of at least 0, got {sigma0!r}.")
    if not math.isfinite(sigma0) or sigma0 < 0:
        raise ValueError(f"sigma0 expected a finite number of at least 0, got {sigma0}.")
    return float(sigma0)


def check_generator(generator: torch.Generator | None, device: torch.device) -> None:
    """Refuse a generator that lives on another kind of device than the weights."""
    if generator is not None and generator.device.type != device.type:
        raise ValueError(
            f"NoisyLinear expected a generator on {device.type}, where its weights are, "
            f"got one on {generator.device.type}; make it with "
            f"torch.Generator(device={device.type!r})."
        )


def check_input(x: Tensor, features: int, dtype: torch.dtype, rows: int | None) -> None:
    """Refuse inputs whose shape or dtype does not fit the layer.

    Args:
        x: the input.
        features: expected size of the last dimension.
        dtype: expected dtype, unless autocast converts.
        rows: expected size of the second-to-last dimension; None for any.
    """
    if x.shape[-1:] != (features,):
        raise ValueError(
            f"NoisyLinear expected inputs of shape [..., {features}], got {list(x.shape)}."
        )
    if x.dtype != dtype and not torch.is_autocast_enabled(x.device.type):
        raise TypeError(
            f"NoisyLinear expected {dtype} inputs, got {x.dtype}; "
            "convert the input, or the layer with .to(dtype)."
        )
    if rows is not None and x.shape[-2:-1] != (rows,):
        raise ValueError(
            f"NoisyLinear holds noise for {rows} rows and expected inputs of shape "
            f"[..., {rows}, {features}], got {list(x.shape)}; call "
            "resample_noise without rows to share one sample over the batch."
        )


def check_held_noise(noise: Mapping[str, Tensor], single: Mapping[str, torch.Size]) -> int | None:
    """Check samples that are to be held again, and return their number of rows.

    Args:
        noise: the samples by buffer name.
        single: the shape of each buffer with one sample for the whole batch.
    """
    leads = {
        tuple(value.shape[: value.dim() - len(single.get(k, ()))]) for k, value in noise.items()
    }
    fits = noise.keys() == single.keys() and all(
        value.shape[value.dim() - len(single[name]) :] == single[name]
        for name, value in noise.items()
    )
    if not fits or len(leads) != 1 or len(next(iter(leads))) > 1:
        came = {name: list(value.shape) for name, value in noise.items()}
        raise ValueError(
            f"hold_noise expected samples { {n: list(v) for n, v in single.items()} }, with or "
            f"without a leading dimension for rows, got {came}."
        )
    lead = next(iter(leads))
    return lead[0] if lead else None
