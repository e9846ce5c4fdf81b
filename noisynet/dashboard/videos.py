"""Renders the newest episode of a run by `noisynet watch`, in a process of its own."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

from noisynet.dashboard.read_runs import WatchedRun

MAX_STEPS: Final = 2_000
"""Longer episodes are cut: rendering takes up to a minute for so many."""
_TIMEOUT_SECONDS: Final = 600.0
_KEPT: Final = 20


@dataclass(frozen=True)
class Video:
    """A video, or why there is none. `number` tells it from earlier ones of the same run."""

    state: Literal["none", "rendering", "ready", "failed"] = "none"
    text: str = ""
    number: int = 0


class Videos:
    """The videos of this server, in a temporary folder; run folders are not changed.

    Attributes:
        version: grows whenever a video has changed.
    """

    def __init__(self) -> None:
        self.version = 0
        self._folder = tempfile.TemporaryDirectory(prefix="noisynet-dashboard-")
        self._videos: dict[str, Video] = {}
        self._turn = asyncio.Lock()  # one at a time: rendering uses every core
        self._tasks: set[asyncio.Task[None]] = set()

    def describe(self, key: str) -> dict[str, Any]:
        """The video of a run, as JSON."""
        return vars(self._videos.get(key, Video()))

    def file(self, key: str) -> Path | None:
        """The file of a run's video, if it is ready."""
        path = self._path(key)
        return path if path.exists() else None

    def start(self, run: WatchedRun) -> None:
        """Render the newest episode of a run, unless that is under way."""
        if self._videos.get(run.key, Video()).state != "rendering":
            self._set(run.key, state="rendering", text="")
            task = asyncio.create_task(self._render(run))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Stop rendering and remove the videos."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._folder.cleanup()

    def _path(self, key: str) -> Path:
        return Path(self._folder.name) / f"{key}.mp4"

    def _set(self, key: str, **changes: Any) -> None:
        self._videos[key] = replace(self._videos.pop(key, Video()), **changes)
        self.version += 1

    async def _render(self, run: WatchedRun) -> None:
        async with self._turn:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "noisynet", "watch", str(run.path)),
                *("--episode", "last", "--max-steps", str(MAX_STEPS)),
                *("--output", str(self._path(run.key))),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
            )
            try:
                async with asyncio.timeout(_TIMEOUT_SECONDS):
                    _, messages = await process.communicate()
            except TimeoutError:
                messages = f"stopped after {_TIMEOUT_SECONDS:.0f} seconds".encode()
            finally:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        text = messages.decode("utf-8", "replace").strip()[-2000:]
        text = text.replace(f": {self._path(run.key)}", "")
        if process.returncode == 0:
            number = self._videos[run.key].number + 1
            self._set(run.key, state="ready", text=text, number=number)
        else:
            self._set(run.key, state="failed", text=text or f"exit code {process.returncode}")
        self._remove_old()

    def _remove_old(self) -> None:
        ready = [key for key, video in self._videos.items() if video.state == "ready"]
        for key in ready[:-_KEPT]:
            self._path(key).unlink(missing_ok=True)
            del self._videos[key]
