"""What a run tells on its way: rows of metrics, times, evaluations and notes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Literal, Protocol

import numpy as np

from noisynet.agents import ValueAgent
from noisynet.evaluation import EvaluationResult, evaluate, make_configured_environment
from noisynet.layers import sigma_summary
from noisynet.loops.off_policy import Tick
from noisynet.runs import MetricsLog, RunError, RunFolder, write_traces

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
        agent: ValueAgent,
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
        self.losses: list[float] = []
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

    def close(self) -> None:
        """Close the files."""
        self.metrics.close()
        self.timing.close()

    # --- metrics ---------------------------------------------------------------------------------

    def note(self, tick: Tick) -> None:
        """Keep what a tick brought, and write the rows that are due."""
        self.losses += [learnt.loss for learnt in tick.learnt]
        for episode in tick.finished:
            self.finished_episodes += 1
            self.scores = [*self.scores[-99:], episode.score]
            self.metrics.append(
                {
                    "kind": "episode",
                    "frames": tick.steps * self.frames_per_step,
                    "env": episode.env,
                    "episode": episode.number,
                    "score": episode.score,
                    "steps": episode.steps,
                }
            )
        period = self.agent.config.log_period_steps
        if tick.steps // period > (tick.steps - self.agent.config.num_envs) // period:
            self._log(tick.steps)

    def _log(self, steps: int) -> None:
        row = {
            "kind": "train",
            "frames": steps * self.frames_per_step,
            "steps": steps,
            "updates": self.agent.updates,
            "episodes": self.finished_episodes,
            "score_last": self.scores[-1] if self.scores else None,
            "score_mean_100": float(np.mean(self.scores)) if self.scores else None,
            "loss": float(np.mean(self.losses)) if self.losses else None,
            "sigma": sigma_summary(self.agent.online),
        }
        self.losses = []
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
            "losses": self.losses,
            "scores": self.scores,
            "finished_episodes": self.finished_episodes,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint: rows that will come again are dropped."""
        self.metrics.cut_back(state["metrics_offset"])
        self.evaluations, self.score = state["evaluations"], state["score"]
        self.losses, self.scores = state["losses"], state["scores"]
        self.finished_episodes = state["finished_episodes"]

    def _tell(self, what: Callable[[Observer], None]) -> None:
        """Observers change nothing: one that a file fails is left out from then on."""
        for observer in list(self.observers):
            try:
                what(observer)
            except (OSError, RunError) as error:
                self.observers.remove(observer)
                self.say(f"{type(observer).__name__} is left out from here on: {error}")


def evaluation_modes(
    agent: ValueAgent,
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
