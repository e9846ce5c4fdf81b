"""Which code computes an agent's values and updates: plain PyTorch, torch.compile or kernels."""

from __future__ import annotations

import sys
from typing import Any, Literal

import torch
from torch import nn

from noisynet import config
from noisynet.config.compute import has_kernels
from noisynet.layers import noisy_layers
from noisynet.optimisers import CentredRMSProp, RMSPropStep, SharedRMSPropStep
from noisynet.optimisers import centred_rmsprop_ as plain_rmsprop_
from noisynet.optimisers import shared_rmsprop_ as plain_shared_rmsprop_

Compute = Literal["torch", "compile", "kernels"]
"""What a run's setting `compute` resolves to."""


def resolve_compute(
    asked: Literal["auto", "torch", "compile"], device: torch.device | str
) -> Compute:
    """`auto` means kernels on a CPU where numba is installed, and plain PyTorch elsewhere."""
    if asked != "auto":
        return asked
    on_cpu = torch.device(device).type == "cpu"
    return "kernels" if on_cpu and has_kernels() else "torch"


def choose_device(name: str, settings: config.Config | config.ActorCriticConfig) -> str:
    """Return the device of a run.

    Args:
        name: "cpu", "cuda", "cuda:1", …; or "auto", which is CUDA, where there is one, for value
            agents with convolutions as large as Atari's. Small networks, and the many processes of
            A3C, are faster on the CPU.
        settings: configuration of the run.

    Raises:
        ValueError: this machine does not have the device.
    """
    if name == "auto":
        large = isinstance(settings, config.Config) and config.has_large_convolutions(settings)
        return "cuda" if large and torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(
            f"device: expected auto, cpu or a device of this machine, got {name!r}: {error}"
        ) from error
    return name


def cache_note(compute: Compute) -> str | None:
    """What to tell a user whose kernels are compiled in every process; None if they are cached."""
    if compute != "kernels":
        return None
    from noisynet.kernels import rmsprop

    kernel: Any = rmsprop.centred_rmsprop
    if kernel.stats.cache_path is not None:
        return None
    return (
        "compiled kernels cannot be stored: neither the installation nor your cache folder can be "
        "written. Every process compiles them, for about 20 seconds; to avoid that, "
        "set NUMBA_CACHE_DIR to a folder that can be written, or compute=torch"
    )


def use_kernels(network: nn.Module) -> None:
    """Let every noisy layer of a network compute its weights by the fused kernel.

    It runs on one thread, as A3C's workers do. Value agents have several, with which PyTorch's
    operations are as fast.
    """
    from noisynet.kernels.noise import perturbed_weight

    for layer in noisy_layers(network).values():
        layer.perturb = perturbed_weight


def optimiser_for(
    settings: config.CentredRMSProp | config.Adam, network: nn.Module, compute: Compute
) -> torch.optim.Optimizer:
    """The optimiser of a value agent."""
    if compute != "compile":
        _leave_out_compiler()
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
    if isinstance(settings, config.Adam):
        return torch.optim.Adam(
            parameters, lr=settings.learning_rate, eps=settings.epsilon, fused=True
        )
    step: RMSPropStep = plain_rmsprop_
    if compute == "kernels":
        from noisynet.kernels.rmsprop import centred_rmsprop_ as step
    rates = settings.learning_rate, settings.decay, settings.epsilon
    return CentredRMSProp(parameters, *rates, step, compiled=compute == "compile")


def _leave_out_compiler() -> None:
    """Keep optimisers from importing PyTorch's compiler, which takes a second and 70 MB.

    The first calls of some methods of `Optimizer` import it, to exclude them from compilation.
    Unless it is there already, they are marked as excluded. What uses it still imports it, as the
    step of PyTorch's Adam does; kernels have their own.
    """
    if "torch._dynamo" in sys.modules:
        return
    optimiser = torch.optim.Optimizer
    for method in (
        optimiser.add_param_group,
        optimiser.load_state_dict,
        optimiser.state_dict,
        optimiser.zero_grad,
    ):
        if excluded := getattr(method, "__wrapped__", None):
            vars(excluded).setdefault("__dynamo_disable", excluded)


def shared_rmsprop_for(compute: Compute) -> SharedRMSPropStep:
    """The optimiser step of A3C's workers."""
    if compute == "kernels":
        from noisynet.kernels.rmsprop import shared_rmsprop_

        return shared_rmsprop_
    return plain_shared_rmsprop_
