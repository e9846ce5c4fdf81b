"""What every test starts from: known random streams and one thread for each worker."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
import torch

LONGEST: Final = ()
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
