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


LARGEST_SMALL_IMAGE: Final = 16
"""Pixels a side up to which PyTorch's own convolution is faster on a CPU than oneDNN's."""


class Torso(nn.Module):
    """Turns observations [B, stack, *frame] of bytes or floats into features [B, F].

    Args:
        convolutions: applied one after the other, each followed by a ReLU; none for flat features.
        observation_shape: (stack, *frame) of one observation.
        scale: multiplies the observations, 1/255 for grey levels.
        centre: whether each image's own mean is subtracted from it.

    Raises:
        ValueError: the frames are not images, or too small for the convolutions.
    """

    def __init__(
        self,
        convolutions: Sequence[Convolution],
        observation_shape: Sequence[int],
        scale: float,
        centre: bool = False,
    ) -> None:
        super().__init__()
        self.scale = scale
        self.centre = centre
        self.observation_dims = len(observation_shape)
        self.image_shape = _image_shape(observation_shape)
        if convolutions and not fits(convolutions, observation_shape[1:]):
            raise ValueError(
                f"the convolutions {list(convolutions)} (filters, kernel, stride, padding) expect "
                f"frames that are images of at least {_smallest_side(convolutions)} pixels a side, "
                f"got frames of shape {tuple(observation_shape[1:])}; choose network.torso=auto"
            )
        if centre and not convolutions:
            raise ValueError(
                "network.centre_images=true expects images and a torso of convolutions, got frames "
                f"of shape {tuple(observation_shape[1:])} and none; set it to false"
            )
        small = max(self.image_shape[1:], default=0) <= LARGEST_SMALL_IMAGE
        self.convolutional = bool(convolutions)
        self.channels_last = self.convolutional and not small
        self.layers = _sequential(convolutions, self.image_shape[0], small)
        with torch.no_grad():
            self.features = self.layers(torch.zeros(1, *self.image_shape)).shape[1]

    def forward(self, observation: Tensor) -> Tensor:
        """Features [B, F] of a batch of observations."""
        images = observation.reshape(-1, *self.image_shape)
        if self.channels_last and not images.is_contiguous(memory_format=torch.channels_last):
            # oneDNN's fastest layout on a CPU for large images. Transposed while still bytes, and
            # by stacking, which is twice as fast as a copy with permuted strides.
            images = torch.stack(images.unbind(1), dim=-1).permute(0, 3, 1, 2)
        dtype = self._dtype
        x = images.to(dtype)
        if self.scale != 1:  # in place if x is a copy
            x = x * self.scale if images.dtype == dtype else x.mul_(self.scale)
        if self.centre:
            x = x - x.mean(dim=(1, 2, 3), keepdim=True)
        features: Tensor = self.layers(x)
        return features

    @property
    def _dtype(self) -> torch.dtype:
        first = getattr(self.layers, "0")  # indexing takes ten times as long
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


class SmallConv2d(nn.Conv2d):
    """`nn.Conv2d` for small images, by the kernel that PyTorch has for machines without oneDNN.

    Preparing a call of oneDNN takes longer than to convolve eight images of 10 × 10.
    """

    def forward(self, x: Tensor) -> Tensor:
        """The convolution of x [B, C, H, W]."""
        if x.device.type != "cpu" or torch.compiler.is_compiling():
            return super().forward(x)
        weight, options = self.weight.contiguous(), (self.stride, self.padding)
        y: Tensor = torch.ops.aten.thnn_conv2d(x, weight, self.kernel_size, self.bias, *options)
        return y


def _sequential(convolutions: Sequence[Convolution], channels: int, small: bool) -> nn.Sequential:
    kind = SmallConv2d if small else nn.Conv2d
    layers: list[nn.Module] = []
    for filters, kernel, stride, padding in convolutions:
        convolution = kind(channels, filters, kernel, stride, padding)
        weight = convolution.weight.data
        convolution.weight.data = weight.contiguous(memory_format=torch.channels_last)
        layers += [convolution, nn.ReLU(inplace=True)]
        channels = filters
    return nn.Sequential(*layers, nn.Flatten())
