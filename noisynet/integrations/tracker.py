"""Experiment trackers: pages that show the metrics of a run, each row once.

A killed run repeats what came after its last checkpoint. A tracker therefore sends the rows of a
frame only once a later checkpoint holds them, and a resumed run asks the page for its last frame
and sends everything after it from the run's logs. So a page has each row of `metrics.jsonl` once,
wherever the run was killed and whatever the tracker had not stored by then.
"""

from __future__ import annotations

import importlib
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from noisynet.extras import import_extra
from noisynet.loops.hooks import logged_numbers, tagged
from noisynet.loops.run_log import Observer
from noisynet.runs import RunError, RunFolder, write_atomically
from noisynet.runs.encoding import flatten

if TYPE_CHECKING:
    from noisynet.config import ActorCriticConfig, Config

DEFAULT_PROJECT = "noisynet"


class Tracker(Observer, ABC):
    """Sends the metrics of training to a page; a resumed run continues its page.

    The step of the page is the number of frames. The page of a run folder is named in its
    `tracking-id`, that of training in memory belongs to this object.

    Args:
        project: the project, or experiment, that the page belongs to.

    Raises:
        ImportError: the library is missing.
    """

    library: ClassVar[str | None] = None
    """What is imported; the extra has the same name."""

    def __init__(self, project: str = DEFAULT_PROJECT) -> None:
        self.project = project
        self._library: Any = import_extra(self.library, self.library) if self.library else None
        self._run: Any = None
        self._config: Config | ActorCriticConfig | None = None
        self._folder: RunFolder | None = None
        self._page = ""
        self._sent = -1  # the last frame whose rows are on the page
        self._pending: dict[int, dict[str, float]] = {}

    @abstractmethod
    def _open(self, page: str, settings: dict[str, Any], folder: Path | None) -> int:
        """Open or create a page; return the last frame that it has, −1 if it has none."""

    @abstractmethod
    def _send(self, numbers: dict[str, float], frames: int) -> None:
        """Add the numbers of a frame to the page."""

    @abstractmethod
    def _close(self) -> None:
        """Store what was sent, and close the page."""

    # --- events ----------------------------------------------------------------------------------

    def opened(self, config: Config | ActorCriticConfig, folder: RunFolder | None) -> None:
        """Remember what to track."""
        if folder is not None and (self._folder is None or folder.path != self._folder.path):
            self._page, self._sent = "", -1
        self._config, self._folder = config, folder

    def started(self, frames: int) -> None:
        """Open the page and send what it lacks; rows of `frames` itself may not be complete."""
        assert self._config is not None, "opened comes first"
        if self._folder is not None:
            self._pending.clear()
            for at, numbers in logged_numbers(self._folder, self._config):
                self._pending.setdefault(at, {}).update(numbers)
        settings = flatten(self._config.model_dump(mode="json"))
        self._page = self._page or _page_name(self._config, self._folder)
        path = None if self._folder is None else self._folder.path
        with _foreign_errors():
            self._sent = max(self._sent, self._open(self._page, settings, path))
        self._send_before(frames)

    def logged(self, row: dict[str, Any], steps_per_second: float) -> None:
        """Keep a row of training metrics until it is final."""
        self._add(row, steps_per_second)

    def evaluated(self, row: dict[str, Any]) -> None:
        """Keep the score of an evaluation until it is final."""
        self._add(row)

    def saved(self, frames: int) -> None:
        """Send the rows before the checkpoint."""
        self._send_before(frames)

    def ended(self, complete: bool) -> None:
        """Send the last rows, if no more can follow, and close the page."""
        if complete:
            self._send_before(1 + max(self._pending, default=0))
        with _foreign_errors():
            self._close()

    def _add(self, row: dict[str, Any], steps_per_second: float | None = None) -> None:
        assert self._config is not None
        numbers = tagged(row, self._config, steps_per_second)
        self._pending.setdefault(row["frames"], {}).update(numbers)
        if self._folder is None:
            self._send_before(row["frames"])

    def _send_before(self, frames: int) -> None:
        for at in sorted(at for at in self._pending if at < frames):
            numbers = self._pending.pop(at)
            if at > self._sent:
                with _foreign_errors():
                    self._send(numbers, at)
                self._sent = at


def make_tracker(text: str) -> Tracker:
    """Make the tracker of "wandb", "trackio" or "mlflow", or of such a name with ":project".

    Raises:
        ImportError: its package is missing; the message names the pip line.
    """
    name, _, project = text.partition(":")
    module = importlib.import_module(f"noisynet.integrations.{name}")
    kind: Callable[[str], Tracker] = getattr(module, f"{name.capitalize()}Tracker")
    return kind(project or DEFAULT_PROJECT)


def _page_name(config: Config | ActorCriticConfig, folder: RunFolder | None) -> str:
    """The name of a run's page, which its folder remembers."""
    path = None if folder is None else folder.path / "tracking-id"
    if path is not None and path.exists():
        return path.read_text().strip()
    name = f"{config.agent}-{config.environment}-seed-{config.seed}-{secrets.token_hex(4)}"
    name = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in name)
    if path is not None:
        write_atomically(path, f"{name}\n".encode())  # before the page is made
    return name


@contextmanager
def _foreign_errors() -> Iterator[None]:
    """Errors of a tracker's library switch the tracker off; they do not stop the run."""
    try:
        yield
    except (OSError, RunError):
        raise
    except Exception as error:
        raise RunError(f"{type(error).__name__}: {error}") from error
