from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from noisynet.audit import NoiseLog, NoiseSample


def sample(seed: int, rows: int = 1) -> NoiseSample:
    torch.manual_seed(seed)
    first, *others = (NoiseSample(torch.randn(3, 2), torch.randn(3), True) for _ in range(rows))
    return replace(first, other_rows=tuple(others))


def indices(log: NoiseLog) -> list[int]:
    return [event.sample_index for event in log.events]


def test_distinct_samples_of_a_layer_are_numbered_in_order_of_first_use() -> None:
    log = NoiseLog()
    for seed in (5, 6, 5, 7, 6):
        log.add("online", "0", None, sample(seed))
    assert indices(log) == [1, 2, 1, 3, 2]


def test_more_samples_than_the_table_holds_are_numbered() -> None:
    log = NoiseLog()
    for seed in [*range(200), 150]:
        log.add("", "0", None, sample(seed))
    assert indices(log) == [*range(1, 201), 151]


def test_rounding_errors_are_tolerated_and_larger_differences_are_not() -> None:
    log, first = NoiseLog(), sample(0)
    for shift in (0.0, 1e-3, 1e-1):
        log.add("", "0", None, replace(first, weight=first.weight + shift))
    assert indices(log) == [1, 1, 2]


def test_layers_and_networks_are_numbered_separately() -> None:
    log = NoiseLog()
    for network, layer in (("online", "0"), ("online", "2"), ("target", "0")):
        log.add(network, layer, None, sample(3))
    assert indices(log) == [1, 1, 1]


def test_a_shared_sample_and_per_row_samples_are_never_the_same() -> None:
    log = NoiseLog()
    for rows in (1, 2, 1, 2, 3):
        log.add("", "0", rows, sample(1, rows))
    assert indices(log) == [1, 2, 1, 2, 3]


def test_a_pass_without_noise_has_index_0() -> None:
    log, silent = NoiseLog(), NoiseSample(torch.zeros(3, 2), torch.zeros(3), True)
    log.add("", "0", None, silent)
    log.add("", "0", 2, replace(sample(0), other_rows=(silent,)))  # one row of two
    assert indices(log) == [0, 0]
    assert not any(event.noisy for event in log.events)


@pytest.mark.parametrize("bias", [None, torch.ones(3)])
def test_a_sample_is_noise_if_its_weight_or_bias_is(bias: torch.Tensor | None) -> None:
    assert NoiseSample(torch.zeros(3, 2), bias, True).is_noise == (bias is not None)


def test_events_are_selected_and_counted() -> None:
    log = NoiseLog()
    log.label = "act"
    with torch.no_grad():
        log.add("online", "0", None, sample(0))
    log.label = "learn"
    log.add("online", "0", None, sample(0))
    log.add("online", "2", None, sample(1))
    log.add("target", "0", None, NoiseSample(torch.zeros(3, 2), None, True))
    assert [event.layer for event in log.select("learn", "online")] == ["0", "2"]
    assert len(log.select(with_gradient=False)) == 1
    assert len(log.select(layer="0", with_gradient=True)) == 2
    assert log.counts() == {"passes": 4, "noisy": 3, "distinct": 2}
    assert log.counts("learn", "target") == {"passes": 1, "noisy": 0, "distinct": 0}
