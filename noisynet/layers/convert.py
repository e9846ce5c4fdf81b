"""Conversion of an ordinary network into a noisy one, and back."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from noisynet.layers.arguments import Distribution, Noise, NoiseFunction
from noisynet.layers.linear import NoisyLinear
from noisynet.layers.lstm import NoisyLSTMCell

Where = Iterable[str] | Callable[[str, nn.Module], bool] | None
"""Which layers to convert: their names, a predicate of (name, layer), or None for all."""


def make_noisy(
    module: nn.Module,
    where: Where = None,
    *,
    noise: Noise = "factorised",
    sigma0: float | None = None,
    distribution: Distribution = "gaussian",
    f: NoiseFunction = "signed_sqrt",
    keep_weights: bool = False,
    generator: torch.Generator | None = None,
) -> tuple[nn.Module, list[str]]:
    """Return a copy of `module` whose linear layers (and LSTM cells) are noisy.

    Args:
        module: a network, or a bare `nn.Linear` or `nn.LSTMCell`. It is not changed.
        where: the qualified names to convert (as `named_modules` gives them), or a predicate of
            name and layer; None converts every `nn.Linear` and `nn.LSTMCell`. Other classes,
            subclasses of these two included, are never converted.
        noise: `"factorised"` or `"independent"`.
        sigma0: the initial noise, as for `NoisyLinear`.
        distribution: of ε, as for `NoisyLinear`.
        f: shapes factorised noise, as for `NoisyLinear`.
        keep_weights: use the given weights as μ, to add noise to a trained network; otherwise μ is
            initialised as in the paper.
        generator: initialises μ and draws the first ε; torch's global generator if not given.

    Returns:
        The new module, and the names of the converted layers (`""` is the module itself). A shared
        layer is converted once, under its first name.
    """
    _check_not_noisy_already(module)
    noisy = copy.deepcopy(module)
    chosen = _chosen_layers(noisy, where)
    _check_no_tied_parameters(noisy, chosen)
    options: dict[str, Any] = {
        "noise": noise,
        "sigma0": sigma0,
        "distribution": distribution,
        "f": f,
        "generator": generator,
    }
    replacements: dict[nn.Module, nn.Module] = {
        layer: _noisy_version(layer, keep_weights, options) for layer in chosen.values()
    }
    return _replaced(noisy, replacements), list(chosen)


def make_plain(module: nn.Module, *, noise: bool = False) -> nn.Module:
    """Return a copy of `module` whose noisy layers are `nn.Linear` (and `nn.LSTMCell`) again.

    Args:
        module: a network with noisy layers, or a bare noisy layer. It is not changed.
        noise: False for the mean weights μ; True for the sample that the layers hold, μ + σ⊙ε.

    Raises:
        ValueError: the module has no noisy layers, or one sample for each row of a batch.
    """
    plain = copy.deepcopy(module)
    layers = [layer for layer in plain.modules() if isinstance(layer, NoisyLinear)]
    if not layers or any(noise and layer.rows is not None for layer in layers):
        found = "one sample for each row of a batch" if layers else "no noisy layers"
        raise ValueError(
            f"make_plain expected noisy layers with one sample, got a {type(module).__name__} with "
            f"{found}."
        )
    replacements: dict[nn.Module, nn.Module] = {
        layer: _plain_version(layer, noise)
        for layer in plain.modules()
        if isinstance(layer, NoisyLinear | NoisyLSTMCell)
    }
    return _replaced(plain, replacements)


def _replaced(module: nn.Module, replacements: dict[nn.Module, nn.Module]) -> nn.Module:
    """Replace layers of a module, or the module itself."""
    if module in replacements:
        return replacements[module]
    for parent in list(module.modules()):
        for name, child in parent._modules.items():
            if child in replacements:
                parent._modules[name] = replacements[child]
    return module


def _check_not_noisy_already(module: nn.Module) -> None:
    if any(isinstance(layer, NoisyLinear) for layer in module.modules()):
        raise ValueError(
            f"make_noisy expected a module without noise, got a {type(module).__name__} that has "
            "noisy layers already; convert once, with every layer in `where`."
        )


def _chosen_layers(module: nn.Module, where: Where) -> dict[str, nn.Module]:
    candidates = {
        name: layer
        for name, layer in module.named_modules()
        if type(layer) in (nn.Linear, nn.LSTMCell)
    }
    first_names = {layer: name for name, layer in candidates.items()}
    every_name = dict(module.named_modules(remove_duplicate=False))
    if where is None:
        chosen = candidates
    elif callable(where):
        chosen = {name: layer for name, layer in candidates.items() if where(name, layer)}
    else:
        names = [where] if isinstance(where, str) else _names(where)
        for name in names:
            if every_name.get(name) not in first_names:
                raise ValueError(_unknown_layer(name, module, list(candidates)))
        asked = {first_names[every_name[name]] for name in names}
        chosen = {name: layer for name, layer in candidates.items() if name in asked}
    if not chosen:
        raise ValueError(
            "make_noisy found nothing to convert: expected where to choose from the nn.Linear and "
            f"nn.LSTMCell layers {list(candidates)} of this {type(module).__name__}."
        )
    for name, layer in chosen.items():
        if layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks:
            raise ValueError(
                f"make_noisy expected {name!r} to have no hooks, which conversion would lose; "
                "convert first and then register them."
            )
    return chosen


def _names(where: object) -> list[str]:
    names = list(where) if isinstance(where, Iterable) else [where]
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"where expected names of layers or a predicate, got {where!r}.")
    return [str(name) for name in names]


def _unknown_layer(name: str, module: nn.Module, candidates: list[str]) -> str:
    found = dict(module.named_modules()).get(name)
    given = "no such layer" if found is None else f"a {type(found).__name__}"
    near = difflib.get_close_matches(name, candidates, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return (
        f"make_noisy expected {name!r} to name an nn.Linear or nn.LSTMCell, one of {candidates}, "
        f"found {given}.{hint}"
    )


def _check_no_tied_parameters(module: nn.Module, chosen: dict[str, nn.Module]) -> None:
    """Refuse tied parameters: converting one owner would silently untie them."""
    owners: dict[nn.Parameter, set[nn.Module]] = {}
    for owner in module.modules():
        for parameter in owner._parameters.values():
            if parameter is not None:
                owners.setdefault(parameter, set()).add(owner)
    for name, layer in chosen.items():
        for parameter in layer._parameters.values():
            if parameter is not None and len(owners[parameter]) > 1:
                raise ValueError(
                    f"make_noisy expected {name!r} to own its parameters, but one of them is tied "
                    "to another layer; share the layer itself, or leave it out of `where`."
                )


def _noisy_version(layer: nn.Module, keep_weights: bool, options: dict[str, Any]) -> nn.Module:
    if isinstance(layer, nn.Linear):
        linear = NoisyLinear(
            layer.in_features,
            layer.out_features,
            layer.bias is not None,
            device=layer.weight.device,
            dtype=layer.weight.dtype,
            **options,
        )
        if keep_weights:
            _set_means(linear, layer.weight, layer.bias)
        return linear.train(layer.training)
    assert isinstance(layer, nn.LSTMCell)
    cell = NoisyLSTMCell(
        layer.input_size,
        layer.hidden_size,
        layer.bias,
        device=layer.weight_ih.device,
        dtype=layer.weight_ih.dtype,
        **options,
    )
    if keep_weights:
        _set_means(cell.input_gates, layer.weight_ih, layer.bias_ih if layer.bias else None)
        _set_means(cell.hidden_gates, layer.weight_hh, layer.bias_hh if layer.bias else None)
    return cell.train(layer.training)


def _set_means(noisy: NoisyLinear, weight: Tensor, bias: Tensor | None) -> None:
    """Use the given weights as means; frozen ones stay frozen."""
    with torch.no_grad():
        noisy.weight_mu.copy_(weight).requires_grad_(weight.requires_grad)
        if bias is not None and noisy.bias_mu is not None:
            noisy.bias_mu.copy_(bias).requires_grad_(bias.requires_grad)


def _plain_version(layer: NoisyLinear | NoisyLSTMCell, noise: bool) -> nn.Module:
    first = layer if isinstance(layer, NoisyLinear) else layer.input_gates
    bias = first.bias_mu is not None
    options: dict[str, Any] = {"device": first.weight_mu.device, "dtype": first.weight_mu.dtype}
    plain: nn.Linear | nn.LSTMCell
    parts: list[tuple[NoisyLinear, Tensor, Tensor | None]]
    if isinstance(layer, NoisyLinear):
        plain = nn.Linear(layer.in_features, layer.out_features, bias, **options)
        parts = [(layer, plain.weight, plain.bias)]
    else:
        plain = nn.LSTMCell(layer.input_size, layer.hidden_size, bias, **options)
        parts = [(layer.input_gates, plain.weight_ih, plain.bias_ih if bias else None)]
        parts += [(layer.hidden_gates, plain.weight_hh, plain.bias_hh if bias else None)]
    with torch.no_grad():
        for noisy, weight, biases in parts:
            weight.copy_(noisy.weight if noise else noisy.weight_mu)
            weight.requires_grad_(noisy.weight_mu.requires_grad)
            if biases is not None and noisy.bias_mu is not None:
                current = noisy.bias if noise else noisy.bias_mu
                assert current is not None
                biases.copy_(current).requires_grad_(noisy.bias_mu.requires_grad)
    return plain.train(layer.training)
