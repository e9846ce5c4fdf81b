"""From observations to features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import torch
from torch import Tensor, nn

from noisynet.compiled import compiled
from noisynet.networks.convolutions import Convolutions, weave
from noisynet.networks.small import convolve_planes

TorsoKind = Literal["nature", "a3c", "minatar", "flat"]
"""The convolutions of Mnih et al. 2015, those of Mnih et al. 2016 (and 2013), those of Young & Tian
2019, or none."""


class Torso(nn.Module):
    """Turns observations [B, stack, *frame] of bytes or floats into features [B, F].

    Args:
        kind: which convolutions.
        observation_shape: (stack, *frame), of one observation.
        scale: what the observations are multiplied by, 1/255 for grey levels.

    Raises:
        ValueError: the convolutions do not fit the frames, which are no images or too small.
    """

    def __init__(self, kind: TorsoKind, observation_shape: Sequence[int], scale: float) -> None:
        super().__init__()
        self.kind, self.scale = kind, scale
        self.observation_dims = len(observation_shape)
        self.image_shape = _image_shape(observation_shape)
        if not _fits(kind, self.image_shape):
            side = _SMALLEST_SIDE[kind]
            fitting = [other for other in _SMALLEST_SIDE if _fits(other, self.image_shape)]
            raise ValueError(
                f"torso {kind!r} expects frames that are images of at least {side}×{side}, got "
                f"frames of shape {tuple(observation_shape[1:])}; "
                f"choose network.torso={' or '.join(fitting)}"
            )
        self.layers = _CONVOLUTIONS[kind](self.image_shape[0])
        for layer in self.layers:
            if isinstance(layer, nn.Conv2d):  # two thirds of the time on CPUs
                layer.weight.data = layer.weight.data.contiguous(memory_format=torch.channels_last)
        self.convolutions = Convolutions(
            [layer for layer in self.layers if isinstance(layer, nn.Conv2d)], scale
        )
        with torch.no_grad():
            self.features = self.layers(torch.zeros(1, *self.image_shape)).shape[1]

    def forward(self, observation: Tensor) -> Tensor:
        """The features of a batch of observations."""
        if not torch.is_grad_enabled() and self._is_for_hands(observation):
            seen = self.convolutions.begin(observation.reshape(-1, *self.image_shape), keep=False)
            if self.sees_planes(observation):
                convolve_planes(seen.images, self.convolutions.layers[0], seen.features)
            else:
                self.convolutions.forward(seen, self.convolutions.packed(), slice(None))
            return seen.features
        features: Tensor = self.layers(self.prepared(observation))
        return features

    def sees_planes(self, observation: Tensor) -> bool:
        """Whether observations are nearly empty planes of bytes for one convolution."""
        if self.kind != "minatar" or self.scale != 1 or observation.dtype != torch.uint8:
            return False
        return self._dtype == torch.float32

    def _is_for_hands(self, observation: Tensor) -> bool:
        """Whether there are convolutions, and a CPU to do them without torch."""
        if not self.convolutions.layers or observation.device.type != "cpu":
            return False
        if torch.compiler.is_compiling() or self._is_watched():
            return False
        exact = observation.dtype not in (torch.float16, torch.bfloat16)
        return exact and self._dtype in (torch.float32, torch.float64)

    def _is_watched(self) -> bool:
        """Whether anybody hooks into the convolutions, or has put others in their places."""
        layers = [layer for layer in self.layers if isinstance(layer, nn.Conv2d)]
        mine = len(layers) == len(self.convolutions.layers) and all(
            layer is own for layer, own in zip(layers, self.convolutions.layers, strict=False)
        )
        return not mine or any(
            module._forward_hooks or module._forward_pre_hooks for module in self.layers.modules()
        )

    def prepared(self, observation: Tensor) -> Tensor:
        """What the first layer takes: floats, scaled; images with their channels last in memory."""
        images = observation.reshape(-1, *self.image_shape)
        dtype, is_image = self._dtype, len(self.image_shape) == 3
        if is_image and images.dtype == torch.uint8 and dtype == torch.float32:
            return self._scaled_bytes(images)
        x = images.to(dtype)
        x = x if self.scale == 1 else x * self.scale
        return x.contiguous(memory_format=torch.channels_last) if is_image else x

    def _scaled_bytes(self, images: Tensor) -> Tensor:
        """Scaled and channels-last."""
        small, elsewhere = images.shape[-1] < _LARGE_SIDE, images.device.type != "cpu"
        # A compiler makes one pass of it by itself, and small images are no work.
        if small or elsewhere or images.shape[1] != 4 or torch.compiler.is_compiling():
            x = images.to(torch.float32, memory_format=torch.channels_last)
            return x if self.scale == 1 else x * self.scale
        batch, channels, height, width = images.shape
        lying = torch.empty(batch, height, width, channels)
        _weave_all(images.contiguous().numpy(), self.scale, lying.numpy())
        return lying.permute(0, 3, 1, 2)

    @property
    def _dtype(self) -> torch.dtype:
        first = self.layers[0]
        return first.weight.dtype if isinstance(first, nn.Conv2d) else torch.float32


def fitting_torso(frame_shape: Sequence[int], large: TorsoKind) -> TorsoKind:
    """The torso for frames of this shape: `large` for screens such as Atari's."""
    if len(frame_shape) not in (2, 3) or min(frame_shape[-2:]) < _SMALLEST_SIDE["minatar"]:
        return "flat"
    return large if min(frame_shape[-2:]) >= _SMALLEST_SIDE["nature"] else "minatar"


