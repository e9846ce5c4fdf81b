"""Functions that apply to every noisy layer of a network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from noisynet.layers.arguments import Distribution
from noisynet.layers.linear import NoisyLinear, draw_noise


def noisy_layers(module: nn.Module) -> dict[str, NoisyLinear]:
    """The noisy layers of `module` by their qualified names, a shared layer once."""
    return {name: layer for name, layer in module.named_modules() if isinstance(layer, NoisyLinear)}


def resample_noise(
    module: nn.Module, generator: torch.Generator | None = None, rows: int | None = None
) -> None:
    """Draw a new ε for every noisy layer of `module`, each its own sample.

    Args:
        module: a network with at least one noisy layer.
        generator: a generator on the module's device; torch's global one if not given.
        rows: give each of this many rows of a batch its own sample; None: one shared sample.
    """
    layers = _present_layers(module, "resample_noise").values()
    groups: dict[tuple[Distribution, torch.device, torch.dtype], list[NoisyLinear]] = {}
    for layer in layers:
        like = layer.weight_mu
        groups.setdefault((layer.distribution, like.device, like.dtype), []).append(layer)
    # One call for all layers of a group: a call costs more than the numbers of small layers.
    for (distribution, *_), group in groups.items():
        sizes = [layer.noise_size for layer in group]
        epsilon = draw_noise(distribution, group[0].weight_mu, sum(sizes), generator, rows)
        for layer, of_layer in zip(group, epsilon.split(sizes, dim=-1), strict=True):
            layer.use_epsilon(of_layer)


def cache_weights(module: nn.Module) -> None:
    """Compute the weights of every noisy layer once, for all passes until the next sample.

    See `NoisyLinear.cache_weights`: for roll-outs, over which neither weights nor noise change.
    """
    for layer in _present_layers(module, "cache_weights").values():
        layer.cache_weights()


def drop_cached_weights(module: nn.Module) -> None:
    """Discard what `cache_weights` computed; the samples stay in force."""
    for layer in _present_layers(module, "drop_cached_weights").values():
        layer.drop_cached_weights()


@contextmanager
def noise_off(module: nn.Module) -> Iterator[None]:
    """Use the mean weights μ inside the `with` block; the held sample applies again after it.

    The state belongs to the layers, so other users of the same layers, in other threads too, get
    mean weights meanwhile. Contexts may overlap in any order.
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
    """The samples that the noisy layers of `module` hold, for resuming a run exactly."""
    return {
        f"{name}.{buffer}".lstrip("."): value
        for name, layer in noisy_layers(module).items()
        for buffer, value in layer.named_buffers()
    }


def hold_noise(module: nn.Module, noise: Mapping[str, Tensor]) -> None:
    """Hold the samples that `held_noise` returned."""
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
