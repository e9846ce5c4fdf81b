"""One worker of A3C, in a process of its own: act, learn, update what all share (Algorithm 2)."""

from __future__ import annotations

import os
import time
from typing import Any, Final, NoReturn

import torch

from noisynet.agents import ActorCriticAgent
from noisynet.config import ActorCriticConfig, load_config
from noisynet.evaluation import make_configured_environment
from noisynet.layers import sigma_summary
from noisynet.loops.channel import Channel
from noisynet.loops.handover import (
    GO,
    READY,
    REPORT,
    STATE,
    Job,
    Report,
    encode_reports,
    pack,
    unpack,
)
from noisynet.loops.off_policy import FinishedEpisode
from noisynet.loops.process import prepare_process
from noisynet.loops.rollouts import Actor
from noisynet.loops.shared_state import END, SharedState
from noisynet.optimisers import annealed, shared_rmsprop_

# Reports wait for one another this long: a message for each roll-out would keep the parent busy.
_REPORT_SECONDS: Final = 0.2


class Orphaned(Exception):  # noqa: N818 — says what happened
    """The parent is gone, or tells the worker to leave."""


class Worker:
    """Plays roll-outs and updates the shared weights until the parent says stop.

    Args:
        settings: the run's configuration.
        shared: weights, statistics and counters.
        channel: to the parent.
        number: which worker this is.
        incarnation: how many processes of this worker have died before it.
        device: where the network lives.
        state: what an earlier process has handed over, to go on from.
    """

    def __init__(
        self,
        settings: ActorCriticConfig,
        shared: SharedState,
        channel: Channel,
        *,
        number: int,
        incarnation: int,
        device: str = "cpu",
        state: bytes | None = None,
    ) -> None:
        self.config, self.shared, self.channel = settings, shared, channel
        self.slot = shared.slots[number]
        self.parameters = torch.from_numpy(shared.parameters)
        self.squares = torch.from_numpy(shared.squares)
        self.environment = make_configured_environment(
            settings, settings.envs_per_worker, alone=settings.workers == 1
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
        self.actor = Actor(settings, self.agent, self.environment, number, self.slot)
        if state is None:
            self.actor.begin()
        else:
            self._restore(*unpack(state))
        self._compile()
        self._reports: list[Report] = []
        self._reported_at = time.monotonic()
        self._logged_steps = 0

    def run(self, parent: int) -> NoReturn:
        """Wait for the word of the parent, and play until it says otherwise; ends by `Orphaned`."""
        self.channel.send(READY)
        self._await_word()
        while True:
            if os.getppid() != parent:
                raise Orphaned
            steps, stop_at = self.shared.steps, self.shared.stop_at
            if stop_at == END:
                raise Orphaned
            if steps >= stop_at:
                self._hand_over()
            else:
                self._roll_out(steps)

    def _roll_out(self, steps: int) -> None:
        """One roll-out and its update, from `steps` steps of all workers on."""
        self.agent.parameters.copy_(self.parameters)  # ζ′ ← ζ
        self.agent.begin_rollout()  # ξ ~ ε
        envs, learning = self.config.envs_per_worker, self.config.learning
        left = -(-(self.total_steps - steps) // envs)
        rollout, finished = self.actor.collect(min(learning.rollout_steps, left))
        learnt = self.agent.learn(rollout)
        if learnt.finite:
            optimiser = self.config.optimiser
            rate = optimiser.learning_rate
            if optimiser.anneal:
                rate = annealed(rate, self.shared.steps, self.total_steps)
            gradient = self.agent.gradient.to("cpu")
            shared_rmsprop_(
                self.parameters, gradient, self.squares, rate, optimiser.decay, optimiser.epsilon
            )
        self.slot.count(rollout.action.size, dropped=not learnt.finite)
        measures = {
            "loss": learnt.loss,
            "policy_loss": learnt.policy_loss,
            "value_loss": learnt.value_loss,
            "entropy": learnt.entropy,
        }
        self._report(finished, measures, None if learnt.finite else self._not_finite())

    # --- telling the parent ----------------------------------------------------------------------

    def _report(
        self, finished: list[FinishedEpisode], measures: dict[str, float], not_finite: str | None
    ) -> None:
        steps, period, sigma = self.shared.steps, self.config.log_period_steps, None
        if steps // period > self._logged_steps // period:
            self.agent.parameters.copy_(self.parameters)
            sigma = sigma_summary(self.agent.online)
        self._logged_steps = steps
        self._reports.append(
            Report(
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
        """The first tensor that is not finite: of the weights, else of their gradient."""
        start = self.agent.parameters.data_ptr()
        for what, flat in (("", self.agent.parameters), ("the gradient of ", self.agent.gradient)):
            for name, parameter in self.agent.online.named_parameters():
                first = (parameter.data_ptr() - start) // parameter.element_size()
                part = flat[first : first + parameter.numel()]
                if parameter.requires_grad and not bool(part.isfinite().all()):
                    return f"{what}{name!r}"
        return "the loss"

    def _hand_over(self) -> None:
        """Give the whole state to the parent, and wait to be released."""
        self._send_reports()
        tensors = {f"agent.{name}": value for name, value in self.agent.tensors().items()}
        state = {"agent": self.agent.state(), "actor": self.actor.state()}
        self.channel.send(STATE, pack(tensors | self.actor.tensors(), state))
        self._await_word()

    def _await_word(self) -> None:
        word = self.channel.wait()
        if word is None or word[0] != GO:
            raise Orphaned
        self.slot.beat()
        self._logged_steps = self.shared.steps
        self._reported_at = time.monotonic()

    # --- starting --------------------------------------------------------------------------------

    def _restore(self, tensors: dict[str, torch.Tensor], state: dict[str, Any]) -> None:
        agent = {k.removeprefix("agent."): v for k, v in tensors.items() if k.startswith("agent.")}
        self.agent.restore(agent, state["agent"])
        self.actor.restore(tensors, state["actor"])

    def _compile(self) -> None:
        """Have the update compiled while nobody expects a heartbeat."""
        nothing = torch.zeros(1)
        shared_rmsprop_(nothing, nothing.clone(), nothing.clone(), 0.0, 0.5, 1.0)


def work(job: Job, block: int, channel: Channel, parent: int) -> None:
    """Be a worker until the parent is gone or has enough of it.

    Args:
        job: which worker, and of which run.
        block: descriptor of what the workers share.
        channel: to the parent.
        parent: its pid.
    """
    torch.set_num_threads(1)
    prepare_process()
    config = load_config(job.config)
    assert isinstance(config, ActorCriticConfig)
    worker = Worker(
        config,
        SharedState(block, config.workers, job.size),
        channel,
        number=job.worker,
        incarnation=job.incarnation,
        device=job.device,
        state=job.state,
    )
    try:
        worker.run(parent)
    except Orphaned:
        worker.environment.close()
