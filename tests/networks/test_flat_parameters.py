"""A network's parameters as views of one vector."""

from __future__ import annotations

import torch
from torch import nn

from noisynet.layers import NoisyLinear
from noisynet.networks import flatten_parameters, offsets_of, views_of


def network() -> nn.Sequential:
    """Convolutions in both memory layouts, noisy layers, and sizes that are no multiple of 16."""
    first = nn.Conv2d(4, 6, 3)
    first.weight.data = first.weight.data.contiguous(memory_format=torch.channels_last)
    second = nn.Conv2d(6, 5, 3)
    return nn.Sequential(first, second, nn.Flatten(), NoisyLinear(5 * 6 * 6, 7), nn.Linear(7, 1))


def test_parameters_become_views_and_keep_values_and_memory_layout() -> None:
    net = network()
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    strides = {name: p.stride() for name, p in net.named_parameters()}
    outputs = net(torch.ones(2, 4, 10, 10))
    flat = flatten_parameters(net.parameters())
    assert flat.dim() == 1
    for name, parameter in net.named_parameters():
        assert torch.equal(parameter, before[name])
        assert parameter.stride() == strides[name]
        assert parameter.untyped_storage().data_ptr() == flat.untyped_storage().data_ptr()
        assert parameter.requires_grad
    assert torch.equal(net(torch.ones(2, 4, 10, 10)), outputs)
    flat.zero_()
    assert all(not bool(parameter.any()) for parameter in net.parameters())


def test_every_parameter_starts_at_its_offset_on_a_cache_line() -> None:
    net = network()
    flat = flatten_parameters(net.parameters())
    offsets = offsets_of(net.parameters())
    assert [offset % 16 for offset in offsets] == [0] * len(offsets)
    for offset, parameter in zip(offsets, net.parameters(), strict=True):
        assert parameter.data_ptr() == flat[offset:].data_ptr()


def test_no_two_parameters_overlap_and_the_padding_is_zero() -> None:
    net = network()
    flat = flatten_parameters(net.parameters())
    for view in views_of(flat, net.parameters()):
        view.zero_()
    assert not bool(flat.any())
    for view in views_of(flat, net.parameters()):
        view += 1
    assert float(flat.max()) == 1.0
    assert int(flat.sum()) == sum(parameter.numel() for parameter in net.parameters())


def test_views_of_another_vector_have_the_offsets_of_the_parameters() -> None:
    net = network()
    flat = flatten_parameters(net.parameters())
    gradient = torch.zeros_like(flat)
    for view, parameter in zip(views_of(gradient, net.parameters()), net.parameters(), strict=True):
        assert view.stride() == parameter.stride()
        view.copy_(parameter.detach())
    assert torch.equal(gradient, flat)


def test_parameters_that_are_not_given_keep_their_memory() -> None:
    net = network()
    before = {name: p.clone() for name, p in net.named_parameters() if "sigma" in name}
    flat = flatten_parameters(p for name, p in net.named_parameters() if name not in before)
    flat.zero_()
    assert len(before) == 2
    for name, parameter in net.named_parameters():
        assert torch.equal(parameter, before[name]) if name in before else not parameter.any()


def test_gradients_of_views_train_the_vector() -> None:
    net = network()
    flat = flatten_parameters(net.parameters())
    before = flat.clone()
    net(torch.randn(2, 4, 10, 10)).sum().backward()
    torch.optim.SGD(net.parameters(), lr=0.1).step()
    assert not torch.equal(flat, before)
