"""Agents as one file."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from noisynet.runs import AgentFile, Checkpoint, RunError, load_agent_file, save_checkpoint
from noisynet.runs.agent_file import save_agent_file
from noisynet.runs.files import StorageError


def test_a_file_has_the_weights_and_the_configuration(tmp_path: Path) -> None:
    weight = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    saved = AgentFile({"agent": "dqn", "seed": 1}, 70, {"a": weight.T, "b": torch.arange(3)})
    path = tmp_path / "new" / "agent.safetensors"
    save_agent_file(path, saved)
    loaded = load_agent_file(path)
    assert (loaded.config, loaded.steps) == (saved.config, 70)
    assert torch.equal(loaded.tensors["a"], weight.T)
    assert torch.equal(loaded.tensors["b"], torch.arange(3))
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_it_is_a_safetensors_file_without_pickle(tmp_path: Path) -> None:
    from safetensors import safe_open

    path = tmp_path / "agent.safetensors"
    save_agent_file(path, AgentFile({"agent": "dqn"}, 1, {"a": torch.zeros(2)}))
    with safe_open(path, "pt") as file:
        assert list(file.keys()) == ["a"]
        assert '"agent":"dqn"' in file.metadata()["noisynet"]


def test_a_damaged_or_foreign_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "agent.safetensors"
    save_agent_file(path, AgentFile({}, 1, {"a": torch.zeros(2)}))
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(RunError, match=r"expected a file that Agent\.save wrote, or a run folder"):
        load_agent_file(path)
    step = save_checkpoint(tmp_path, Checkpoint(1, {}, {}), schema="s", identity={})
    with pytest.raises(RunError, match="for a checkpoint, give its run folder"):
        load_agent_file(step)
    with pytest.raises(StorageError, match=r"cannot read .*missing"):
        load_agent_file(tmp_path / "missing")
