"""Videos are rendered one at a time, outside the run folder, and failures are told."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from noisynet.dashboard import videos
from noisynet.dashboard.read_runs import WatchedRun
from noisynet.dashboard.videos import Videos

from .conftest import WriteRun


async def render(made: Videos, *runs: WatchedRun) -> None:
    for run in runs:
        made.start(run)
    while any(made.describe(run.key)["state"] == "rendering" for run in runs):
        await asyncio.sleep(0.01)


@pytest.fixture
def run(tmp_path: Path, write_run: WriteRun) -> WatchedRun:
    return WatchedRun(write_run(tmp_path / "run", "dqn", "deep_sea/4", 0, [1.0]), "run")


def test_a_run_that_cannot_be_shown_says_why(run: WatchedRun) -> None:
    async def check() -> None:
        made = Videos()
        assert made.describe(run.key) == {"state": "none", "text": "", "number": 0}
        await render(made, run)
        found = made.describe(run.key)
        assert found["state"] == "failed"
        assert found["text"].startswith("noisynet: ")
        assert "checkpoint" in found["text"]
        assert made.file(run.key) is None
        await made.close()

    asyncio.run(check())


def test_videos_are_numbered_kept_for_a_while_and_removed_at_the_end(
    run: WatchedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    renderer = tmp_path / "renderer"
    renderer.write_text('#!/bin/sh\nfor last; do :; done\necho video > "$last"\necho made >&2\n')
    renderer.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(renderer))
    monkeypatch.setattr(videos, "_KEPT", 1)
    other = WatchedRun(tmp_path / "other", "other")

    async def check() -> None:
        made = Videos()
        await render(made, run)
        await render(made, run)
        assert made.describe(run.key) == {"state": "ready", "text": "made", "number": 2}
        file = made.file(run.key)
        assert file is not None
        assert file.read_text() == "video\n"
        await render(made, other)
        assert (made.file(run.key), made.describe(run.key)["state"]) == (None, "none")
        await made.close()
        assert not file.parent.exists()

    asyncio.run(check())


def test_closing_ends_what_is_being_rendered(
    run: WatchedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    renderer = tmp_path / "renderer"
    renderer.write_text("#!/bin/sh\nexec sleep 1000\n")
    renderer.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(renderer))

    async def check() -> None:
        made = Videos()
        made.start(run)
        await asyncio.sleep(0.1)
        await made.close()

    asyncio.run(asyncio.wait_for(check(), 60))
