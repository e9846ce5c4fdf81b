"""The log of a run: rows of metrics, timings, and messages to observers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from noisynet.loops.episodes import FinishedEpisode
from noisynet.loops.supervisor import Health
from noisynet.runs import MetricsLog, NoMetrics, RunError, RunFolder, list_traces, read_metrics
from noisynet.runs.files import remove_file, storage_errors

if TYPE_CHECKING:
    from noisynet.config import ActorCriticConfig, Config
    from noisynet.evaluation import EvaluationResult

_PROGRESS_SECONDS: Final = 1.0


class Observer:
    """Follows a run without changing it; override what you need."""

    def opened(self, config: Config | ActorCriticConfig, folder: RunFolder | None) -> None:
        """Training is about to start, in memory if `folder` is None; called before `started`."""

    def started(self, frames: int) -> None:
        """Training starts, or resumes from a checkpoint at `frames`."""

    def progressed(self, frames: int, steps_per_second: float | None) -> None:
        """About once a second; the speed is None during an evaluation."""

    def logged(self, row: dict[str, Any], steps_per_second: float) -> None:
        """A row of training metrics was written."""

    def evaluated(self, row: dict[str, Any]) -> None:
        """An evaluation was completed."""

    def saved(self, frames: int) -> None:
        """A checkpoint at `frames` was written: a killed run repeats none of the rows before it."""

    def noted(self, message: str) -> None:
        """A message for the user; may come before `started`."""

    def watched(self, workers: Sequence[Health]) -> None:
        """The state of each worker, about twice a second."""

    def ended(self, complete: bool) -> None:
        """Training ended; unless `complete`, there may be more rows of the last frame later."""


class RunLog:
    """Writes the metrics of a run and notifies its observers.

    Without a folder nothing is written.

    Attributes:
        evaluated_at: frames of the last evaluation, 0 before the first.
    """

    def __init__(
        self,
        folder: RunFolder | None,
        frames_per_step: int,
        period_steps: int,
        observers: Sequence[Observer],
    ) -> None:
        self.folder, self.frames_per_step = folder, frames_per_step
        self.period_steps = period_steps
        self.observers = list(observers)
        self.metrics: MetricsLog = NoMetrics()
        self.timing: MetricsLog = NoMetrics()
        if folder:
            self.metrics = MetricsLog(folder.metrics_path, folder.check_lock)
            self.timing = MetricsLog(folder.timing_path, folder.check_lock)
        self._measures: dict[str, list[float]] = {"loss": []}
        self.evaluated_at = 0
        self._scores: list[float] = []  # of the last 100 episodes, as are their lengths
        self._lengths: list[int] = []
        self._finished_episodes = 0
        self._clock = (time.monotonic(), 0)
        self._stepped_at = self._progressed_at = 0.0

    def start(self, steps: int, config: Config | ActorCriticConfig) -> None:
        """Tell the observers that training starts at `steps`."""
        self._notify(lambda observer: observer.opened(config, self.folder))
        self._notify(lambda observer: observer.started(steps * self.frames_per_step))
        self._stepped_at = time.monotonic()
        self.restart_clock(steps)

    def idle_seconds(self) -> float:
        """The time since the last step of training or of an evaluation."""
        return time.monotonic() - self._stepped_at

    def restart_clock(self, steps: int) -> None:
        """Exclude the time until now from the training speed."""
        self._clock = (time.monotonic(), steps)

    def progress(self, steps: int, *, evaluating: bool = False) -> None:
        """Tell the observers where the run is, if a second has passed; called at every step."""
        now, (then, steps_then) = time.monotonic(), self._clock
        self._stepped_at = now
        if now - self._progressed_at < _PROGRESS_SECONDS:
            return
        self._progressed_at = now
        speed = None if evaluating else (steps - steps_then) / max(1e-9, now - then)
        self._notify(lambda observer: observer.progressed(steps * self.frames_per_step, speed))

    def message(self, text: str) -> None:
        """Show a message to the user."""
        self._notify(lambda observer: observer.noted(text))

    def workers(self, health: Sequence[Health]) -> None:
        """Show the state of each worker."""
        self._notify(lambda observer: observer.watched(health))

    def saved(self, steps: int) -> None:
        """Tell the observers of a checkpoint."""
        self._notify(lambda observer: observer.saved(steps * self.frames_per_step))

    def end(self, complete: bool) -> None:
        """Tell the observers that training ended."""
        self._notify(lambda observer: observer.ended(complete))

    def close(self) -> None:
        """Close the files."""
        self.metrics.close()
        self.timing.close()

    # --- metrics ---------------------------------------------------------------------------------

    def add_update(self, measures: Mapping[str, float]) -> None:
        """Add what one update measured to the means of the next row."""
        for name, value in measures.items():
            self._measures.setdefault(name, []).append(value)

    def add_episode(self, episode: FinishedEpisode, steps: int) -> None:
        """Write the row of an episode that ended at `steps`."""
        self._finished_episodes += 1
        self._scores = [*self._scores[-99:], episode.score]
        self._lengths = [*self._lengths[-99:], episode.steps]
        self.metrics.append(
            {
                "kind": "episode",
                "frames": steps * self.frames_per_step,
                "env": episode.env,
                "episode": episode.number,
                "score": episode.score,
                "steps": episode.steps,
            }
        )

    def row_is_due(self, before: int, steps: int) -> bool:
        """Whether a row of training metrics is due between two numbers of steps."""
        return steps // self.period_steps > before // self.period_steps

    def add_row(
        self,
        steps: int,
        updates: int,
        sigma: Mapping[str, float],
        more: Mapping[str, float] | None = None,
    ) -> None:
        """Write a row of training metrics with the means since the previous row."""
        means = {
            name: float(np.mean(values)) if values else None
            for name, values in self._measures.items()
        }
        row = {
            "kind": "train",
            "frames": steps * self.frames_per_step,
            "steps": steps,
            "updates": updates,
            "episodes": self._finished_episodes,
            "score_last": self._scores[-1] if self._scores else None,
            "score_mean_100": float(np.mean(self._scores)) if self._scores else None,
            "length_mean_100": float(np.mean(self._lengths)) if self._lengths else None,
            **means,
            "sigma": dict(sigma),
            **(more or {}),
        }
        self._measures = {name: [] for name in self._measures}
        self.metrics.append(row)
        now, (then, steps_then) = time.monotonic(), self._clock
        speed = (steps - steps_then) / max(1e-9, now - then)
        self._clock = (now, steps)
        self.timing.append(
            {
                "kind": "train",
                "frames": row["frames"],
                "seconds": now - then,
                "steps_per_second": speed,
                "time": time.time(),
            }
        )
        self._notify(lambda observer: observer.logged(row, speed))

    def add_evaluation(self, rows: Sequence[dict[str, Any]], seconds: float) -> None:
        """Write the rows of one evaluation, one for each mode, and the time it took."""
        for row in rows:
            self.metrics.append(row)
            self._notify(lambda observer: observer.evaluated(row))  # noqa: B023 - called at once
        self.evaluated_at = rows[0]["frames"]
        self.timing.append({"kind": "evaluation", "frames": self.evaluated_at, "seconds": seconds})

    # --- state -----------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return what resuming needs, JSON-able; every row so far is on the disk by then."""
        logged = self.metrics.digest()
        return {
            "metrics_offset": logged.bytes,
            "metrics_sha256": logged.sha256,
            "measures": self._measures,
            "scores": self._scores,
            "lengths": self._lengths,
            "finished_episodes": self._finished_episodes,
        }

    def digests(self) -> dict[str, dict[str, Any]]:
        """Return the length and the SHA-256 of the logs by name, for the status."""
        return {log.path.name: dict(log.digest()) for log in (self.metrics, self.timing)}

    def check(self, state: dict[str, Any]) -> None:
        """Raise `RunDamaged` if the rows are not those of a checkpoint."""
        self.metrics.check(state["metrics_offset"], state.get("metrics_sha256"))

    def restore(self, state: dict[str, Any]) -> None:
        """Return to a checkpoint: later rows and traces are dropped and will be written again.

        Raises:
            RunDamaged: the rows are not those of the checkpoint; nothing is dropped then.
        """
        self.metrics.truncate(state["metrics_offset"], state.get("metrics_sha256"))
        assert self.folder is not None, "a run without files has no checkpoints"
        rows = read_metrics(self.folder.metrics_path)
        logged = {(row["frames"], row["noise"]) for row in rows if row["kind"] == "evaluation"}
        self.evaluated_at = max((frames for frames, _ in logged), default=0)
        # With several workers the next evaluation may be at another frame than the lost one.
        for file in list_traces(self.folder.traces_path):
            if (file.evaluation, file.noise) not in logged:
                with storage_errors("remove", file.path):
                    remove_file(file.path)
        self._measures, self._scores = state["measures"], state["scores"]
        self._lengths = state.get("lengths", [])
        self._finished_episodes = state["finished_episodes"]

    def _notify(self, call: Callable[[Observer], None]) -> None:
        """Call every observer; drop one whose files fail, so that it cannot stop the run."""
        for observer in list(self.observers):
            try:
                call(observer)
            except (OSError, RunError) as error:
                self.observers.remove(observer)
                self.message(f"{type(observer).__name__} is switched off: {error}")


def evaluation_row(
    frames: int,
    noise: Literal["on", "off"],
    result: EvaluationResult,
    traces: str | None = None,
) -> dict[str, Any]:
    """Return the row of metrics of an evaluation after so many training frames.

    `traces` is the SHA-256 of the file with its episodes.
    """
    return {
        "kind": "evaluation",
        "frames": frames,
        "noise": noise,
        "score": result.score,
        "completed": result.completed,
        "episodes": result.episodes,
        "frames_played": result.frames,
        **({"traces": traces} if traces else {}),
    }
