"""The training of a value agent in memory: the loop of a run, without files."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import final

import torch

from noisynet.agents import ValueAgent
from noisynet.envs import Environment, EnvironmentLike, EnvironmentSpec
from noisynet.evaluation import evaluation_modes
from noisynet.loops.off_policy import OffPolicyLoop
from noisynet.loops.off_policy_trainer import record_tick
from noisynet.loops.process import choose_threads, default_threads
from noisynet.loops.run_log import Observer, RunLog, evaluation_row
from noisynet.replay import FrameStore


@final
class MemoryRun:
    """Trains as a run in a folder does, bit for bit, and writes nothing.

    The replay has its full capacity at once, but the system provides memory only as it fills.

    Args:
        agent: the agent to train.
        environment: training environments.
        source: the object or the function to evaluate on; None for the configured name.
    """

    def __init__(
        self, agent: ValueAgent, environment: Environment, source: EnvironmentLike | None = None
    ) -> None:
        config, spec = agent.config, environment.spec
        self.agent, self.spec, self.source = agent, spec, source
        num_envs, n_step = config.num_envs, config.learning.n_step
        store = FrameStore(
            max(config.replay.capacity_steps, num_envs * (spec.stack + n_step)),
            spec.frame_shape,
            frame_dtype=spec.frame_dtype,
            num_actions=spec.num_actions,
            num_envs=num_envs,
            stack=spec.stack,
            n_step=n_step,
        )
        self.loop = OffPolicyLoop(config, agent, environment, store)
        self.log = RunLog(None, spec.frames_per_step, config.log_period_steps, ())
        self._evaluations = 0

    @property
    def steps(self) -> int:
        """Agent steps so far."""
        return self.loop.steps

    def train(
        self,
        until_steps: int,
        budget_frames: int,
        observers: Sequence[Observer] = (),
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        """Train until a number of steps, counted from the first call, or until `stop` is true.

        Args:
            until_steps: when to return.
            budget_frames: what schedules that depend on the budget end with, at least as much.
            observers: are notified of metrics and messages.
            stop: asked at every step.
        """
        self.loop.total_steps = -(-budget_frames // self.spec.frames_per_step)
        self.log.observers = list(observers)
        self.log.start(self.steps, self.agent.config)
        complete = False
        try:
            if self.steps < until_steps:
                self._train(until_steps, stop)
            complete = True
        except InterruptedError:
            pass  # an interrupted evaluation is played again by the next call
        finally:
            self.log.end(complete)

    def _train(self, until_steps: int, stop: Callable[[], bool]) -> None:
        with _threads(self.agent, self.spec), closing(self.loop.run()) as ticks:
            for tick in ticks:
                record_tick(tick, self.loop, self.log)
                self.log.progress(self.steps)
                self._evaluate_if_due(stop)
                if stop() or self.steps >= until_steps:
                    return

    def _evaluate_if_due(self, stop: Callable[[], bool]) -> None:
        """Play the evaluation protocol if its period has passed."""
        frames = self.steps * self.spec.frames_per_step
        due = frames // self.agent.config.evaluation.period_frames
        if due <= self._evaluations:
            return
        started = time.monotonic()

        def progress_and_stop() -> bool:
            self.log.progress(self.steps, evaluating=True)
            return stop()

        modes = evaluation_modes(
            self.agent, frames, stop=progress_and_stop, environment=self.source
        )
        rows = [evaluation_row(frames, noise, result) for noise, result in modes]
        self.log.add_evaluation(rows, time.monotonic() - started)
        self._evaluations = due
        self.log.restart_clock(self.steps)


@contextmanager
def _threads(agent: ValueAgent, spec: EnvironmentSpec) -> Iterator[None]:
    """Use as many threads as a run in a folder would: sums in PyTorch depend on them."""
    before = torch.get_num_threads()
    threads, _ = choose_threads(agent.config.threads, None, default_threads(agent.config, spec))
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
