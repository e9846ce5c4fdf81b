"""Heads of value networks: Eq. 3 and the layers."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import nn

from noisynet.networks import DuelingHead, QHead, fully_connected


def test_dueling_adds_value_and_centred_advantages() -> None:
    """V = 10 and A = (1, 2, 6): Q = 10 + A − 3 = (8, 9, 13)."""
    head = DuelingHead(1, (1,), 3, nn.Linear)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.zero_()
        value, advantage = head.value[-1], head.advantage[-1]
        assert isinstance(value, nn.Linear)
        assert isinstance(advantage, nn.Linear)
        value.bias.fill_(10.0)
        advantage.bias.copy_(torch.tensor([1.0, 2.0, 6.0]))
    assert head(torch.zeros(1, 1)).tolist() == [[8.0, 9.0, 13.0]]


def test_the_mean_over_actions_of_dueling_values_is_v() -> None:
    head, features = DuelingHead(5, (7,), 4, nn.Linear), torch.randn(6, 5)
    torch.testing.assert_close(head(features).mean(dim=1), head.value(features)[:, 0])
    differences = head(features) - head.advantage(features)
    torch.testing.assert_close(differences, differences[:, :1].expand(-1, 4))


def test_value_and_advantage_have_separate_hidden_layers() -> None:
    head = DuelingHead(3136, (512,), 6, nn.Linear)
    shapes = {name: tuple(p.shape) for name, p in head.named_parameters() if "weight" in name}
    assert shapes == {
        "value.0.weight": (512, 3136),
        "value.2.weight": (1, 512),
        "advantage.0.weight": (512, 3136),
        "advantage.2.weight": (6, 512),
    }


def test_the_q_head_has_a_relu_between_layers_and_none_after_the_last() -> None:
    head = QHead(3136, (512,), 6, nn.Linear)
    assert [type(layer) for layer in head.q] == [nn.Linear, nn.ReLU, nn.Linear]
    assert [tuple(p.shape) for p in head.parameters()] == [(512, 3136), (512,), (6, 512), (6,)]
    assert bool((head(torch.randn(64, 3136)) < 0).any())


@pytest.mark.parametrize("hidden", [(8,), (8, 9), (8, 9, 10)], ids=str)
def test_fully_connected_has_one_layer_for_each_pair_of_sizes(hidden: tuple[int, ...]) -> None:
    made: list[tuple[int, int]] = []

    def linear(inputs: int, outputs: int) -> nn.Module:
        made.append((inputs, outputs))
        return nn.Linear(inputs, outputs)

    layers = fully_connected((7, *hidden, 2), linear)
    sizes = (7, *hidden, 2)
    assert made == list(pairwise(sizes))
    assert len(layers) == 2 * len(made) - 1
