"""Torsos: shapes, scaling, memory layout and initialisation."""

from __future__ import annotations

import math
import re

import pytest
import torch
from torch import nn

from noisynet.networks import CONVOLUTIONS, Convolution, Torso, resolve_torso
from noisynet.networks.torso import SmallConv2d

NATURE, MINATAR = CONVOLUTIONS["nature"], CONVOLUTIONS["minatar"]


def conv_layers(torso: Torso) -> list[nn.Conv2d]:
    return [layer for layer in torso.layers if isinstance(layer, nn.Conv2d)]


def test_nature_turns_four_frames_of_84_into_3136_features() -> None:
    torso = Torso(NATURE, (4, 84, 84), 1 / 255)
    assert torso.features == 3136
    assert torso(torch.zeros(2, 4, 84, 84, dtype=torch.uint8)).shape == (2, 3136)


def test_nature_has_the_convolutions_of_mnih_et_al_without_padding() -> None:
    found = [
        (layer.in_channels, layer.out_channels, layer.kernel_size, layer.stride, layer.padding)
        for layer in conv_layers(Torso(NATURE, (4, 84, 84), 1.0))
    ]
    assert found == [
        (4, 32, (8, 8), (4, 4), (0, 0)),
        (32, 64, (4, 4), (2, 2), (0, 0)),
        (64, 64, (3, 3), (1, 1), (0, 0)),
    ]


def test_there_is_a_relu_after_every_convolution() -> None:
    kinds = [type(layer) for layer in Torso(NATURE, (4, 84, 84), 1.0).layers]
    assert kinds == [nn.Conv2d, nn.ReLU] * 3 + [nn.Flatten]


def test_convolutions_initialise_within_one_over_the_root_of_the_fan_in() -> None:
    for layer in conv_layers(Torso(NATURE, (4, 84, 84), 1.0)):
        bound = 1 / math.sqrt(layer.weight[0].numel())
        assert layer.bias is not None
        for parameter in (layer.weight, layer.bias):
            largest = parameter.detach().abs().max().item()
            assert 0.8 * bound < largest <= bound


def test_minatar_has_one_convolution_of_sixteen_filters() -> None:
    torso = Torso(MINATAR, (1, 4, 10, 10), 1.0)
    (layer,) = conv_layers(torso)
    assert (layer.in_channels, layer.out_channels, layer.kernel_size) == (4, 16, (3, 3))
    assert torso.features == 16 * 8 * 8
    assert torso(torch.zeros(3, 1, 4, 10, 10, dtype=torch.uint8)).shape == (3, 1024)


def test_without_convolutions_observations_are_flattened() -> None:
    torso, observation = Torso((), (2, 3), 1.0), torch.randn(5, 2, 3)
    assert torso.features == 6
    assert torch.equal(torso(observation), observation.reshape(5, 6))


