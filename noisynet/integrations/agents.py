"""The audit of any agent: which library it is of, and how that is run."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, Final

from noisynet import layers
from noisynet.layers import NoiseReport

LIBRARIES: Final = ("sb3", "torchrl", "tianshou")
"""The integrations by name; each is a module here, and an extra of the same name."""

_PACKAGES: Final = {
    "stable_baselines3": "sb3",
    "sb3_contrib": "sb3",
    "torchrl": "torchrl",
    "tianshou": "tianshou",
}


def check_noise(agent: Any, **options: Any) -> NoiseReport:
    """Audit the noise of an agent, ours or anybody's.

    Args:
        agent: a network, as for `noisynet.layers.check_noise`, or an agent of a library that there
            is an integration for: a model of Stable-Baselines3, a loss of TorchRL, an algorithm of
            Tianshou.
        options: those of `check_noise` in `noisynet.layers`, or in the integration.

    Returns:
        A report with a pass or fail, and the evidence, for each question.
    """
    for package in (kind.__module__.partition(".")[0] for kind in type(agent).__mro__):
        if package in _PACKAGES:
            integration = importlib.import_module(f"noisynet.integrations.{_PACKAGES[package]}")
            if isinstance(agent, integration.AGENTS):
                report: NoiseReport = integration.check_noise(agent, **options)
                return report
            break  # one of its networks
    return layers.check_noise(agent, **options)


def load(library: str, path: Path) -> Any:
    """An agent of a library from its file, which holds pickles: read only what you trust.

    Raises:
        ValueError: there is no integration of that name, or the file is not one of its agents.
        ImportError: the library is not installed.
    """
    if library not in LIBRARIES:
        raise ValueError(
            f"expected one of {', '.join(LIBRARIES)} before the colon, got {library!r}"
        )
    return importlib.import_module(f"noisynet.integrations.{library}").load(path)
