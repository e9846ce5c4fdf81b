"""A run that several tests look at."""

from __future__ import annotations

from pathlib import Path

import pytest

from .calling import SHORT, command


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A short run made by the command, and its messages."""
    out = tmp_path_factory.mktemp("runs")
    ended = command(*SHORT, "--out", str(out))
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == ""
    return out / "deep_sea/4/noisynet-dqn/seed-0", ended.stderr
