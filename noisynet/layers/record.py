"""Watching which noise each layer really uses, in our layers and in other people's.

Every noisy layer is linear in its input, so the noise in force can be read off its outputs: the
answer to a zero vector is its bias, to a unit vector a column of its weights. Reading behaviour
instead of buffers means that a layer is judged by what it does, whatever it claims to hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from noisynet.layers.linear import NoisyLinear

_SAMPLED_OUTPUTS: Final = 8
_SAMPLED_INPUTS: Final = 4
# Noise recovered from float32 outputs carries rounding errors of about 1e-4; two different draws
# of a few dozen numbers never agree this closely.
_SAME_DRAW: Final = 5e-3
# Of one layer, with one number of rows.
_MOST_DRAWS: Final = 10**9


@dataclass(frozen=True)
class NoiseSample:
    """A small part of the noise ε in force during one pass.

    Attributes:
        weight: εw of a few outputs and inputs [outputs, inputs].
        bias: εb of the same outputs [outputs], or None for a layer without bias.
        shared: whether two equal rows of one batch met the same noise.
        others: the same of every other row, where each row has noise of its own.
    """

    weight: Tensor
    bias: Tensor | None
    shared: bool
    others: tuple[NoiseSample, ...] = ()

    @property
    def values(self) -> Tensor:
        """All of it as one vector."""
        parts = [self.weight.flatten()] + ([] if self.bias is None else [self.bias])
        return torch.cat([*parts, *(other.values for other in self.others)])

    @property
    def is_noise(self) -> bool:
        """Whether any of it differs from zero, in every row."""
        found = bool((self.weight.abs() > _SAME_DRAW).any())
        found = found or (self.bias is not None and bool((self.bias.abs() > _SAME_DRAW).any()))
        return found and all(other.is_noise for other in self.others)


@dataclass(frozen=True)
class NoiseEvent:
    """One forward pass of one noisy layer.

    Attributes:
        label: the recorder's label at that moment, such as `"acting"`.
        network: which of the recorded networks the layer belongs to.
        layer: the layer's qualified name.
        draw: which draw was in force, numbered from 1 for each layer in order of appearance;
            0 where there was no noise at all.
        rows: the number of per-row samples, None for one shared sample.
        with_gradient: whether the pass was part of a gradient computation.
        sample: a part of the noise itself.
    """

    label: str
    network: str
    layer: str
    draw: int
    rows: int | None
    with_gradient: bool
    sample: NoiseSample = field(repr=False)

    @property
    def noisy(self) -> bool:
        """Whether the pass used noise."""
        return self.draw > 0


@dataclass
class NoiseLog:
    """What `record_noise` writes: every pass through every noisy layer, in order.

    Attributes:
        events: the passes.
        label: attached to the passes to come; set it before each phase.
    """

    events: list[NoiseEvent] = field(default_factory=list)
    label: str = ""
    _draws: dict[tuple[str, str], dict[int, _Draws]] = field(default_factory=dict, repr=False)

    def select(
        self,
        label: str | None = None,
        network: str | None = None,
        layer: str | None = None,
        with_gradient: bool | None = None,
    ) -> list[NoiseEvent]:
        """The events that match everything given."""
        return [
            event
            for event in self.events
            if label in (None, event.label)
            and network in (None, event.network)
            and layer in (None, event.layer)
            and with_gradient in (None, event.with_gradient)
        ]

    def counts(self, label: str | None = None, network: str | None = None) -> dict[str, int]:
        """How many passes there were, how many were noisy, and how many distinct draws."""
        events = self.select(label, network)
        draws = {(event.network, event.layer, event.draw) for event in events if event.noisy}
        return {
            "passes": len(events),
            "noisy": sum(event.noisy for event in events),
            "distinct": len(draws),
        }

    def add(self, network: str, layer: str, rows: int | None, sample: NoiseSample) -> None:
        """Record a pass that met `sample`."""
        draw = self._number(network, layer, sample) if sample.is_noise else 0
        gradient = torch.is_grad_enabled()
        self.events.append(
            NoiseEvent(self.label, network, layer, draw, rows, gradient, sample=sample)
        )

    def _number(self, network: str, layer: str, sample: NoiseSample) -> int:
        # A layer may hold one sample now, and one for each row then: those are never the same.
        values = sample.values
        sizes = self._draws.setdefault((network, layer), {})
        seen = sizes.setdefault(len(values), _Draws(len(values)))
        number = seen.number(values)
        before = list(sizes).index(len(values))
        return number if not before else number + before * _MOST_DRAWS


class _Draws:
    """The distinct draws of one layer, in order of appearance."""

    def __init__(self, size: int) -> None:
        self.count = 0
        self.values = torch.empty(64, size)

    def number(self, values: Tensor) -> int:
        """Which draw these values are, counted from 1; a new one if they are none."""
        tolerance = _SAME_DRAW * max(1.0, float(values.abs().max()))
        if self.count:
            differences = (self.values[: self.count] - values).abs().amax(dim=1)
            nearest = int(differences.argmin())
            if differences[nearest] < tolerance:
                return nearest + 1
        if self.count == len(self.values):
            self.values = torch.cat([self.values, torch.empty_like(self.values)])
        self.values[self.count] = values
        self.count += 1
        return self.count


@dataclass(frozen=True)
class NoisyView:
    """The means and deviations of a noisy layer, whoever wrote it.

    Attributes:
        name: the layer's qualified name.
        layer: the module itself.
        weight_mu: the parameters' names inside the layer, likewise below.
        weight_sigma: -
        bias_mu: -
        bias_sigma: -
        transposed: whether the weights are stored as [in, out].
    """

    name: str
    layer: nn.Module
    weight_mu: str
    weight_sigma: str
    bias_mu: str | None
    bias_sigma: str | None
    transposed: bool = False

    def get(self, name: str | None) -> Tensor | None:
        """The parameter of that name, weights as [out, in]."""
        if name is None:
            return None
        # Not get_parameter: functional calls put plain tensors in the parameters' place.
        parameter: Tensor = attrgetter(name)(self.layer).detach()
        return parameter.t() if self.transposed and parameter.dim() == 2 else parameter

    @property
    def sigmas(self) -> list[str]:
        """The names of the deviations."""
        return [name for name in (self.weight_sigma, self.bias_sigma) if name is not None]

    @property
    def parameters(self) -> list[str]:
        """The names of the means and the deviations."""
        return [n for n in (self.weight_mu, self.bias_mu) if n is not None] + self.sigmas


def find_noisy_layers(module: nn.Module) -> list[NoisyView]:
    """Every layer with a parameter named like "sigma" beside its twin named like "mu"."""
    views = []
    for name, layer in module.named_modules():
        pairs = _mu_sigma_pairs(layer)
        weights = [pair for pair in pairs if layer.get_parameter(pair[1]).dim() == 2]
        biases = [pair for pair in pairs if layer.get_parameter(pair[1]).dim() == 1]
        if weights:
            mu, sigma = weights[0]
            bias_mu, bias_sigma = biases[0] if biases else (None, None)
            transposed = _is_transposed(layer, mu, bias_mu)
            views.append(NoisyView(name, layer, mu, sigma, bias_mu, bias_sigma, transposed))
    return views


def _mu_sigma_pairs(layer: nn.Module) -> list[tuple[str, str]]:
    """Pairs of parameter names, held by the layer itself or by linear children `mu` and `sigma`."""
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


class _Probe:
    """Inputs whose outputs give the noise away: z, z, 0 and a few unit vectors."""

    def __init__(self, view: NoisyView) -> None:
        self.view = view
        mean = view.get(view.weight_mu)
        assert mean is not None
        inputs = mean.shape[1]
        self.outputs, self.inputs = _visible_entries(view)
        direction = torch.linspace(-1, 1, inputs) if inputs > 1 else torch.ones(1)
        units = F.one_hot(self.inputs, inputs).to(direction.dtype)
        rows = [direction[None], direction[None], torch.zeros(1, inputs), units]
        self.rows = torch.cat(rows).to(mean.device, mean.dtype)  # [3 + units, in]

    def read(self, outputs: Tensor) -> NoiseSample:
        """Solve for ε from the layer's answers [3 + units, out], or [3 + units, rows, out]."""
        view = self.view
        mean, sigma = view.get(view.weight_mu), view.get(view.weight_sigma)
        assert mean is not None
        assert sigma is not None
        bias_mean, bias_sigma = view.get(view.bias_mu), view.get(view.bias_sigma)
        expected = F.linear(self.rows.to(mean.dtype), mean, bias_mean)
        answers = outputs[:, None] if outputs.dim() == 2 else outputs
        centred = (answers - expected[:, None]).float()  # [3 + units, rows, out]
        scale = mean.abs().amax().float() + 1
        shared = ((centred[0] - centred[1]).abs().amax(dim=-1) <= 1e-5 * scale).tolist()
        at_zero, at_units = centred[2, :, self.outputs], centred[3:, :, self.outputs]
        weight = (at_units - at_zero).permute(1, 2, 0)  # [rows, outputs, units]
        weight = _divide(weight, sigma[self.outputs][:, self.inputs].float()).cpu()
        bias = None
        if bias_sigma is not None:
            bias = _divide(at_zero, bias_sigma[self.outputs].float()).cpu()  # [rows, outputs]
        first, *others = (
            NoiseSample(of_row, None if bias is None else bias[row], shared[row])
            for row, of_row in enumerate(weight)
        )
        return replace(first, others=tuple(others))


