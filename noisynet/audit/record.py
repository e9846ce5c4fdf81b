"""Recording of the noise that layers use, in `NoisyLinear` and in layers of other libraries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from noisynet.audit.detect import require_noisy_layers
from noisynet.audit.log import NoiseLog, NoiseSample
from noisynet.audit.probe import Probe
from noisynet.layers import NoisyLinear

_Add = Callable[[int | None, NoiseSample], None]


@contextmanager
def record_noise(module: nn.Module | Mapping[str, nn.Module]) -> Iterator[NoiseLog]:
    """Record which noise sample each forward pass of each noisy layer uses.

    The outputs of `NoisyLinear` are not affected. A layer of another library processes a few more
    rows in each batch, which may change its outputs by rounding.

    Only eager passes are recorded: code compiled by `torch.compile` runs without the recorder.

    Args:
        module: a network, or several by name, such as `{"online": q, "target": q_target}`.

    Yields:
        The log, to which every pass is appended.

    Raises:
        ValueError: a network has no noisy layers, or is the result of `torch.compile`.
    """
    networks = {"": module} if isinstance(module, nn.Module) else dict(module)
    log = NoiseLog()
    handles: list[Any] = []
    try:
        for network, root in networks.items():
            if hasattr(root, "_orig_mod"):
                raise ValueError(
                    "record_noise expected a module that is not compiled, got the result of "
                    "torch.compile, whose passes cannot be recorded; pass the original module and "
                    "run it eagerly."
                )
            for layer in require_noisy_layers(root, "record_noise"):
                # A subclass that overrides forward is treated like any other library's layer.
                ours = type(layer.module).forward is NoisyLinear.forward
                register = _register_ours if ours else _register_foreign
                handles += register(Probe(layer), partial(log.add, network, layer.name))
        yield log
    finally:
        for handle in handles:
            handle.remove()


def _register_ours(probe: Probe, add: _Add) -> list[Any]:
    """`NoisyLinear` draws nothing in forward, so the probe is a second, unrecorded pass."""
    layer = probe.layer.module
    assert isinstance(layer, NoisyLinear)

    def after(_module: nn.Module, _inputs: Any, _output: Tensor) -> None:
        if torch.compiler.is_compiling():
            return
        with torch.no_grad(), torch.autocast(probe.inputs.device.type, enabled=False):
            inputs = probe.inputs
            if layer.rows is not None and not layer._noise_off:
                inputs = inputs[:, None].expand(-1, layer.rows, -1)
            sample = probe.solve(layer.forward(inputs))
        add(layer.rows, sample)

    return [layer.register_forward_hook(after)]


def _register_foreign(probe: Probe, add: _Add) -> list[Any]:
    """A layer that may draw noise in forward receives the probe within the recorded pass."""
    layer = probe.layer.module
    was_vector = False

    def before(_module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
        nonlocal was_vector
        if torch.compiler.is_compiling():
            return None
        x = inputs[0]
        was_vector = x.dim() == 1
        x = x[None] if was_vector else x
        rows = probe.inputs.to(x).expand(*x.shape[:-2], -1, -1)
        return (torch.cat([x, rows], dim=-2), *inputs[1:])

    def after(_module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor | None:
        if torch.compiler.is_compiling():
            return None
        size = len(probe.inputs)
        count = inputs[0].shape[-2] - size
        probed = output.detach()[..., count:, :].reshape(-1, size, output.shape[-1])
        add(None, probe.solve(probed[0]))
        return output[0] if was_vector else output[..., :count, :]

    return [layer.register_forward_pre_hook(before), layer.register_forward_hook(after)]