@pytest.mark.parametrize(
    ("convolutions", "shape", "side"),
    [
        (NATURE, (1, 16), 36),
        (MINATAR, (4, 6), 3),
        (NATURE, (4, 84, 35), 36),
        (NATURE, (1, 4, 10, 10), 36),
        (MINATAR, (1, 2, 9), 3),
        (((8, 5, 2, 1),), (1, 2, 9), 3),
    ],
    ids=str,
)
def test_frames_that_do_not_fit_are_refused(
    convolutions: tuple[Convolution, ...], shape: tuple[int, ...], side: int
) -> None:
    message = (
        f"the convolutions {list(convolutions)} (filters, kernel, stride, padding) expect frames "
        f"that are images of at least {side} pixels a side, got frames of shape {shape[1:]}; "
        "choose network.torso=auto"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Torso(convolutions, shape, 1.0)


@pytest.mark.parametrize(
    ("convolutions", "side"),
    [(NATURE, 36), (MINATAR, 3), ((), 1), (((8, 5, 2, 1),), 3), (((8, 3, 1, 1), (4, 4, 2, 0)), 4)],
    ids=str,
)
def test_the_smallest_images_that_are_allowed_fit(
    convolutions: tuple[Convolution, ...], side: int
) -> None:
    torso = Torso(convolutions, (4, side, side), 1.0)
    assert torso(torch.zeros(2, 4, side, side)).shape == (2, torso.features)
    assert torso.features > 0
    if convolutions:
        with pytest.raises(ValueError, match=f"at least {side} pixels a side"):
            Torso(convolutions, (4, side, side - 1), 1.0)


@pytest.mark.parametrize(
    ("asked", "frame", "expected"),
    [
        ("auto", (84, 84), NATURE),
        ("auto", (3, 96, 96), NATURE),
        ("auto", (36, 36), NATURE),
        ("auto", (35, 84), MINATAR),
        ("auto", (4, 10, 10), MINATAR),
        ("auto", (6,), ()),
        ("auto", (2, 2), ()),
        ("a3c", (84, 84), CONVOLUTIONS["a3c"]),
        ("flat", (84, 84), ()),
        ([(8, 3, 1, 1)], (84, 84), ((8, 3, 1, 1),)),
    ],
    ids=str,
)
def test_resolve_torso_takes_names_lists_and_auto(
    asked: str | list[Convolution], frame: tuple[int, ...], expected: tuple[Convolution, ...]
) -> None:
    assert resolve_torso(asked, frame) == expected


@pytest.mark.parametrize(
    ("convolutions", "features"),
    [
        (((5, 3, 1, 1),), 5 * 10 * 10),
        (((7, 3, 2, 1), (9, 2, 1, 0)), 9 * 4 * 4),
        (((32, 5, 3, 2),), 32 * 4 * 4),
    ],
    ids=str,
)
def test_filters_kernels_strides_and_padding_are_those_given(
    convolutions: tuple[Convolution, ...], features: int
) -> None:
    torso = Torso(convolutions, (1, 4, 10, 10), 1.0)
    images = torch.randn(3, 1, 4, 10, 10)
    x = images[:, 0]
    for layer, (_, _, stride, padding) in zip(conv_layers(torso), convolutions, strict=True):
        weight = layer.weight.detach().contiguous()
        x = nn.functional.conv2d(x, weight, layer.bias, stride, padding).relu()
    assert torso.features == features
    torch.testing.assert_close(torso(images), x.flatten(1), rtol=1e-4, atol=1e-5)


def test_stacked_colour_frames_become_channels_in_order() -> None:
    torso = Torso(MINATAR, (2, 3, 10, 10), 1.0)
    observation = torch.randn(1, 2, 3, 10, 10)
    (layer,) = conv_layers(torso)
    expected = layer(observation.reshape(1, 6, 10, 10)).relu().flatten(1)
    torch.testing.assert_close(torso(observation), expected)


@pytest.mark.parametrize(
    ("name", "shape"), [("nature", (4, 84, 84)), ("minatar", (1, 4, 10, 10))], ids=str
)
def test_channels_last_gives_the_same_features(name: str, shape: tuple[int, ...]) -> None:
    torso = Torso(CONVOLUTIONS[name], shape, 1 / 255)
    image = torch.randint(256, (2, *shape), dtype=torch.uint8)
    x = (image.float() / 255).reshape(2, *torso.image_shape)
    for layer in conv_layers(torso):
        assert layer.weight.is_contiguous(memory_format=torch.channels_last)
        weight = layer.weight.detach().contiguous()
        x = nn.functional.conv2d(x, weight, layer.bias, layer.stride).relu()
    torch.testing.assert_close(torso(image), x.flatten(1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("count", [1, 2])
def test_features_are_the_same_with_and_without_gradients(count: int) -> None:
    torso = Torso(CONVOLUTIONS["a3c"], (4, 84, 84), 1 / 255)
    observation = torch.randint(256, (count, 4, 84, 84), dtype=torch.uint8)
    with torch.no_grad():
        features = torso(observation)
    torch.testing.assert_close(features, torso(observation).detach(), rtol=1e-5, atol=1e-6)


def test_bytes_are_multiplied_by_the_scale() -> None:
    levels = torch.tensor([[[0, 51, 255]]], dtype=torch.uint8)
    torch.testing.assert_close(Torso((), (1, 3), 1 / 255)(levels), torch.tensor([[0.0, 0.2, 1.0]]))
    assert Torso((), (1, 3), 1.0)(levels).tolist() == [[0.0, 51.0, 255.0]]


@pytest.mark.parametrize("name", ["a3c", "minatar"])
def test_a_centred_torso_does_not_see_the_brightness_of_an_image(name: str) -> None:
    side = 84 if name == "a3c" else 10
    torso = Torso(CONVOLUTIONS[name], (4, side, side), 1 / 255, centre=True)
    images = torch.randint(200, (2, 4, side, side), dtype=torch.uint8)
    brighter = images + torch.tensor([10, 50], dtype=torch.uint8).view(2, 1, 1, 1)
    torch.testing.assert_close(torso(brighter), torso(images), rtol=1e-4, atol=1e-5)
    x = images.float() / 255
    x = x - x.flatten(1).mean(1).view(2, 1, 1, 1)
    torch.testing.assert_close(torso(images), torso.layers(x), rtol=1e-4, atol=1e-5)


def test_centring_without_images_is_refused() -> None:
    with pytest.raises(ValueError, match=r"network\.centre_images=true expects images"):
        Torso((), (1, 6), 1.0, centre=True)


def test_features_have_the_dtype_of_the_weights() -> None:
    torso = Torso(MINATAR, (1, 4, 10, 10), 1.0).double()
    assert torso(torch.zeros(1, 1, 4, 10, 10, dtype=torch.uint8)).dtype == torch.float64


def test_a_gradient_reaches_the_observation() -> None:
    """Saliency maps need it."""
    image = torch.rand(2, 4, 84, 84, requires_grad=True)
    Torso(NATURE, (4, 84, 84), 1 / 255)(image).sum().backward()
    assert image.grad is not None
    assert bool((image.grad != 0).any())


def test_bytes_are_scaled_in_the_precision_of_the_weights() -> None:
    torso = Torso(MINATAR, (1, 3, 10, 10), 1 / 255).double()
    frames = torch.arange(300, dtype=torch.uint8).reshape(1, 1, 3, 10, 10)
    expected = torso.layers(frames.reshape(1, 3, 10, 10).double() / 255)
    torch.testing.assert_close(torso(frames), expected, rtol=0, atol=1e-14)


def test_a_torso_compiles_into_one_graph() -> None:
    torso = Torso(MINATAR, (1, 3, 10, 10), 1 / 255)
    frames = torch.randint(256, (2, 1, 3, 10, 10), dtype=torch.uint8)
    compiled = torch.compile(torso, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(frames), torso(frames))


@pytest.mark.parametrize("batch", [1, 8, 40])
def test_small_images_are_convolved_as_by_torch(batch: int) -> None:
    torso = Torso(MINATAR, (1, 4, 10, 10), 1.0)
    image = torch.randint(2, (batch, 1, 4, 10, 10), dtype=torch.uint8)
    (layer,) = conv_layers(torso)
    assert isinstance(layer, SmallConv2d)
    parameters = list(layer.parameters())
    plain = nn.functional.conv2d(image[:, 0].float(), layer.weight, layer.bias).relu().flatten(1)
    found = torso(image)
    torch.testing.assert_close(found, plain, rtol=1e-5, atol=1e-6)
    upstream = torch.randn_like(plain)
    for one, other in zip(
        torch.autograd.grad(found, parameters, upstream),
        torch.autograd.grad(plain, parameters, upstream),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_large_images_are_convolved_by_an_ordinary_layer() -> None:
    for layer in conv_layers(Torso(CONVOLUTIONS["a3c"], (4, 84, 84), 1 / 255)):
        assert type(layer) is nn.Conv2d


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32], ids=str)
def test_observations_are_not_modified(
    memory_format: torch.memory_format, dtype: torch.dtype
) -> None:
    torso = Torso(CONVOLUTIONS["a3c"], (4, 84, 84), 1 / 255)
    image = torch.randint(256, (2, 4, 84, 84)).to(dtype).contiguous(memory_format=memory_format)
    before = image.clone()
    features = torso(image)
    assert torch.equal(image, before)
    torch.testing.assert_close(features, torso(before.contiguous().float()))
