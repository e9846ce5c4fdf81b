"""What is done to every noisy layer of a network at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from noisynet.layers.linear import NoisyLinear


def noisy_layers(module: nn.Module) -> dict[str, NoisyLinear]:
    """The noisy layers of `module` by their qualified names, a shared layer once."""
    return {name: layer for name, layer in module.named_modules() if isinstance(layer, NoisyLinear)}


def resample_noise(
    module: nn.Module, generator: torch.Generator | None = None, rows: int | None = None
) -> None:
    """Redraw ε in every noisy layer of `module`, each its own draw.

    Args:
        module: a network with at least one noisy layer.
        generator: what to draw from, on the module's device; torch's global one if not given.
        rows: give each of this many rows of a batch its own sample; None: one shared sample.
    """
    for layer in _present_layers(module, "resample_noise").values():
        layer.resample_noise(generator, rows)


def build_weights(module: nn.Module) -> None:
    """Build the weights in force in every noisy layer once, for all passes until the next draw.

    See `NoisyLinear.build_weights`: for roll-outs, over which neither weights nor noise change.
    """
    for layer in _present_layers(module, "build_weights").values():
        layer.build_weights()


def forget_weights(module: nn.Module) -> None:
    """Leave what `build_weights` built; the samples stay in force."""
    for layer in _present_layers(module, "forget_weights").values():
        layer.forget_weights()


@contextmanager
def noise_off(module: nn.Module) -> Iterator[None]:
    """Use the mean weights μ inside the `with`; the held sample is back in force after it.

    The state belongs to the layers: whoever else uses them meanwhile, in another thread too, uses
    the means. Contexts may overlap in any order.
    """
    layers = list(_present_layers(module, "noise_off").values())
    for layer in layers:
        layer._noise_off += 1
    try:
        yield
    finally:
        for layer in layers:
            layer._noise_off -= 1


def sigma_summary(module: nn.Module) -> dict[str, float]:
    """Σ̄, the mean |σw| of each noisy layer (Eq. 20), by layer name."""
    return {
        name: layer.weight_sigma.detach().abs().mean().item()
        for name, layer in noisy_layers(module).items()
    }


def held_noise(module: nn.Module) -> dict[str, Tensor]:
    """The samples that the noisy layers of `module` hold, for continuing a run exactly."""
    return {
        f"{name}.{buffer}".lstrip("."): value
        for name, layer in noisy_layers(module).items()
        for buffer, value in layer.named_buffers()
    }


def hold_noise(module: nn.Module, noise: Mapping[str, Tensor]) -> None:
    """Put back the samples that `held_noise` gave."""
    for name, layer in noisy_layers(module).items():
        prefix = f"{name}.".lstrip(".")
        layer.hold_noise(
            {
                key.removeprefix(prefix): value
                for key, value in noise.items()
                if key.startswith(prefix)
            }
        )


def _present_layers(module: nn.Module, caller: str) -> dict[str, NoisyLinear]:
    layers = noisy_layers(module)
    if not layers:
        raise ValueError(
            f"{caller} expected a module with noisy layers, got a {type(module).__name__} without "
            "any; build it from NoisyLinear, or convert it with make_noisy."
        )
    return layers
