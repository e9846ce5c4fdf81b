"""Run folders, a dashboard in a process of its own, and a browser.

The browser and the synthetic runs are those of the report's tests, loaded by their paths.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from reports.browser import Browser

WriteRun = Callable[..., Path]
Serve = Callable[..., str]


def load(name: str) -> ModuleType:
    """A module of the report's tests."""
    path = Path(__file__).parent.parent / "reports" / f"{name}.py"
    specification = importlib.util.spec_from_file_location(f"dashboard_{name}", path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def write_run() -> WriteRun:
    """Write a synthetic run: folder, agent, environment, seed, scores, and more by name."""
    write: Callable[..., Path] = load("synthetic_study").write_run
    protocol = {"evaluation.period_frames": 100, "evaluation.frames": 50}

    def write_short(
        folder: Path, agent: str, environment: str, seed: int, scores: list[float], **more: Any
    ) -> Path:
        settings = {"frames": 100 * len(scores), **protocol, **more.pop("settings", {})}
        return write(folder, agent, environment, seed, scores, settings=settings, **more)

    return write_short


@pytest.fixture(scope="session")
def serve() -> Iterator[Serve]:
    """Start `noisynet dashboard` with some arguments; return the address that it prints."""
    started = []

    def start(*arguments: str | Path) -> str:
        command = [sys.executable, "-m", "noisynet", "dashboard", *map(str, arguments)]
        process = subprocess.Popen([*command, "--port", "0"], stderr=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stderr is not None
        return process.stderr.readline().split()[0]

    yield start
    for process in started:
        process.terminate()
        _, messages = process.communicate(timeout=30)
        assert "Traceback" not in messages, messages


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Headless Chromium with one tab."""
    module = load("browser")
    if module.CHROMIUM is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    with module.Browser() as started:
        yield started