def _visible_entries(view: NoisyView) -> tuple[slice, Tensor]:
    """Neighbouring outputs and some inputs whose noise is large enough to be read off outputs.

    In a trained layer some σ are next to nothing, and what one divides by them is rounding.
    """
    sigma, bias = view.get(view.weight_sigma), view.get(view.bias_sigma)
    assert sigma is not None
    size = sigma.abs().float()
    outputs, inputs = size.shape
    enough = 1e-3 * float(size.median())
    spread = torch.linspace(0, inputs - 1, min(inputs, _SAMPLED_INPUTS)).round().long()
    columns = size.median(dim=0).values
    if columns[spread].min() < enough:
        spread = columns.topk(len(spread)).indices
    spread = torch.tensor(sorted(set(spread.tolist())))
    rows = size[:, spread].amin(dim=1)
    if bias is not None:
        rows = torch.minimum(rows, bias.abs().float())
    for width in range(min(outputs, _SAMPLED_OUTPUTS), 0, -1):
        smallest, start = rows.unfold(0, width, 1).amin(dim=1).max(dim=0)
        if smallest > enough:
            return slice(int(start), int(start) + width), spread
    return slice(0, min(outputs, _SAMPLED_OUTPUTS)), spread


def _divide(noise: Tensor, sigma: Tensor) -> Tensor:
    return torch.where(sigma.abs() > 1e-12, noise / sigma, torch.zeros_like(noise))


