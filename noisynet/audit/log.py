"""The log of a recording: which noise sample each forward pass used."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import torch
from torch import Tensor

# Noise recovered from float32 outputs has rounding errors of about 1e-4. Two different samples of
# a few dozen numbers never agree this closely.
_TOLERANCE: Final = 5e-3


@dataclass(frozen=True)
class NoiseSample:
    """A few entries of the noise ε used by one forward pass.

    Attributes:
        weight: εw of a few outputs and inputs [outputs, inputs].
        bias: εb of the same outputs [outputs], or None for a layer without bias.
        shared: whether two equal rows of one batch received the same noise.
        other_rows: the samples of the other rows, if each row has its own noise.
    """

    weight: Tensor
    bias: Tensor | None
    shared: bool
    other_rows: tuple[NoiseSample, ...] = ()

    @property
    def values(self) -> Tensor:
        """All entries as one vector."""
        entries = [self.weight.flatten()] + ([] if self.bias is None else [self.bias])
        return torch.cat([*entries, *(row.values for row in self.other_rows)])

    @property
    def is_noise(self) -> bool:
        """Whether the noise is non-zero in every row."""
        found = bool((self.weight.abs() > _TOLERANCE).any())
        found = found or (self.bias is not None and bool((self.bias.abs() > _TOLERANCE).any()))
        return found and all(row.is_noise for row in self.other_rows)


@dataclass(frozen=True)
class NoiseEvent:
    """One forward pass of one noisy layer.

    Attributes:
        label: the label of the log at the time of the pass, such as `"acting"`.
        network: the name of the recorded network.
        layer: the qualified name of the layer.
        sample_index: identifies the noise sample: the distinct samples of a layer are numbered
            from 1 in order of first use. 0 if the pass had no noise.
        rows: the number of per-row samples, or None for one shared sample.
        with_gradient: whether gradients were enabled.
        sample: entries of the noise itself.
    """

    label: str
    network: str
    layer: str
    sample_index: int
    rows: int | None
    with_gradient: bool
    sample: NoiseSample = field(repr=False)

    @property
    def noisy(self) -> bool:
        """Whether the pass used noise."""
        return self.sample_index > 0


@dataclass
class NoiseLog:
    """The forward passes through all noisy layers, in order, as recorded by `record_noise`.

    Attributes:
        events: the recorded passes.
        label: attached to the passes that follow; set it before each phase.
    """

    events: list[NoiseEvent] = field(default_factory=list)
    label: str = ""
    _numbering: dict[tuple[str, str], _Numbering] = field(default_factory=dict, repr=False)

    def select(
        self,
        label: str | None = None,
        network: str | None = None,
        layer: str | None = None,
        with_gradient: bool | None = None,
    ) -> list[NoiseEvent]:
        """Return the events that match all given values."""
        return [
            event
            for event in self.events
            if label in (None, event.label)
            and network in (None, event.network)
            and layer in (None, event.layer)
            and with_gradient in (None, event.with_gradient)
        ]

    def counts(self, label: str | None = None, network: str | None = None) -> dict[str, int]:
        """Count the passes, the noisy passes and the distinct noise samples."""
        events = self.select(label, network)
        samples = {(e.network, e.layer, e.sample_index) for e in events if e.noisy}
        return {
            "passes": len(events),
            "noisy": sum(event.noisy for event in events),
            "distinct": len(samples),
        }

    def add(self, network: str, layer: str, rows: int | None, sample: NoiseSample) -> None:
        """Record a pass that used `sample`."""
        index = 0
        if sample.is_noise:
            index = self._numbering.setdefault((network, layer), _Numbering()).find(sample.values)
        gradient = torch.is_grad_enabled()
        event = NoiseEvent(self.label, network, layer, index, rows, gradient, sample)
        self.events.append(event)


class _Numbering:
    """Numbers the distinct samples of one layer from 1, in order of first use."""

    def __init__(self) -> None:
        self.count = 0
        # By length: a layer may use one sample in this pass and one per row in the next.
        self.known: dict[int, tuple[Tensor, list[int]]] = {}

    def find(self, values: Tensor) -> int:
        """Return the number of these values; values not seen before get the next number."""
        table, numbers = self.known.get(len(values), (torch.empty(64, len(values)), []))
        if numbers:
            differences = (table[: len(numbers)] - values).abs().amax(dim=1)
            nearest = int(differences.argmin())
            if differences[nearest] < _TOLERANCE * max(1.0, float(values.abs().max())):
                return numbers[nearest]
        if len(numbers) == len(table):
            table = torch.cat([table, torch.empty_like(table)])
        table[len(numbers)] = values
        self.count += 1
        numbers.append(self.count)
        self.known[len(values)] = table, numbers
        return self.count
