"""How a contestant of audit_libraries.py hands over what it found."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from noisynet.audit import Check, NoiseReport, audit_network
from noisynet.audit.checks import HELD

INPUTS, HIDDEN, ACTIONS = 24, 32, 6
torch.manual_seed(0)  # before any network is made


def audit_layer(layer: Callable[[int, int], nn.Module], **options: Any) -> NoiseReport:
    """Audit two such layers without an agent: each is resampled by its own method."""
    network = nn.Sequential(layer(INPUTS, HIDDEN), nn.ReLU(), layer(HIDDEN, ACTIONS))
    return audit_network(network, **options)


def without_held(report: NoiseReport) -> NoiseReport:
    """The report of a layer that draws in every pass, by design: it has nothing to hold."""
    unasked = Check(HELD, None, "draws in every pass, by design")
    return NoiseReport(tuple(unasked if c.question == HELD else c for c in report.checks))


def hand_over(version: str, **audited: tuple[str, str, NoiseReport]) -> None:
    """Print the version and what was audited, by "layer" or "agent", as the last line.

    Args:
        version: of the library.
        audited: the name, how it was driven, and the report.
    """
    entries = {
        kind: {"name": name, "driven": driven, **report.to_dict()}
        for kind, (name, driven, report) in audited.items()
    }
    print(json.dumps({"version": version, **entries}))
