"""Checks of arguments: what is accepted, and errors that say what was expected and what came."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from noisynet.layers.arguments import (
    DEFAULT_SIGMA0,
    Distribution,
    Noise,
    check_choice,
    check_dtype,
    check_generator,
    check_held_noise,
    check_input,
    check_noise_options,
    check_size,
    checked_sigma0,
)


@pytest.mark.parametrize(
    ("check", "error", "message"),
    [
        (
            lambda: check_size("rows", 0),
            ValueError,
            "rows expected a positive integer, got 0.",
        ),
        (
            lambda: check_size("rows", -1),
            ValueError,
            "rows expected a positive integer, got -1.",
        ),
        (
            lambda: check_size("rows", 4.0),  # type: ignore[arg-type]
            TypeError,
            "rows expected a positive integer, got 4.0.",
        ),
        (
            lambda: check_size("rows", True),
            TypeError,
            "rows expected a positive integer, got True.",
        ),
        (
            lambda: check_choice("noise", "factorized", Noise),
            ValueError,
            "noise expected 'factorised' or 'independent', got 'factorized'; "
            "did you mean 'factorised'?",
        ),
        (
            lambda: check_choice("noise", "x", Noise),
            ValueError,
            "noise expected 'factorised' or 'independent', got 'x'.",
        ),
        (
            lambda: check_choice("distribution", "rademacker", Distribution),
            ValueError,
            "distribution expected 'gaussian', 'uniform' or 'rademacher', got 'rademacker'; "
            "did you mean 'rademacher'?",
        ),
        (
            lambda: check_noise_options("independent", "uniform", "identity"),
            ValueError,
            "f expected 'signed_sqrt', the default, with independent noise, which f does not "
            "shape, got 'identity'.",
        ),
        (
            lambda: check_dtype(torch.int64),
            TypeError,
            "dtype expected a floating-point type such as torch.float32, got torch.int64.",
        ),
        (
            lambda: checked_sigma0(-0.5, "factorised"),
            ValueError,
            "sigma0 expected a finite number of at least 0, got -0.5.",
        ),
        (
            lambda: checked_sigma0(math.nan, "factorised"),
            ValueError,
            "sigma0 expected a finite number of at least 0, got nan.",
        ),
        (
            lambda: checked_sigma0(math.inf, "factorised"),
            ValueError,
            "sigma0 expected a finite number of at least 0, got inf.",
        ),
        (
            lambda: checked_sigma0("0.5", "factorised"),  # type: ignore[arg-type]
            TypeError,
            "sigma0 expected a number of at least 0, got '0.5'.",
        ),
        (
            lambda: checked_sigma0(True, "factorised"),
            TypeError,
            "sigma0 expected a number of at least 0, got True.",
        ),
        (
            lambda: check_generator(torch.Generator(), torch.device("meta")),
            ValueError,
            "NoisyLinear expected a generator on meta, where its weights are, got one on cpu; "
            "make it with torch.Generator(device='meta').",
        ),
        (
            lambda: check_input(torch.zeros(2, 5), 4, torch.float32, None),
            ValueError,
            "NoisyLinear expected inputs of shape [..., 4], got [2, 5].",
        ),
        (
            lambda: check_input(torch.zeros(()), 4, torch.float32, None),
            ValueError,
            "NoisyLinear expected inputs of shape [..., 4], got [].",
        ),
        (
            lambda: check_input(torch.zeros(2, 4).long(), 4, torch.float32, None),
            TypeError,
            "NoisyLinear expected torch.float32 inputs, got torch.int64; convert the input, or "
            "the layer with .to(dtype).",
        ),
        (
            lambda: check_input(torch.zeros(2, 4), 4, torch.float32, 3),
            ValueError,
            "NoisyLinear holds noise for 3 rows and expected inputs of shape [..., 3, 4], got "
            "[2, 4]; call resample_noise without rows to share one sample over the batch.",
        ),
    ],
)
def test_errors_say_what_was_expected_and_what_was_given(
    check: Callable[[], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        check()


def test_sizes_may_be_numpy_integers() -> None:
    for value in (np.int64(3), np.uint8(3)):
        size = check_size("rows", value)  # type: ignore[arg-type]
        assert size == 3
        assert type(size) is int


@pytest.mark.parametrize("noise", ["factorised", "independent"])
def test_sigma0_defaults_to_the_papers_and_zero_is_allowed(noise: Any) -> None:
    assert checked_sigma0(None, noise) == DEFAULT_SIGMA0[noise]
    assert checked_sigma0(0, noise) == 0.0
    sigma0 = checked_sigma0(np.float32(0.25), noise)  # type: ignore[arg-type]
    assert sigma0 == 0.25
    assert type(sigma0) is float
    check_noise_options(noise, "gaussian", "signed_sqrt")


def test_defaults_are_those_of_section_3_2() -> None:
    assert DEFAULT_SIGMA0 == {"factorised": 0.5, "independent": 0.017}


def test_every_floating_point_dtype_is_accepted() -> None:
    for dtype in (None, torch.float32, torch.float64, torch.bfloat16, torch.float16):
        check_dtype(dtype)


def test_no_generator_and_one_on_the_device_are_accepted() -> None:
    check_generator(None, torch.device("meta"))
    check_generator(torch.Generator(), torch.device("cpu"))


def test_fitting_inputs_are_accepted() -> None:
    for shape in ((4,), (0, 4), (2, 3, 4)):
        check_input(torch.zeros(shape), 4, torch.float32, None)
    check_input(torch.zeros(7, 3, 4), 4, torch.float32, 3)


def test_autocast_may_convert_inputs() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        check_input(torch.zeros(2, 4, dtype=torch.bfloat16), 4, torch.float32, None)


# --- held noise ----------------------------------------------------------------------------------

SINGLE = {"epsilon_in": torch.Size((4,)), "epsilon_out": torch.Size((3,))}


def samples(**shapes: tuple[int, ...]) -> dict[str, Tensor]:
    return {name: torch.zeros(shape) for name, shape in shapes.items()}


def test_held_noise_has_no_rows_or_the_same_number_everywhere() -> None:
    assert check_held_noise(samples(epsilon_in=(4,), epsilon_out=(3,)), SINGLE) is None
    assert check_held_noise(samples(epsilon_in=(5, 4), epsilon_out=(5, 3)), SINGLE) == 5
    assert check_held_noise(samples(epsilon_in=(1, 4), epsilon_out=(1, 3)), SINGLE) == 1


@pytest.mark.parametrize(
    "noise",
    [
        {},
        samples(epsilon_in=(4,)),
        samples(epsilon_in=(4,), epsilon_out=(3,), epsilon_bias=(3,)),
        samples(epsilon_in=(5,), epsilon_out=(3,)),
        samples(epsilon_in=(5, 4), epsilon_out=(3,)),
        samples(epsilon_in=(5, 4), epsilon_out=(6, 3)),
        samples(epsilon_in=(2, 5, 4), epsilon_out=(2, 5, 3)),
        samples(epsilon_weight=(3, 4), epsilon_bias=(3,)),
    ],
    ids=["none", "missing", "extra", "size", "rows in one", "other rows", "dims", "kind"],
)
def test_held_noise_that_does_not_fit_is_refused(noise: dict[str, Tensor]) -> None:
    given = {name: list(value.shape) for name, value in noise.items()}
    message = f"hold_noise expected samples { {'epsilon_in': [4], 'epsilon_out': [3]} }, with or "
    with pytest.raises(ValueError, match=f"^{re.escape(message)}.*{re.escape(f'got {given}.')}$"):
        check_held_noise(noise, SINGLE)
