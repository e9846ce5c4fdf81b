"""Heads of value networks: Eq. 3 and the layers."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import nn

from noisynet.networks import (
    CategoricalHead,
    DuelingCategoricalHead,
    DuelingHead,
    QHead,
    fully_connected,
)


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


def test_a_categorical_head_has_logits_for_each_action_and_atom() -> None:
    """Biases 0 to 5: the atoms of an action are next to each other."""
    head = CategoricalHead(1, (1,), 2, 3, nn.Linear)
    set_biases(head, logits=[0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    assert head(torch.zeros(1, 1)).tolist() == [[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]]


def test_a_dueling_categorical_head_centres_advantages_atom_by_atom() -> None:
    """V = (10, 20) and A = ((1, 8), (5, 2)): the means over actions are (3, 5)."""
    head = DuelingCategoricalHead(1, (1,), 2, 2, nn.Linear)
    set_biases(head, value=[10.0, 20.0], advantage=[1.0, 8.0, 5.0, 2.0])
    assert head(torch.zeros(1, 1)).tolist() == [[[8.0, 23.0], [12.0, 17.0]]]


def set_biases(head: nn.Module, **streams: list[float]) -> None:
    """Set the biases of the last layers and every other parameter to zero."""
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.zero_()
        for stream, biases in streams.items():
            head.get_parameter(f"{stream}.2.bias").copy_(torch.tensor(biases))


def test_the_mean_over_actions_of_dueling_logits_is_that_of_the_value_stream() -> None:
    head = DuelingCategoricalHead(5, (7,), 4, 51, nn.Linear)
    features = torch.randn(6, 5)
    torch.testing.assert_close(head(features).mean(dim=1), head.value(features))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (CategoricalHead, {"logits.0.weight": (512, 3136), "logits.2.weight": (306, 512)}),
        (
            DuelingCategoricalHead,
            {
                "value.0.weight": (512, 3136),
                "value.2.weight": (51, 512),
                "advantage.0.weight": (512, 3136),
                "advantage.2.weight": (306, 512),
            },
        ),
    ],
)
def test_the_layers_of_a_categorical_head(
    kind: type[CategoricalHead] | type[DuelingCategoricalHead],
    expected: dict[str, tuple[int, int]],
) -> None:
    head = kind(3136, (512,), 6, 51, nn.Linear)
    shapes = {name: tuple(p.shape) for name, p in head.named_parameters() if "weight" in name}
    assert shapes == expected


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
