"""Loading of agents that were saved whole by `torch.save`."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import torch


def load_saved(path: str | Path, kinds: tuple[type, ...], description: str, variable: str) -> Any:
    """Unpickle an object on the CPU. Unpickling can execute arbitrary code.

    Args:
        path: the file.
        kinds: the classes to accept.
        description: what they are, for error messages.
        variable: what to call the object in the `torch.save` line of error messages.

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