def _watch_ours(probe: _Probe, add: Callable[[int | None, NoiseSample], None]) -> list[Any]:
    """Our own layer draws nothing in forward, so it is simply asked again, off the record."""
    layer = probe.view.layer
    assert isinstance(layer, NoisyLinear)

    def after(_module: nn.Module, _inputs: Any, _output: Tensor) -> None:
        with torch.no_grad(), torch.autocast(probe.rows.device.type, enabled=False):
            rows = probe.rows
            if layer.rows is None or layer._noise_off:
                sample = probe.read(layer.forward(rows))
            else:
                sample = probe.read(layer.forward(rows[:, None].expand(-1, layer.rows, -1)))
        add(layer.rows, sample)

    return [layer.register_forward_hook(after)]


def _watch_foreign(probe: _Probe, add: Callable[[int | None, NoiseSample], None]) -> list[Any]:
    """A layer that may draw inside forward meets the probe in the very same pass."""
    layer = probe.view.layer
    was_vector = False

    def before(_module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        nonlocal was_vector
        x = inputs[0]
        was_vector = x.dim() == 1
        x = x[None] if was_vector else x
        rows = probe.rows.to(x).expand(*x.shape[:-2], -1, -1)
        return (torch.cat([x, rows], dim=-2), *inputs[1:])

    def after(_module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
        count = inputs[0].shape[-2] - len(probe.rows)
        answers = output.detach()[..., count:, :].reshape(-1, len(probe.rows), output.shape[-1])
        add(None, probe.read(answers[0]))
        return output[0] if was_vector else output[..., :count, :]

    return [layer.register_forward_pre_hook(before), layer.register_forward_hook(after)]


@contextmanager
def record_noise(module: nn.Module | Mapping[str, nn.Module]) -> Iterator[NoiseLog]:
    """Record, for each forward of each noisy layer, which draw was in force.

    Our own layers compute exactly what they would unrecorded. Another library's layer gets a few
    more rows in each batch, which may change its results by rounding.

    Args:
        module: a network, or several by name, such as `{"online": q, "target": q_target}`.

    Yields:
        The log, which grows as the networks are used.
    """
    networks = {"": module} if isinstance(module, nn.Module) else dict(module)
    log = NoiseLog()
    handles: list[Any] = []
    try:
        for network, root in networks.items():
            if hasattr(root, "_orig_mod"):
                raise ValueError(
                    "record_noise expected a module that is not compiled, whose layers can be "
                    "watched, got a compiled one; give it the module before torch.compile."
                )
            views = find_noisy_layers(root)
            if not views:
                raise ValueError(
                    "record_noise expected a module with noisy layers (parameters named like "
                    f"'weight_mu' and 'weight_sigma'), got a {type(root).__name__} without any."
                )
            for view in views:

                def add(
                    rows: int | None,
                    sample: NoiseSample,
                    network: str = network,
                    layer: str = view.name,
                ) -> None:
                    log.add(network, layer, rows, sample)

                # A subclass with a forward of its own may do anything there.
                ours = type(view.layer).forward is NoisyLinear.forward
                watch = _watch_ours if ours else _watch_foreign
                handles += watch(_Probe(view), add)
        yield log
    finally:
        for handle in handles:
            handle.remove()
