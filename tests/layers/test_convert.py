from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import nn

from noisynet.layers import (
    NoisyLinear,
    NoisyLSTMCell,
    held_noise,
    make_noisy,
    make_plain,
    noise_off,
    noisy_layers,
)


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.Linear(8, 2, bias=False))


def test_every_linear_layer_is_converted_and_the_original_is_unchanged() -> None:
    plain = network()
    noisy, names = make_noisy(plain, noise="independent", sigma0=0.1)
    assert names == ["0", "2", "3"]
    assert not noisy_layers(plain)
    for layer in noisy_layers(noisy).values():
        assert (layer.noise, layer.sigma0) == ("independent", 0.1)
    assert noisy_layers(noisy)["3"].bias_mu is None
    assert noisy(torch.zeros(5, 4)).shape == (5, 2)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (["3", "0"], ["0", "3"]),
        ("2", ["2"]),
        (lambda name, layer: layer.out_features == 8, ["0", "2"]),
    ],
)
def test_where_chooses_by_name_or_predicate(where: Any, expected: list[str]) -> None:
    noisy, names = make_noisy(network(), where)
    assert names == expected
    assert list(noisy_layers(noisy)) == expected


def test_keep_weights_uses_the_trained_weights_as_means() -> None:
    plain, x = network(), torch.randn(5, 4)
    noisy, _ = make_noisy(plain, keep_weights=True)
    with noise_off(noisy):
        torch.testing.assert_close(noisy(x), plain(x))
    assert not torch.allclose(noisy(x), plain(x))


def test_without_keep_weights_the_means_are_initialised_as_in_the_paper() -> None:
    plain = nn.Linear(4, 8)
    noisy, _ = make_noisy(plain, generator=torch.Generator().manual_seed(1))
    assert isinstance(noisy, NoisyLinear)
    assert not torch.allclose(noisy.weight_mu, plain.weight)
    assert noisy.weight_mu.abs().max() <= 0.5


def test_a_bare_linear_layer_becomes_a_noisy_one() -> None:
    noisy, names = make_noisy(nn.Linear(4, 8).double().eval())
    assert names == [""]
    assert isinstance(noisy, NoisyLinear)
    assert noisy.weight_mu.dtype == torch.float64
    assert not noisy.training


def test_a_shared_layer_is_converted_once_and_stays_shared() -> None:
    layer = nn.Linear(4, 4)
    noisy, names = make_noisy(nn.Sequential(layer, nn.ReLU(), nn.Sequential(layer)))
    assert names == ["0"]
    assert isinstance(noisy, nn.Sequential)
    inner = noisy[2]
    assert isinstance(inner, nn.Sequential)
    assert noisy[0] is inner[0]


def test_lstm_cells_are_converted() -> None:
    net = nn.ModuleDict({"cell": nn.LSTMCell(3, 4), "head": nn.Linear(4, 2)})
    noisy, names = make_noisy(net)
    assert names == ["cell", "head"]
    assert isinstance(noisy, nn.ModuleDict)
    assert isinstance(noisy["cell"], NoisyLSTMCell)


def test_frozen_weights_stay_frozen() -> None:
    plain = nn.Linear(4, 8)
    plain.weight.requires_grad_(False)
    noisy, _ = make_noisy(plain, keep_weights=True)
    assert isinstance(noisy, NoisyLinear)
    assert not noisy.weight_mu.requires_grad
    assert noisy.weight_sigma.requires_grad


