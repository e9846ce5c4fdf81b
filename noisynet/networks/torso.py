"""The convolutional torso: from observations to features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor, nn

from noisynet import paper

Convolution = tuple[int, int, int, int]
"""Filters, kernel size, stride and padding."""

CONVOLUTIONS: Final[dict[str, tuple[Convolution, ...]]] = {
    "nature": paper.NATURE_CONVOLUTIONS,
    "a3c": paper.A3C_CONVOLUTIONS,
    "minatar": paper.MINATAR_CONVOLUTIONS,
    "flat": (),
}
"""Named torsos: Mnih et al. 2015, Mnih et al. 2016 (its speed studies), Young & Tian 2019, none."""


class Torso(nn.Module):
    """Turns observations [B, stack, *frame] of bytes or floats into features [B, F].

    Args:
        convolutions: applied one after the other, each followed by a ReLU; none for flat features.
        observation_shape: (stack, *frame) of one observation.
        scale: multiplies the observations, 1/255 for grey levels.

    Raises:
        ValueError: the frames are not images, or too small for the convolutions.
    """

    def __init__(
        self, convolutions: Sequence[Convolution], observation_shape: Sequence[int], scale: float
    ) -> None:
        super().__init__()
        self.scale = scale
        self.observation_dims = len(observation_shape)
        self.image_shape = _image_shape(observation_shape)
        if convolutions and not fits(convolutions, observation_shape[1:]):
            raise ValueError(
                f"the convolutions {list(convolutions)} (filters, kernel, stride, padding) expect "
                f"frames that are images of at least {_smallest_side(convolutions)} pixels a side, "
                f"got frames of shape {tuple(observation_shape[1:])}; choose network.torso=auto"
            )
        self.convolutional = bool(convolutions)
        self.layers = _sequential(convolutions, self.image_shape[0])
        with torch.no_grad():
            self.features = self.layers(torch.zeros(1, *self.image_shape)).shape[1]

    def forward(self, observation: Tensor) -> Tensor:
        """Features [B, F] of a batch of observations."""
        images = observation.reshape(-1, *self.image_shape)
        if self.convolutional:
            # Channels last, and transposed while still bytes: oneDNN's fastest layout on a CPU.
            images = images.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
        x = images.to(self._dtype)
        features: Tensor = self.layers(x if self.scale == 1 else x * self.scale)
        return features

    @property
    def _dtype(self) -> torch.dtype:
        first = self.layers[0]
        return first.weight.dtype if isinstance(first, nn.Conv2d) else torch.float32


def resolve_torso(
    asked: str | Sequence[Convolution], frame_shape: Sequence[int]
) -> tuple[Convolution, ...]:
    """The convolutions of a named torso; `auto` chooses by the size of a frame."""
    if not isinstance(asked, str):
        return tuple(asked)
    if asked != "auto":
        return CONVOLUTIONS[asked]
    for name in ("nature", "minatar"):
        if fits(CONVOLUTIONS[name], frame_shape):
            return CONVOLUTIONS[name]
    return ()


def fits(convolutions: Sequence[Convolution], frame_shape: Sequence[int]) -> bool:
    """Whether frames of this shape are images that the convolutions can be applied to."""
    if len(frame_shape) not in (2, 3):
        return False
    return min(frame_shape[-2:]) >= _smallest_side(convolutions)


def _smallest_side(convolutions: Sequence[Convolution]) -> int:
    side = 1
    for _, kernel, stride, padding in reversed(convolutions):
        side = max(1, (side - 1) * stride + kernel - 2 * padding)
    return side


def _image_shape(observation_shape: Sequence[int]) -> tuple[int, ...]:
    """Frames that are images are stacked as channels; everything else is one flat vector."""
    stack, *frame = observation_shape
    if len(frame) == 2:
        return (stack, *frame)
    if len(frame) == 3:
        return (stack * frame[0], *frame[1:])
    return (stack * int(torch.Size(frame).numel()),)


def _sequential(convolutions: Sequence[Convolution], channels: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for filters, kernel, stride, padding in convolutions:
        convolution = nn.Conv2d(channels, filters, kernel, stride, padding)
        weight = convolution.weight.data
        convolution.weight.data = weight.contiguous(memory_format=torch.channels_last)
        layers += [convolution, nn.ReLU(inplace=True)]
        channels = filters
    return nn.Sequential(*layers, nn.Flatten())
