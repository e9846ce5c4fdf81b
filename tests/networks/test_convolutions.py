"""Convolutions by tiles: torch's own, but for rounding."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from noisynet.networks import NetworkShape, Torso, TorsoKind, ValueNetwork, ValuePass
from noisynet.networks.convolutions import Convolutions

# Batches and sizes that leave tiles half empty, and channels that are no power of two.
CASES: list[tuple[TorsoKind, tuple[int, ...], int]] = [
    ("nature", (4, 84, 84), 3),
    ("nature", (4, 36, 36), 9),
    ("nature", (2, 3, 41, 52), 2),  # six channels
    ("nature", (1, 44, 36), 1),
    ("a3c", (4, 84, 84), 2),
    ("a3c", (3, 20, 27), 5),
    ("minatar", (1, 7, 10, 10), 4),
]


def in_double_precision(kind: TorsoKind, shape: tuple[int, ...]) -> Torso:
    torch.manual_seed(0)
    return Torso(kind, shape, 1 / 255).double()


def observations(shape: tuple[int, ...], count: int) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(256, (count, *shape), generator=generator, dtype=torch.uint8)


@pytest.mark.parametrize(("kind", "shape", "count"), CASES)
def test_features_are_those_of_the_layers(
    kind: TorsoKind, shape: tuple[int, ...], count: int
) -> None:
    torso, seen = in_double_precision(kind, shape), observations(shape, count)
    with torch.no_grad():
        assert torch.allclose(torso(seen), torso.layers(torso.prepared(seen)), rtol=0, atol=1e-13)


@pytest.mark.parametrize(("kind", "shape", "count"), CASES)
def test_gradients_are_those_of_autograd(
    kind: TorsoKind, shape: tuple[int, ...], count: int
) -> None:
    torso, seen = in_double_precision(kind, shape), observations(shape, count)
    features = torso.layers(torso.prepared(seen))
    gradient = torch.randn_like(features)
    features.backward(gradient)
    expected = [parameter.grad for parameter in torso.parameters()]
    torso.zero_grad()
    convolutions = torso.convolutions
    with torch.no_grad():
        way = convolutions.begin(seen.reshape(count, *torso.image_shape), keep=True)
        convolutions.forward(way, convolutions.packed(), slice(None))
        # In two parts, as two threads would have it.
        parts = [slice(0, count // 2), slice(count // 2, count)]
        found = [convolutions.backward(way, gradient, which) for which in parts]
        for number in range(len(convolutions.layers)):
            convolutions.keep(found, number)
    for parameter, theirs in zip(torso.parameters(), expected, strict=True):
        assert theirs is not None
        assert parameter.grad is not None
        assert torch.allclose(parameter.grad, theirs, rtol=1e-11, atol=1e-11)


def test_one_observation_gives_what_it_gives_in_a_batch() -> None:
    torso, seen = Torso("nature", (4, 36, 36), 1 / 255), observations((4, 36, 36), 7)
    with torch.no_grad():
        together = torso(seen)
        assert all(torch.equal(torso(seen[i : i + 1])[0], together[i]) for i in range(7))


def test_images_may_be_parts_of_others_and_weights_may_lie_in_any_order() -> None:
    torso, long = in_double_precision("nature", (4, 36, 36)), observations((5, 36, 36), 3)
    for layer in torso.convolutions.layers:
        layer.weight.data = layer.weight.data.contiguous()
    for seen in (long[:, :4], long[:, 1:]):
        with torch.no_grad():
            mine = torso(seen)
        assert torch.allclose(mine, torso.layers(torso.prepared(seen)), rtol=0, atol=1e-13)


def test_what_is_no_number_stays_so() -> None:
    torso, seen = Torso("nature", (4, 36, 36), 1.0), torch.zeros(2, 4, 36, 36)
    seen[1, 2, 20, 20] = float("nan")
    with torch.no_grad():
        assert torso(seen).isnan().any(dim=1).tolist() == [False, True]


def test_a_pass_sees_weights_that_have_changed_since_the_last_one() -> None:
    shape = NetworkShape("nature", (16,), False, None, None, True, 1.0, 1 / 255)
    networks = [ValueNetwork(shape, (4, 36, 36), 3, torch.Generator()) for _ in range(2)]
    network, by_hand = networks[0], ValuePass(networks[0])
    seen = observations((4, 36, 36), 2)
    changes: list[Callable[[], object]] = [
        lambda: None,
        lambda: network.load_state_dict(networks[1].state_dict()),
        lambda: network.torso.convolutions.layers[1].weight.mul_(2),
        lambda: torch.nn.init.ones_(network.torso.convolutions.layers[0].weight),
    ]
    with torch.no_grad():
        for change in changes:
            change()
            assert torch.allclose(by_hand(seen), network(seen), rtol=1e-5, atol=1e-6)


def test_whoever_hooks_into_a_convolution_or_replaces_it_is_not_passed_by() -> None:
    torso, seen = Torso("nature", (4, 36, 36), 1.0), observations((4, 36, 36), 1)
    called = []
    handle = torso.layers[2].register_forward_hook(lambda *_: called.append(True))
    with torch.no_grad():
        torso(seen)
        handle.remove()
        assert called == [True]
        torso.layers[0] = torch.nn.Conv2d(4, 32, 8, stride=4)
        assert torch.equal(torso(seen), torso.layers(torso.prepared(seen)))


def test_layers_that_tiles_would_get_wrong_are_refused() -> None:
    for layer in (
        torch.nn.Conv2d(4, 20, 3),
        torch.nn.Conv2d(4, 16, 3, padding=1),
        torch.nn.Conv2d(4, 16, (3, 2)),
        torch.nn.Conv2d(4, 16, 3, bias=False),
    ):
        with pytest.raises(ValueError, match="multiple of 16 filters, got Conv2d"):
            Convolutions([layer], 1.0)
