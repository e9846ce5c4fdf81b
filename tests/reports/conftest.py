"""Run folders to report on, and a browser to look at the page with.

The folder is a package for the type checker's sake: it cannot tell two conftest.py apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from . import synthetic_study
from .browser import CHROMIUM, Browser

WriteRun = Callable[..., Path]


@pytest.fixture
def write_run(tmp_path: Path) -> WriteRun:
    """Writes a run of an agent, environment and seed below `tmp_path / "runs"`.

    Its budget is as many periods as it has scores, unless `settings` say otherwise.
    """

    def write(
        agent: str,
        environment: str,
        seed: int,
        scores: list[float],
        *,
        name: str | None = None,
        settings: dict[str, Any] | None = None,
        **more: Any,
    ) -> Path:
        folder = tmp_path / "runs" / (name or f"{environment}/{agent}/seed-{seed}")
        protocol = {
            "frames": 100 * len(scores),
            "evaluation.period_frames": 100,
            "evaluation.frames": 50,
        }
        return synthetic_study.write_run(
            folder,
            agent,
            environment,
            seed,
            scores,
            settings={**protocol, **(settings or {})},
            **more,
        )

    return write


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Headless Chromium with one tab."""
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    with Browser() as started:
        yield started