@pytest.mark.parametrize(
    ("module", "where", "message"),
    [
        (nn.ReLU(), None, "found nothing to convert"),
        (network(), lambda name, layer: False, "found nothing to convert"),
        (network(), [], "found nothing to convert"),
        (network(), ["9"], r"expected '9' to name an nn.Linear .* found no such layer"),
        (network(), ["1"], "found a ReLU"),
        (nn.Sequential(NoisyLinear(2, 2)), None, "has noisy layers already"),
    ],
)
def test_a_module_with_nothing_to_convert_is_refused(
    module: nn.Module, where: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make_noisy(module, where)


def test_a_misspelt_name_is_answered_with_the_nearest_one() -> None:
    net = nn.ModuleDict({"advantage": nn.Linear(2, 2), "value": nn.Linear(2, 1)})
    with pytest.raises(ValueError, match="Did you mean 'advantage'"):
        make_noisy(net, ["advantages"])


def test_tied_parameters_are_refused() -> None:
    net = nn.ModuleDict({"first": nn.Linear(3, 3), "second": nn.Linear(3, 3)})
    net["second"].weight = net["first"].weight
    with pytest.raises(ValueError, match="tied to another layer"):
        make_noisy(net, ["first"])


def test_a_shared_layer_can_be_chosen_by_any_of_its_names() -> None:
    layer = nn.Linear(4, 4)
    _, names = make_noisy(nn.Sequential(layer, nn.ReLU(), nn.Sequential(layer)), ["2.0"])
    assert names == ["0"]


def test_layers_with_hooks_are_refused() -> None:
    net = network()
    net[0].register_forward_hook(lambda module, inputs, output: None)
    with pytest.raises(ValueError, match="'0' to have no hooks"):
        make_noisy(net)


@pytest.mark.parametrize("where", [5, [0]])
def test_where_must_be_names_or_a_predicate(where: Any) -> None:
    with pytest.raises(TypeError, match="where expected names of layers or a predicate"):
        make_noisy(network(), where)


# --- back to ordinary layers ----------------------------------------------------------------------


def noisy_network() -> nn.Module:
    layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3, bias=False))
    return make_noisy(layers)[0]


@pytest.mark.parametrize("noise", [False, True])
def test_make_plain_computes_what_the_noisy_network_does(noise: bool) -> None:
    noisy, x = noisy_network(), torch.randn(5, 4)
    before = held_noise(noisy)
    plain = make_plain(noisy, noise=noise)
    with nullcontext() if noise else noise_off(noisy):
        torch.testing.assert_close(plain(x), noisy(x))
    assert [type(layer) for layer in plain.children()] == [nn.Linear, nn.ReLU, nn.Linear]
    assert plain[2].bias is None  # type: ignore[index]
    assert isinstance(noisy[0], NoisyLinear)  # type: ignore[index]
    after = held_noise(noisy)
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_make_plain_is_the_reverse_of_make_noisy() -> None:
    network = nn.Sequential(nn.Linear(4, 8), nn.LSTMCell(8, 2))
    network[0].weight.requires_grad_(False)
    plain = make_plain(make_noisy(network, keep_weights=True)[0])
    assert isinstance(plain[1], nn.LSTMCell)  # type: ignore[index]
    expected, found = dict(network.named_parameters()), dict(plain.named_parameters())
    assert expected.keys() == found.keys()
    for name, parameter in expected.items():
        assert torch.equal(parameter, found[name])
        assert parameter.requires_grad == found[name].requires_grad


def test_make_plain_of_a_noisy_lstm_cell_computes_what_its_sample_does() -> None:
    cell = NoisyLSTMCell(3, 2)
    plain, x = make_plain(cell, noise=True), torch.randn(4, 3)
    for one, other in zip(plain(x), cell(x), strict=True):
        torch.testing.assert_close(one, other)


def test_make_plain_keeps_a_shared_layer_shared_and_its_dtype() -> None:
    layer = NoisyLinear(4, 4, dtype=torch.float64)
    plain = make_plain(nn.Sequential(layer, nn.ReLU(), layer))
    assert plain[0] is plain[2]  # type: ignore[index]
    assert plain[0].weight.dtype == torch.float64  # type: ignore[index]


def test_make_plain_refuses_what_it_cannot_convert() -> None:
    with pytest.raises(ValueError, match="got a Linear with no noisy layers"):
        make_plain(nn.Linear(2, 2))
    layer = NoisyLinear(2, 2)
    layer.resample_noise(rows=3)
    with pytest.raises(ValueError, match="one sample for each row of a batch"):
        make_plain(layer, noise=True)
    assert torch.equal(make_plain(layer).weight, layer.weight_mu)  # type: ignore[arg-type]
