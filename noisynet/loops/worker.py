"""One worker of A3C: act, learn, update the shared weights (Algorithm 2)."""

from __future__ import annotations

import os
import time
from typing import Any, Final, NoReturn

import torch

from noisynet.agents import ActorCriticAgent, shared_rmsprop_for
from noisynet.config import ActorCriticConfig, load_config
from noisynet.envs import EnvironmentLike, decode_function
from noisynet.evaluation import make_configured_environment
from noisynet.layers import sigma_summary
from noisynet.loops.channel import Channel
from noisynet.loops.episodes import FinishedEpisode
from noisynet.loops.messages import (
    GO,
    READY,
    REPORT,
    SNAPSHOT,
    RolloutReport,
    WorkerSetup,
    decode_snapshot,
    encode_reports,
    encode_snapshot,
)
from noisynet.loops.process import prepare_process
from noisynet.loops.rollouts import RolloutCollector
from noisynet.loops.shared_state import END, SharedState
from noisynet.optimisers import annealed
from noisynet.state_dicts import add_prefix, strip_prefix

# Reports are sent in batches: a message per roll-out would keep the parent busy.
_REPORT_SECONDS: Final = 0.2


class Orphaned(Exception):  # noqa: N818 - says what happened
    """The parent has exited, or tells the worker to exit."""


