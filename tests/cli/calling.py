"""How tests call commands."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

from typer.testing import CliRunner, Result

from noisynet.cli import app

SHORT: Final = [
    *("train", "noisynet-dqn", "deep_sea/4", "--frames", "200"),
    *("--set", "learning.starts_steps=60", "--set", "network.hidden=[16]"),
    *("--set", "learning.update_period_steps=4", "--set", "log_period_steps=50"),
    *("--set", "evaluation.period_frames=100", "--set", "evaluation.frames=40"),
]
"""A run of a second."""


def command(*arguments: str, interpreter: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run `noisynet …` in a process without a terminal."""
    return subprocess.run(
        [sys.executable, *interpreter, "-m", "noisynet", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"},
    )


def invoke(*arguments: str) -> Result:
    """Run `noisynet …` in this process."""
    return CliRunner().invoke(app, arguments)
