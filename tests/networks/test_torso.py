"""Torsos: shapes, scaling and initialisation."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from noisynet.networks import Torso, TorsoKind


def convolutions(torso: Torso) -> list[nn.Conv2d]:
    return [layer for layer in torso.layers if isinstance(layer, nn.Conv2d)]


def test_nature_turns_four_frames_of_84_into_3136_features() -> None:
    torso = Torso("nature", (4, 84, 84), 1 / 255)
    assert torso.features == 3136
    assert torso(torch.zeros(2, 4, 84, 84, dtype=torch.uint8)).shape == (2, 3136)


def test_nature_has_the_convolutions_of_the_paper_without_padding() -> None:
    found = [
        (layer.in_channels, layer.out_channels, layer.kernel_size, layer.stride, layer.padding)
        for layer in convolutions(Torso("nature", (4, 84, 84), 1.0))
    ]
    assert found == [
        (4, 32, (8, 8), (4, 4), (0, 0)),
        (32, 64, (4, 4), (2, 2), (0, 0)),
        (64, 64, (3, 3), (1, 1), (0, 0)),
    ]


def test_there_is_a_relu_after_every_convolution() -> None:
    kinds = [type(layer) for layer in Torso("nature", (4, 84, 84), 1.0).layers]
    assert kinds == [nn.Conv2d, nn.ReLU] * 3 + [nn.Flatten]


def test_convolutions_initialise_within_one_over_the_root_of_their_inputs() -> None:
    for layer in convolutions(Torso("nature", (4, 84, 84), 1.0)):
        bound = 1 / math.sqrt(layer.weight[0].numel())
        assert layer.bias is not None
        for parameter in (layer.weight, layer.bias):
            largest = parameter.detach().abs().max().item()
            assert 0.8 * bound < largest <= bound


def test_minatar_has_one_convolution_of_sixteen() -> None:
    torso = Torso("minatar", (1, 4, 10, 10), 1.0)
    (layer,) = convolutions(torso)
    assert (layer.in_channels, layer.out_channels, layer.kernel_size) == (4, 16, (3, 3))
    assert torso.features == 16 * 8 * 8
    assert torso(torch.zeros(3, 1, 4, 10, 10, dtype=torch.uint8)).shape == (3, 1024)


def test_flat_hands_the_numbers_on_as_they_are() -> None:
    torso, observation = Torso("flat", (2, 3), 1.0), torch.randn(5, 2, 3)
    assert torso.features == 6
    assert torch.equal(torso(observation), observation.reshape(5, 6))


@pytest.mark.parametrize(
    ("kind", "shape", "message"),
    [
        (
            "nature",
            (1, 16),
            r"images of at least 36×36, got frames of shape \(16,\); .*torso=flat$",
        ),
        ("minatar", (4, 6), r"images of at least 3×3, got frames of shape \(6,\); .*torso=flat$"),
        ("nature", (4, 84, 35), r"at least 36×36, .* \(84, 35\); .*torso=a3c or minatar or flat$"),
        ("nature", (1, 4, 10, 10), r"36×36, .* \(4, 10, 10\); .*torso=minatar or flat$"),
        ("minatar", (1, 2, 9), r"at least 3×3, got frames of shape \(2, 9\); .*torso=flat$"),
    ],
    ids=str,
)
def test_frames_that_do_not_fit_are_refused_with_what_does(
    kind: TorsoKind, shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=f"^torso '{kind}' expects frames that are .*{message}"):
        Torso(kind, shape, 1.0)


@pytest.mark.parametrize(("kind", "side"), [("nature", 36), ("minatar", 3), ("flat", 1)])
def test_the_smallest_images_that_are_allowed_fit(kind: TorsoKind, side: int) -> None:
    torso = Torso(kind, (4, side, side), 1.0)
    assert torso(torch.zeros(2, 4, side, side)).shape == (2, torso.features)
    assert torso.features > 0


def test_stacked_colour_frames_become_channels_in_order() -> None:
    torso = Torso("minatar", (2, 3, 10, 10), 1.0)
    observation = torch.randn(1, 2, 3, 10, 10)
    (layer,) = convolutions(torso)
    expected = layer(observation.reshape(1, 6, 10, 10)).relu().flatten(1)
    torch.testing.assert_close(torso(observation), expected)


@pytest.mark.parametrize(
    ("kind", "shape"), [("nature", (4, 84, 84)), ("minatar", (1, 4, 10, 10))], ids=str
)
def test_channels_last_changes_no_number(kind: str, shape: tuple[int, ...]) -> None:
    torso = Torso(kind, shape, 1 / 255)  # type: ignore[arg-type]
    image = torch.randint(256, (2, *shape), dtype=torch.uint8)
    x = (image.float() / 255).reshape(2, *torso.image_shape)
    for layer in convolutions(torso):
        weight = layer.weight.detach().contiguous()
        x = nn.functional.conv2d(x, weight, layer.bias, layer.stride).relu()
    torch.testing.assert_close(torso(image), x.flatten(1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("count", [1, 2])
def test_acting_on_few_observations_gives_the_features_that_are_learnt_from(count: int) -> None:
    torso = Torso("a3c", (4, 84, 84), 1 / 255)
    observation = torch.randint(256, (count, 4, 84, 84), dtype=torch.uint8)
    with torch.no_grad():
        acting = torso(observation)
    torch.testing.assert_close(acting, torso(observation).detach(), rtol=1e-5, atol=1e-6)


def test_bytes_are_multiplied_by_the_scale() -> None:
    levels = torch.tensor([[[0, 51, 255]]], dtype=torch.uint8)
    torch.testing.assert_close(
        Torso("flat", (1, 3), 1 / 255)(levels), torch.tensor([[0.0, 0.2, 1.0]])
    )
    assert Torso("flat", (1, 3), 1.0)(levels).tolist() == [[0.0, 51.0, 255.0]]


def test_features_are_of_the_type_of_the_weights() -> None:
    torso = Torso("minatar", (1, 4, 10, 10), 1.0).double()
    assert torso(torch.zeros(1, 1, 4, 10, 10, dtype=torch.uint8)).dtype == torch.float64


def test_a_gradient_reaches_the_observation() -> None:
    """Which pixels matter is asked of every network that plays games."""
    image = torch.rand(2, 4, 84, 84, requires_grad=True)
    Torso("nature", (4, 84, 84), 1 / 255)(image).sum().backward()
    assert image.grad is not None
    assert bool((image.grad != 0).any())


def test_bytes_are_scaled_in_the_precision_of_the_weights() -> None:
    torso = Torso("minatar", (1, 3, 10, 10), 1 / 255).double()
    frames = torch.arange(300, dtype=torch.uint8).reshape(1, 1, 3, 10, 10)
    expected = torso.layers(frames.reshape(1, 3, 10, 10).double() / 255)
    torch.testing.assert_close(torso(frames), expected, rtol=0, atol=1e-14)


def test_a_torso_compiles_as_a_whole() -> None:
    torso = Torso("minatar", (1, 3, 10, 10), 1 / 255)
    frames = torch.randint(256, (2, 1, 3, 10, 10), dtype=torch.uint8)
    compiled = torch.compile(torso, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(frames), torso(frames))