class Worker:
    """Plays roll-outs and updates the shared weights until the parent tells it to stop."""

    def __init__(
        self,
        settings: ActorCriticConfig,
        shared: SharedState,
        channel: Channel,
        *,
        number: int,
        incarnation: int,
        device: str = "cpu",
        snapshot: bytes | None = None,
        environment: EnvironmentLike | None = None,
    ) -> None:
        self.config, self.shared, self.channel = settings, shared, channel
        self.slot = shared.slots[number]
        self.parameters = torch.from_numpy(shared.parameters)
        self.squares = torch.from_numpy(shared.squares)
        self.environment = make_configured_environment(
            settings, settings.envs_per_worker, environment, alone=settings.workers == 1
        )
        spec = self.environment.spec
        self.total_steps = -(-settings.frames // spec.frames_per_step)
        self.agent = ActorCriticAgent(
            settings,
            spec,
            device,
            worker=number,
            incarnation=incarnation,
            num_envs=settings.envs_per_worker,
        )
        self.collector = RolloutCollector(settings, self.agent, self.environment, number, self.slot)
        if snapshot is None:
            self.collector.begin()
        else:
            self._restore(*decode_snapshot(snapshot))
        self._apply = shared_rmsprop_for(self.agent.compute)
        self._compile()
        self._reports: list[RolloutReport] = []
        self._reported_at = time.monotonic()
        self._logged_steps = 0

    def run(self, parent: int) -> NoReturn:
        """Wait for the parent's GO, and play until it tells otherwise; ends with `Orphaned`."""
        self.channel.send(READY)
        self._wait_for_go()
        while True:
            if os.getppid() != parent:
                raise Orphaned
            steps, stop_at = self.shared.steps, self.shared.stop_at
            if stop_at == END:
                raise Orphaned
            if steps >= stop_at:
                self._send_snapshot()
            else:
                self._roll_out(steps)

    def _roll_out(self, steps: int) -> None:
        """Play a roll-out and make its update; all workers have made `steps` steps before."""
        self.agent.parameters.copy_(self.parameters)  # ζ′ ← ζ
        self.agent.begin_rollout()  # ξ ~ ε
        envs, learning = self.config.envs_per_worker, self.config.learning
        left = -(-(self.total_steps - steps) // envs)
        rollout, finished = self.collector.collect(min(learning.rollout_steps, left))
        learnt = self.agent.learn(rollout)
        if learnt.finite:
            optimiser = self.config.optimiser
            # One update of N environments moves the weights as far as N updates of one.
            rate = optimiser.learning_rate * self.agent.gradient_scale
            if optimiser.anneal:
                rate = annealed(rate, self.shared.steps, self.total_steps)
            gradient = self.agent.gradient.to("cpu")
            self._apply(
                self.parameters, gradient, self.squares, rate, optimiser.decay, optimiser.epsilon
            )
        self.slot.count(rollout.action.size, dropped=not learnt.finite)
        measures = {
            "loss": learnt.loss,
            "policy_loss": learnt.policy_loss,
            "value_loss": learnt.value_loss,
            "entropy": learnt.entropy,
            "gradient_norm": learnt.gradient_norm,
        }
        self._report(finished, measures, None if learnt.finite else self._not_finite())

    # --- messages to the parent ------------------------------------------------------------------

    def _report(
        self, finished: list[FinishedEpisode], measures: dict[str, float], not_finite: str | None
    ) -> None:
        steps, period, sigma = self.shared.steps, self.config.log_period_steps, None
        if steps // period > self._logged_steps // period:
            self.agent.parameters.copy_(self.parameters)
            sigma = sigma_summary(self.agent.online)
        self._logged_steps = steps
        self._reports.append(
            RolloutReport(
                steps=self.slot.steps,
                updates=self.slot.updates,
                dropped=self.slot.dropped,
                not_finite=not_finite,
                measures=measures,
                finished=[(e.env, e.number, e.score, e.steps) for e in finished],
                sigma=sigma,
            )
        )
        if not_finite or time.monotonic() - self._reported_at > _REPORT_SECONDS:
            self._send_reports()

    def _send_reports(self) -> None:
        if self._reports:
            self.channel.send(REPORT, encode_reports(self._reports))
        self._reports, self._reported_at = [], time.monotonic()

    def _not_finite(self) -> str:
        """Name the first tensor that is not finite: a weight, or else a gradient."""
        start = self.agent.parameters.data_ptr()
        for what, flat in (("", self.agent.parameters), ("the gradient of ", self.agent.gradient)):
            for name, parameter in self.agent.online.named_parameters():
                first = (parameter.data_ptr() - start) // parameter.element_size()
                values = flat[first : first + parameter.numel()]
                if parameter.requires_grad and not bool(values.isfinite().all()):
                    return f"{what}{name!r}"
        return "the loss"

    def _send_snapshot(self) -> None:
        """Send the whole state to the parent, and wait for the next GO."""
        self._send_reports()
        tensors = add_prefix("agent.", self.agent.tensors()) | self.collector.episodes.tensors()
        state = {"agent": self.agent.state(), "actor": self.collector.episodes.state()}
        self.channel.send(SNAPSHOT, encode_snapshot(tensors, state))
        self._wait_for_go()

    def _wait_for_go(self) -> None:
        message = self.channel.wait()
        if message is None or message[0] != GO:
            raise Orphaned
        self.slot.beat()
        self._logged_steps = self.shared.steps
        self._reported_at = time.monotonic()

    # --- start -----------------------------------------------------------------------------------

    def _restore(self, tensors: dict[str, torch.Tensor], state: dict[str, Any]) -> None:
        self.agent.restore(strip_prefix("agent.", tensors), state["agent"])
        self.collector.episodes.restore(tensors, state["actor"], self.slot.beat)

    def _compile(self) -> None:
        """Compile the update now, while no heartbeat is expected."""
        zero = torch.zeros(1)
        self._apply(zero, zero.clone(), zero.clone(), 0.0, 0.5, 1.0)


def run_worker(setup: WorkerSetup, memory: int, channel: Channel, parent: int) -> None:
    """Run a worker until the parent exits or tells it to."""
    config = load_config(setup.config)
    assert isinstance(config, ActorCriticConfig)
    torch.set_num_threads(config.threads or 1)
    prepare_process()
    worker = Worker(
        config,
        SharedState(memory, config.workers, setup.size),
        channel,
        number=setup.worker,
        incarnation=setup.incarnation,
        device=setup.device,
        snapshot=setup.snapshot,
        environment=None if setup.function is None else decode_function(setup.function),
    )
    try:
        worker.run(parent)
    except Orphaned:
        worker.environment.close()
