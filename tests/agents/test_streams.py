"""Random streams: one for each use, reproducible and independent."""

from __future__ import annotations

import itertools

import numpy as np
import torch

from noisynet.agents import numpy_stream, torch_stream

ROLES = ("init", "init noisy", "act", "online", "target", "select", "explore", "replay")


def test_seed_and_role_determine_a_stream() -> None:
    for role in ROLES:
        first, again = torch_stream(5, role), torch_stream(5, role)
        assert torch.equal(torch.randn(8, generator=first), torch.randn(8, generator=again))
        assert np.array_equal(numpy_stream(5, role).random(8), numpy_stream(5, role).random(8))


def test_other_roles_and_other_seeds_give_uncorrelated_numbers() -> None:
    streams = [torch_stream(seed, role) for seed in range(4) for role in ROLES]
    draws = torch.stack([torch.randn(4_000, generator=stream) for stream in streams])
    largest = torch.corrcoef(draws).fill_diagonal_(0.0).abs().max()
    assert float(largest) < 0.08  # five standard errors of 1/√4000
    numbers = [numpy_stream(seed, role).random(4) for seed in range(4) for role in ROLES]
    for first, second in itertools.combinations(numbers, 2):
        assert not np.isin(first, second).any()


def test_a_stream_is_the_same_in_every_process_and_release() -> None:
    """Stored runs rely on it; Python's hash of a string differs between processes."""
    assert torch_stream(3, "act").initial_seed() == 4_108_455_770_398_781_014
    assert int(numpy_stream(3, "act").integers(2**32)) == 981_562_451


def test_making_a_stream_leaves_the_global_generators_unchanged() -> None:
    before = torch.get_rng_state()
    torch.randn(3, generator=torch_stream(0, "act"))
    assert torch.equal(torch.get_rng_state(), before)
