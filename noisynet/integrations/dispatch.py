"""The audit of any network or agent, of whichever library, and of saved ones."""

from __future__ import annotations

import importlib
import pickle
from pathlib import Path
from typing import Any, Final

import torch

from noisynet.audit import NoiseReport, audit_network

LIBRARIES: Final = ("sb3", "torchrl", "tianshou")
"""The supported libraries; each name is a module of this package and an extra of `noisynet`."""

_PACKAGES: Final = {
    "stable_baselines3": "sb3",
    "sb3_contrib": "sb3",
    "torchrl": "torchrl",
    "tianshou": "tianshou",
}


def check_noise(agent: Any, **options: Any) -> NoiseReport:
    """Check that a network or an agent keeps the noise contract.

    Args:
        agent: a network with noisy layers of any kind, a Stable-Baselines3 model, a TorchRL loss,
            or a Tianshou algorithm or policy.
        options: those of `noisynet.audit.audit_network` for a network, and of `audit` in
            `noisynet.integrations.sb3`, `.torchrl` or `.tianshou` for an agent.

    Returns:
        The answer to each question, with evidence. Printed, it is a table.
    """
    for package in (kind.__module__.partition(".")[0] for kind in type(agent).__mro__):
        if package in _PACKAGES:
            integration = importlib.import_module(f"noisynet.integrations.{_PACKAGES[package]}")
            if isinstance(agent, integration.AGENTS):
                report: NoiseReport = integration.audit(agent, **options)
                return report
            break  # one of the library's networks
    return audit_network(agent, **options)


def load_agent(library: str, path: Path) -> Any:
    """Load an agent of one of `LIBRARIES` from a file.

    The file is unpickled, which can execute arbitrary code. Load only files that you trust.

    Raises:
        ValueError: the library is unknown, or the file does not contain one of its agents.
        ImportError: the library is not installed.
    """
    if library not in LIBRARIES:
        raise ValueError(
            f"expected one of {', '.join(LIBRARIES)} before the colon, got {library!r}"
        )
    return importlib.import_module(f"noisynet.integrations.{library}").load(path)


def load_saved(path: str | Path, kinds: tuple[type, ...], description: str, variable: str) -> Any:
    """Load an agent that `torch.save` wrote whole, on the CPU; see `load_agent` for the risk.

    Error messages have a `description` of the accepted `kinds`, and a `variable` of that name.

    Raises:
        ValueError: the file contains something else, such as a `state_dict`.
    """
    expected = f"expected {description}, saved whole, in {path}"
    hint = f"save it with torch.save({variable}, path)."
    try:
        found = torch.load(path, map_location="cpu", weights_only=False)
    except (pickle.UnpicklingError, EOFError) as error:
        raise ValueError(f"{expected}, got a file that cannot be read: {error}; {hint}") from error
    if not isinstance(found, kinds):
        state = " (a state_dict?)" if isinstance(found, dict) else ""
        raise ValueError(f"{expected}, got a {type(found).__name__}{state}; {hint}")
    return found
