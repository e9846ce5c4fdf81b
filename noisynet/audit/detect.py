"""Detection of noisy layers by the names of their parameters, in any library."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from torch import Tensor, nn


@dataclass(frozen=True)
class DetectedLayer:
    """A noisy layer and the names of its parameters.

    Attributes:
        name: the qualified name of the layer.
        module: the layer itself.
        weight: the names of the mean weights and of their standard deviations within the layer.
        bias: the names of the mean biases and of theirs; empty for a layer without bias.
        transposed: whether the weights are stored as [in, out].
    """

    name: str
    module: nn.Module
    weight: tuple[str, ...]
    bias: tuple[str, ...] = ()
    transposed: bool = False

    @property
    def weights(self) -> tuple[Tensor, Tensor]:
        """μw and σw, each [out, in]."""
        mu, sigma = map(self._get, self.weight)
        return (mu.t(), sigma.t()) if self.transposed else (mu, sigma)

    @property
    def biases(self) -> tuple[Tensor, Tensor] | tuple[None, None]:
        """μb and σb, each [out]; None for a layer without bias."""
        if not self.bias:
            return None, None
        mu, sigma = map(self._get, self.bias)
        return mu, sigma

    def _get(self, name: str) -> Tensor:
        # Not get_parameter: functional_call replaces parameters by plain tensors.
        parameter: Tensor = attrgetter(name)(self.module)
        return parameter.detach()

    @property
    def sigmas(self) -> list[str]:
        """The names of the standard deviations."""
        return [*self.weight[1:], *self.bias[1:]]

    @property
    def parameters(self) -> list[str]:
        """The names of the means and the standard deviations."""
        return [*self.weight[:1], *self.bias[:1], *self.sigmas]


def find_noisy_layers(module: nn.Module) -> list[DetectedLayer]:
    """Find every layer with a parameter named like "sigma" and its counterpart named like "mu"."""
    found = []
    for name, layer in module.named_modules():
        pairs = _mu_sigma_pairs(layer)
        weights = [pair for pair in pairs if layer.get_parameter(pair[1]).dim() == 2]
        biases = [pair for pair in pairs if layer.get_parameter(pair[1]).dim() == 1]
        if weights:
            weight, bias = weights[0], biases[0] if biases else ()
            transposed = _is_transposed(layer, weight[0], bias[0] if bias else None)
            found.append(DetectedLayer(name, layer, weight, bias, transposed))
    return found


def require_noisy_layers(module: nn.Module, caller: str) -> list[DetectedLayer]:
    """Return the noisy layers of `module`.

    Raises:
        ValueError: the module has no noisy layers.
    """
    found = find_noisy_layers(module)
    if not found:
        raise ValueError(
            f"{caller} expected a module with noisy layers (parameters named like 'weight_mu' and "
            f"'weight_sigma'), got a {type(module).__name__} without any."
        )
    return found


def first_layer(module: nn.Module) -> Any:
    """Return the first linear or convolutional layer, or None.

    Containers such as TorchRL's MLP have `in_features` too, but no parameters of their own.
    """
    for layer in module.modules():
        if layer._parameters and (hasattr(layer, "in_features") or hasattr(layer, "in_channels")):
            return layer
    return None


def _mu_sigma_pairs(layer: nn.Module) -> list[tuple[str, str]]:
    """Pairs of parameter names, of the layer itself or of linear children `mu` and `sigma`."""
    children = dict(layer.named_children())
    in_children = children.keys() == {"mu", "sigma"} and all(
        isinstance(child, nn.Linear) for child in children.values()
    )
    own = {name for name, _ in layer.named_parameters() if "." not in name or in_children}
    return [
        (name.replace("sigma", "mu"), name)
        for name in sorted(own)
        if "sigma" in name and name.replace("sigma", "mu") in own
    ]


def _is_transposed(layer: nn.Module, weight_mu: str, bias_mu: str | None) -> bool:
    rows, columns = layer.get_parameter(weight_mu).shape
    if bias_mu is None or rows == columns:
        return False
    return layer.get_parameter(bias_mu).shape[0] == columns
