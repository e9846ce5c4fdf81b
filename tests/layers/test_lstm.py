from __future__ import annotations

import pytest
import torch
from torch import nn

from noisynet.layers import Noise, NoisyLSTMCell, make_noisy, noise_off, noisy_layers


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(5, 3), (3,)])
def test_equals_torchs_cell_when_noise_is_off(bias: bool, shape: tuple[int, ...]) -> None:
    plain = nn.LSTMCell(3, 4, bias)
    noisy, names = make_noisy(plain, keep_weights=True)
    assert names == [""]
    assert isinstance(noisy, NoisyLSTMCell)
    state = expected_state = None
    for _ in range(6):
        x = torch.randn(shape)
        with noise_off(noisy):
            state = noisy(x, state)
        expected_state = plain(x, expected_state)
        torch.testing.assert_close(state, expected_state)


@pytest.mark.parametrize("noise", ["factorised", "independent"])
def test_both_matrices_and_biases_are_noisy_each_with_its_own_sample(noise: Noise) -> None:
    cell = NoisyLSTMCell(4, 4, noise=noise)
    layers = noisy_layers(cell)
    assert set(layers) == {"input_gates", "hidden_gates"}
    for layer in layers.values():
        assert layer.bias is not None
        assert layer.bias_mu is not None
        assert not torch.allclose(layer.weight, layer.weight_mu)
        assert not torch.allclose(layer.bias, layer.bias_mu)
    first, second = layers.values()
    assert not torch.allclose(first.weight - first.weight_mu, second.weight - second.weight_mu)


def test_one_sample_is_held_over_a_sequence() -> None:
    cell, x = NoisyLSTMCell(3, 4), torch.randn(6, 2, 3)

    def run() -> torch.Tensor:
        state: tuple[torch.Tensor, torch.Tensor] | None = None
        for step in x:
            state = cell(step, state)
        assert state is not None
        return state[0]

    first = run()
    assert torch.equal(first, run())
    cell.resample_noise()
    assert not torch.allclose(first, run())


def test_each_row_can_have_its_own_sample() -> None:
    cell = NoisyLSTMCell(3, 4)
    cell.resample_noise(rows=5)
    hidden, _ = cell(torch.ones(1, 3).expand(5, 3))
    assert len({tuple(row.tolist()) for row in hidden}) == 5
    with pytest.raises(ValueError, match="noise for 5 rows"):
        cell(torch.ones(2, 3))


@pytest.mark.parametrize("noise", ["factorised", "independent"])
def test_gradients_through_time_pass_gradcheck(noise: Noise) -> None:
    cell = NoisyLSTMCell(2, 3, noise=noise, dtype=torch.float64)
    x = torch.randn(3, 2, 2, dtype=torch.float64)
    names = [name for name, _ in cell.named_parameters()]

    def function(*parameters: torch.Tensor) -> torch.Tensor:
        state: tuple[torch.Tensor, torch.Tensor] | None = None
        for step in x:
            values = dict(zip(names, parameters, strict=True))
            state = torch.func.functional_call(cell, values, (step, state))
        assert state is not None
        return state[0]

    assert torch.autograd.gradcheck(function, tuple(cell.parameters()))


def test_wrong_sizes_and_states_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="hidden_size expected a positive integer, got -1"):
        NoisyLSTMCell(3, -1)
    cell, x = NoisyLSTMCell(3, 4), torch.zeros(5, 3)
    for hidden, state in (((1, 4), (5, 4)), ((5, 4), (5, 1))):
        with pytest.raises(ValueError, match=r"state of shape \[5, 4\], got"):
            cell(x, (torch.zeros(hidden), torch.zeros(state)))
