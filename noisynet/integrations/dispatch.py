"""The audit of any network or agent: of whichever library, saved, or made by your own function."""

from __future__ import annotations

import importlib
import inspect
import pickle
from collections.abc import Callable, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from noisynet.audit import NoiseReport, audit_network
from noisynet.audit.detect import require_noisy_layers
from noisynet.extras import import_own

LIBRARIES: Final = ("sb3", "torchrl", "tianshou")
"""The supported libraries; each name is a module of this package and an extra of `noisynet`."""

_STEPS: Final = ("act", "learn", "evaluate")
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
    return _auditor(agent)(agent, **options)


def _auditor(agent: Any) -> Callable[..., NoiseReport]:
    """The function that audits such an agent."""
    for package in (kind.__module__.partition(".")[0] for kind in type(agent).__mro__):
        if package in _PACKAGES:
            integration = importlib.import_module(f"noisynet.integrations.{_PACKAGES[package]}")
            if isinstance(agent, integration.AGENTS):
                audit: Callable[..., NoiseReport] = integration.audit
                return audit
            break  # one of the library's networks
    if not isinstance(agent, nn.Module):
        raise TypeError(
            "expected an nn.Module, a Stable-Baselines3 model, a TorchRL loss or a Tianshou "
            f"algorithm, got a {type(agent).__name__}"
        )
    return audit_network


def find_function(name: str) -> Callable[[], object]:
    """Find a function by "module:function", in the current folder or installed.

    Raises:
        ValueError: the module or the function does not exist.
        ImportError: the module fails.
    """
    module, _, path = name.partition(":")
    files = f"<library>:<file> of {', '.join(LIBRARIES)}, or <module>:<function>"
    imported = import_own(module, files, name)
    try:
        function: Callable[[], object] = attrgetter(path)(imported)
    except AttributeError:
        functions = inspect.getmembers(imported, inspect.isfunction)
        own = [key for key, value in functions if value.__module__ == imported.__name__]
        raise ValueError(
            f"expected a function of {module} after the colon, got {path!r}; it has "
            f"{', '.join(own) or 'no functions'}"
        ) from None
    if not callable(function):
        raise ValueError(f"expected a function, got {name}, a {type(function).__name__}")
    return function


def audit_arguments(made: object) -> tuple[Any, dict[str, Any]]:
    """Split what a function returned into the agent and the options of `check_noise`.

    Args:
        made: an agent; a tuple of a module and its act, learn and evaluate, where the last ones may
            be left out; or a mapping of "module" and options.

    Raises:
        TypeError: it is none of these, or an option is unknown.
        ValueError: the module has no noisy layers.
    """
    agent: Any = made
    options: dict[str, Any] = {}
    if isinstance(made, Mapping):
        options = dict(made)
        agent = options.pop("module", None)
    elif isinstance(made, tuple) and 0 < len(made) <= 1 + len(_STEPS):
        agent = made[0]
        options = dict(zip(_STEPS, made[1:], strict=False))
    audit = _auditor(agent)
    accepted = [*inspect.signature(audit).parameters][1:]
    if unknown := sorted(options.keys() - {*accepted}):
        raise TypeError(f"expected the options {', '.join(accepted)}, got {', '.join(unknown)}")
    for step in options.keys() & {*_STEPS, "sync"}:
        if options[step] is not None and not callable(options[step]):
            kind = type(options[step]).__name__
            raise TypeError(f"expected a function without arguments for {step}, got a {kind}")
    if audit is audit_network:
        require_noisy_layers(agent, "the audit")
    return agent, options


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