def _image_shape(observation_shape: Sequence[int]) -> tuple[int, ...]:
    """Frames that are images are stacked as channels; everything else is one flat vector."""
    stack, *frame = observation_shape
    if len(frame) == 2:
        return (stack, *frame)
    if len(frame) == 3:
        return (stack * frame[0], *frame[1:])
    return (stack * int(torch.Size(frame).numel()),)


def _fits(kind: TorsoKind, image_shape: tuple[int, ...]) -> bool:
    if len(image_shape) != 3:
        return kind == "flat"
    return min(image_shape[1:]) >= _SMALLEST_SIDE[kind]


# Torch's own transposition takes nine times as long.
@compiled
def _weave_all(planes: Any, scale: Any, images: Any) -> None:
    for b in range(len(planes)):
        weave(planes[b], scale, images[b])


def _nature(channels: int) -> nn.Sequential:
    # Nature, methods: 32 of 8×8/4, 64 of 4×4/2, 64 of 3×3/1, no padding.
    return nn.Sequential(
        nn.Conv2d(channels, 32, 8, stride=4),
        nn.ReLU(inplace=True),
        nn.Conv2d(32, 64, 4, stride=2),
        nn.ReLU(inplace=True),
        nn.Conv2d(64, 64, 3, stride=1),
        nn.ReLU(inplace=True),
        nn.Flatten(),
    )


def _a3c(channels: int) -> nn.Sequential:
    # A3C, supplement 8: 16 of 8×8/4, 32 of 4×4/2, no padding.
    return nn.Sequential(
        nn.Conv2d(channels, 16, 8, stride=4),
        nn.ReLU(inplace=True),
        nn.Conv2d(16, 32, 4, stride=2),
        nn.ReLU(inplace=True),
        nn.Flatten(),
    )


def _minatar(channels: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(channels, 16, 3, stride=1), nn.ReLU(inplace=True), nn.Flatten())


def _flat(_inputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Flatten())


_CONVOLUTIONS = {"nature": _nature, "a3c": _a3c, "minatar": _minatar, "flat": _flat}

_LARGE_SIDE: Final = 36

# Below, the last convolution would be larger than its input.
_SMALLEST_SIDE: Final[dict[TorsoKind, int]] = {"nature": 36, "a3c": 20, "minatar": 3, "flat": 1}
