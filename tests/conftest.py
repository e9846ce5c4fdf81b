"""What every test starts from: known random streams and one thread for each worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import torch
from integrations.hub_stub import Hub, running_hub

LONGEST: Final = (
    "agents/test_compute.py",  # compiles the kernels, which these do not need meanwhile:
    "experiments/test_ray_cluster.py",
    "integrations/test_sb3_audit.py",
    "integrations/test_sb3.py",
    "audit/test_checks.py",
    "agents/test_audit.py",
    "loops/test_a3c_kill_and_resume.py",
    "test_notebooks.py",
    "test_documentation.py",
    "loops/test_tracked_runs.py",
    "dashboard/test_page_in_browser.py",
    "experiments/test_real_sweep.py",
    "experiments/test_sweep.py",
    "test_first_hour.py",
    "test_export.py",
    "test_results.py",
    "test_api.py",
    "cli/test_entry.py",
    "loops/test_kill_and_resume.py",
    "loops/test_faults.py",
    "experiments/test_search.py",
    "envs/test_training.py",
    "integrations/test_tianshou.py",
)
"""Files that take longest, which start first: none of them is left when the others have ended."""


def pytest_configure(config: pytest.Config) -> None:
    """With `-n`, each file is run by one worker, which shares what its tests share."""
    if getattr(config.option, "dist", "no") == "load":
        config.option.dist, config.option.loadscopereorder = "loadfile", False


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the longest files."""
    tests = Path(__file__).parent
    rank = {tests / name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path, len(LONGEST)))


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
