"""What every test starts from: known random streams and one thread for each worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from integrations.hub_stub import Hub, running_hub


@pytest.fixture(autouse=True)
def _deterministic() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # pytest already runs one process per core


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A Hub that the client of this process, and of its children, talks to."""
    constants = pytest.importorskip("huggingface_hub.constants")

    with running_hub() as hub:
        cache = tmp_path / "cache"
        variables = {"HF_ENDPOINT": hub.address, "HF_TOKEN": hub.token, "HF_HOME": str(cache)}
        for name, value in {**variables, "HF_HUB_DISABLE_XET": "1"}.items():
            monkeypatch.setenv(name, value)
        # The client has read these two already.
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache / "hub"))
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        yield hub
