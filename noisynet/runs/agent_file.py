"""An agent as one safetensors file: its weights, and its configuration in the header."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from noisynet.runs.files import RunDamaged, RunError, storage_errors, write_atomically
from noisynet.runs.reading import Count, Stored, validate
from noisynet.runs.sealed import read_sealed, seal

if TYPE_CHECKING:
    import torch

_FORMAT: Final = "noisynet agent 1"


@dataclass(frozen=True)
class AgentFile:
    """A saved agent.

    Attributes:
        config: its configuration, JSON-able.
        steps: agent steps that it was trained for.
        tensors: its weights by name, on the CPU.
    """

    config: dict[str, Any]
    steps: int
    tensors: dict[str, torch.Tensor]


class _Header(Stored):
    config: dict[str, Any]
    steps: Count


def save_agent_file(path: Path, agent: AgentFile) -> None:
    """Write an agent; an existing file is replaced once the new one is complete.

    Raises:
        StorageError: the disk cannot be written.
    """
    from safetensors.torch import save

    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in agent.tensors.items()}
    header = {"format": _FORMAT, "config": agent.config, "steps": agent.steps}
    with storage_errors("make the folder of", path):
        path.parent.mkdir(parents=True, exist_ok=True)
    # The user's own path: links in it are meant.
    write_atomically(path.parent.resolve() / path.name, seal(save, tensors, header))


def load_agent_file(path: Path) -> AgentFile:
    """Read what `save_agent_file` wrote.

    Raises:
        RunError: it is no such file, or it is damaged.
        StorageError: the disk cannot be read.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    expected = "expected a file that Agent.save wrote, or a run folder"
    try:
        with storage_errors("read", path):
            data, found = read_sealed(path.resolve())
        if found.get("format") != _FORMAT:
            raise ValueError("another format; for a checkpoint, give its run folder")
        header = validate(_Header, found, "its header")
        # Copies: safetensors does not align tensors as torch does.
        tensors = {name: tensor.clone() for name, tensor in load(data).items()}
    except (ValueError, KeyError, SafetensorError, RunDamaged) as error:
        raise RunError(f"{expected}, got {path}: {error}") from error
    return AgentFile(header.config, header.steps, tensors)
