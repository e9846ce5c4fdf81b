"""What a run tells on its way: rows of metrics, times, evaluations and notes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, Protocol, runtime_checkable

import numpy as np

from noisynet.agents import Agent, ValueAgent
from noisynet.evaluation import EvaluationResult, evaluate, make_configured_environment
from noisynet.layers import sigma_summary
from noisynet.loops.off_policy import FinishedEpisode, Tick
from noisynet.loops.supervisor import Health
from noisynet.runs import (
    MetricsLog,
    RunError,
    RunFolder,
    list_traces,
    read_metrics,
    write_traces,
)
from noisynet.runs.files import storage_errors

MODES: Final[tuple[Literal["on", "off"], ...]] = ("on", "off")
"""A noisy agent is always evaluated both with its noise and with mean weights."""


class Observer(Protocol):
    """Whoever wants to know how a run is doing; none of this changes the run."""

    def started(self, frames: int) -> None:
        """The run begins, or goes on from a checkpoint at so many frames; comes first."""

    def logged(self, row: dict[str, Any], steps_per_second: float) -> None:
        """A row of training metrics was written."""

    def evaluated(self, row: dict[str, Any]) -> None:
        """An evaluation was finished."""

    def noted(self, message: str) -> None:
        """Something worth saying happened, perhaps before the run started."""


@runtime_checkable
class WorkersObserver(Protocol):
    """An observer that also wants to know how the workers of a run are doing."""

    def watched(self, workers: Sequence[Health]) -> None:
        """How each worker is doing; about twice a second."""


class Journal:
    """Logs and evaluates a run, and tells its observers.

    Args:
        agent: who is trained.
        folder: where metrics and traces are kept.
        frames_per_step: of the environment.
        observers: are told how it goes.

    Attributes:
        score: the last evaluation's, None before the first.
    """

    def __init__(
        self,
        agent: Agent,
        folder: RunFolder,
        frames_per_step: int,
        observers: Sequence[Observer],
    ) -> None:
        self.agent, self.folder, self.frames_per_step = agent, folder, frames_per_step
        self.observers = list(observers)
        self.metrics = MetricsLog(folder.metrics_path)
        self.timing = MetricsLog(folder.timing_path)
        self.evaluations = 0
        self.score: float | None = None
        self.measures: dict[str, list[float]] = {"loss": []}
        self.scores: list[float] = []
        self.finished_episodes = 0
        self.clock = (time.monotonic(), 0)

    def begin(self, steps: int) -> None:
        """The run goes on from so many steps."""
        self._tell(lambda observer: observer.started(steps * self.frames_per_step))
        self.restart_clock(steps)

    def restart_clock(self, steps: int) -> None:
        """Whatever took time until now does not count in the speed of training."""
        self.clock = (time.monotonic(), steps)

    def say(self, message: str) -> None:
        """Tell people something."""
        self._tell(lambda observer: observer.noted(message))

    def watched(self, workers: Sequence[Health]) -> None:
        """Tell whoever wants to know how the workers are doing."""

        def tell(observer: Observer) -> None:
            if isinstance(observer, WorkersObserver):
                observer.watched(workers)

        self._tell(tell)

    def close(self) -> None:
        """Close the files."""
        self.metrics.close()
        self.timing.close()

    # --- metrics ---------------------------------------------------------------------------------

    def note(self, tick: Tick) -> None:
        """Keep what a tick of a value agent brought, and write the rows that are due."""
        assert isinstance(self.agent, ValueAgent)
        for learnt in tick.learnt:
            self.learnt({"loss": learnt.loss})
        for episode in tick.finished:
            self.finished(episode, tick.steps)
        period = self.agent.config.log_period_steps
        if tick.steps // period > (tick.steps - self.agent.config.num_envs) // period:
            self.log(tick.steps, self.agent.updates, sigma_summary(self.agent.online))

    def learnt(self, measures: Mapping[str, float]) -> None:
        """Keep what an update measured, for the mean in the next row."""
        for name, value in measures.items():
            self.measures.setdefault(name, []).append(value)

    def finished(self, episode: FinishedEpisode, steps: int) -> None:
        """Write the row of an episode that ended after so many steps of the run."""
        self.finished_episodes += 1
        self.scores = [*self.scores[-99:], episode.score]
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

    def log(
        self,
        steps: int,
        updates: int,
        sigma: Mapping[str, float],
        counts: Mapping[str, int] | None = None,
    ) -> None:
        """Write a row of training, with the means of what was measured since the last.

        Args:
            steps: of the run so far.
            updates: likewise.
            sigma: Σ̄ of each noisy layer.
            counts: whatever else is counted, by name.
        """
        means = {
            name: float(np.mean(values)) if values else None
            for name, values in self.measures.items()
        }
        row = {
            "kind": "train",
            "frames": steps * self.frames_per_step,
            "steps": steps,
            "updates": updates,
            "episodes": self.finished_episodes,
            "score_last": self.scores[-1] if self.scores else None,
            "score_mean_100": float(np.mean(self.scores)) if self.scores else None,
            **means,
            "sigma": dict(sigma),
            **(counts or {}),
        }
        self.measures = {name: [] for name in self.measures}
        self.metrics.append(row)
        now, (then, steps_then) = time.monotonic(), self.clock
        speed = (steps - steps_then) / max(1e-9, now - then)
        self.clock = (now, steps)
        self.timing.append(
            {
                "kind": "train",
                "frames": row["frames"],
                "seconds": now - then,
                "steps_per_second": speed,
                "time": time.time(),
            }
        )
        self._tell(lambda observer: observer.logged(row, speed))

    # --- evaluation ------------------------------------------------------------------------------

    def evaluation_is_due(self, steps: int) -> bool:
        """Whether the protocol wants an evaluation after so many steps."""
        return self._evaluations_by(steps) > self.evaluations

    def _evaluations_by(self, steps: int) -> int:
        return steps * self.frames_per_step // self.agent.config.evaluation.period_frames

    def evaluate(self, steps: int, stop: Callable[[], bool]) -> None:
        """Play the evaluation protocol, with noise on and off, and log the scores."""
        started, frames, rows = time.monotonic(), steps * self.frames_per_step, []
        for noise, result in evaluation_modes(self.agent, frames, stop=stop):
            write_traces(self.folder.traces_path, frames, result.traces, noise=noise)
            rows.append(
                {
                    "kind": "evaluation",
                    "frames": frames,
                    "noise": noise,
                    "score": result.score,
                    "completed": result.completed,
                    "episodes": result.episodes,
                    "frames_played": result.frames,
                }
            )
            if self.agent.noisy is None or noise == self.agent.noisy.evaluation:
                self.score = result.score
        for row in rows:  # both or none, so that an interrupted evaluation leaves no trace
            self.metrics.append(row)
            self._tell(lambda observer: observer.evaluated(row))  # noqa: B023 - called at once
        seconds = time.monotonic() - started
        self.timing.append({"kind": "evaluation", "frames": frames, "seconds": seconds})
        self.evaluations = self._evaluations_by(steps)

    # --- state -----------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """What continuing needs, JSON-able; every row so far is on the disk by then."""
        return {
            "metrics_offset": self.metrics.offset(),
            "evaluations": self.evaluations,
            "score": self.score,
            "measures": self.measures,
            "scores": self.scores,
            "finished_episodes": self.finished_episodes,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint: rows and traces that will come again are dropped."""
        self.metrics.cut_back(state["metrics_offset"])
        self._drop_unlogged_traces()
        self.evaluations, self.score = state["evaluations"], state["score"]
        self.measures, self.scores = state["measures"], state["scores"]
        self.finished_episodes = state["finished_episodes"]

    def _drop_unlogged_traces(self) -> None:
        """Several workers may come to the next evaluation at another frame than before."""
        rows = read_metrics(self.folder.metrics_path)
        logged = {(row["frames"], row["noise"]) for row in rows if row["kind"] == "evaluation"}
        for file in list_traces(self.folder.traces_path):
            if (file.evaluation, file.noise) not in logged:
                with storage_errors("remove", file.path):
                    file.path.unlink()

    def _tell(self, what: Callable[[Observer], None]) -> None:
        """Observers change nothing: one that a file fails is left out from then on."""
        for observer in list(self.observers):
            try:
                what(observer)
            except (OSError, RunError) as error:
                self.observers.remove(observer)
                self.say(f"{type(observer).__name__} is left out from here on: {error}")


def evaluation_modes(
    agent: Agent,
    training_frames: int,
    frames: int | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[tuple[Literal["on", "off"], EvaluationResult]]:
    """Evaluate an agent in each of its modes: a plain agent has only one.

    Args:
        agent: with its latest weights.
        training_frames: when the evaluation takes place.
        frames: how long to play; None for the configured time.
        stop: true ends the evaluation by `InterruptedError`.
    """
    for noise in MODES if agent.noisy else MODES[1:]:
        with make_configured_environment(agent.config, 1) as environment:
            yield (
                noise,
                evaluate(
                    agent,
                    environment,
                    frames=frames or agent.config.evaluation.frames,
                    training_frames=training_frames,
                    noise=noise,
                    stop=stop,
                ),
            )
