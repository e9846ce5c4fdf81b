"""Runs on pages of Trackio."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from noisynet.integrations.tracker import Tracker


class TrackioTracker(Tracker):
    """Sends the metrics of training to Trackio.

    Trackio's own environment variables apply; without any, pages are in its local store.
    """

    library = "trackio"

    def _open(self, page: str, settings: dict[str, Any], folder: Path | None) -> int:  # noqa: ARG002
        with redirect_stdout(io.StringIO()):  # what it prints would disturb the live view
            self._run = self._library.init(
                project=self.project,
                name=page,
                config=settings,
                resume="allow",
                embed=False,
                auto_log_cpu=False,
                auto_log_gpu=False,
            )
        last: int = self._run._next_step - 1  # of the local store or of the server
        return last

    def _send(self, numbers: dict[str, float], frames: int) -> None:
        self._run.log(numbers, step=frames)

    def _close(self) -> None:
        if self._run is not None:
            with redirect_stdout(io.StringIO()):
                self._library.finish()
