"""One worker, within this process: what it updates, counts, tells and hands over."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from noisynet.agents import ActorCriticAgent
from noisynet.config import ActorCriticConfig, build_config
from noisynet.envs import make_environment
from noisynet.layers import sigma_summary
from noisynet.loops import worker as module
from noisynet.loops.channel import Channel
from noisynet.loops.handover import GO, LEAVE, READY, REPORT, STATE, Report, decode_reports, unpack
from noisynet.loops.shared_state import END, SharedState
from noisynet.loops.supervisor import PROGRAM
from noisynet.loops.worker import Orphaned, Worker
from noisynet.optimisers import shared_rmsprop_step

AGENTS = ["a3c", "noisynet-a3c", "noisynet-a3c-factorised"]


def configure(
    agent: str = "noisynet-a3c-factorised", *settings: str, frames: int = 10_000
) -> ActorCriticConfig:
    one = ["envs_per_worker=1", "learning.rollout_steps=5"]
    fixed = ["network.hidden=[8]", "workers=2", *one]
    config = build_config(agent, "gym/CartPole-v1", frames=frames, settings=[*fixed, *settings])
    assert isinstance(config, ActorCriticConfig)
    return config


ALL: list[Hired] = []


@pytest.fixture(autouse=True)
def _let_go() -> Iterator[None]:
    yield
    for hired in ALL:
        hired.close()
    ALL.clear()


class Hired:
    """A worker and its parent's end of everything."""

    def __init__(
        self,
        config: ActorCriticConfig,
        shared: SharedState | None = None,
        state: bytes | None = None,
        number: int = 0,
        incarnation: int = 0,
    ) -> None:
        with make_environment(config.environment) as environment:
            initial = ActorCriticAgent(config, environment.spec)
        if shared is None:
            shared = SharedState.create(config.workers, initial.parameters.numel())
            shared.parameters[:] = initial.parameters.numpy()
        self.shared = shared
        self.channel, theirs = Channel.pair()
        self.worker = Worker(
            config, shared, theirs, number=number, incarnation=incarnation, state=state
        )
        ALL.append(self)

    def close(self) -> None:
        self.worker.environment.close()
        self.worker.channel.close()
        self.channel.close()

    def play_to(self, *stops: int) -> list[bytes]:
        """Let it play to each of these; the states that it hands over."""
        states: list[bytes] = []
        self.messages: list[tuple[str, bytes]] = []
        self.channel.send(GO)
        for stop_at in stops:
            self.shared.stop_at = stop_at
            self.channel.send(LEAVE)
            with pytest.raises(Orphaned):
                self.worker.run(os.getppid())
            self.messages += self.channel.arrived()
            states.append([body for kind, body in self.messages if kind == STATE][-1])
            self.channel.send(GO)
        return states

    def reports(self) -> list[Report]:
        told = [body for kind, body in self.messages if kind == REPORT]
        return [report for body in told for report in decode_reports(body)]


@pytest.mark.parametrize("agent", AGENTS)
def test_a_worker_plays_to_its_stop_updates_what_is_shared_and_tells(agent: str) -> None:
    hired = Hired(configure(agent, "log_period_steps=20"))
    before = hired.shared.parameters.copy()
    (state,) = hired.play_to(63)
    slot, reports = hired.shared.slots[0], hired.reports()
    assert 63 <= hired.shared.steps < 63 + 5
    assert hired.messages[0] == (READY, b"")
    assert hired.messages[-1] == (STATE, state)  # after every report
    assert len(reports) == slot.updates == reports[-1].updates
    assert reports[-1].steps == slot.steps == hired.shared.steps
    assert slot.dropped == 0
    assert slot.heartbeat > 0
    assert (hired.shared.parameters != before).any()
    assert (hired.shared.squares >= 0).all()
    assert (hired.shared.squares > 0).any()
    # Σ̄ comes with the reports that cross a multiple of the period, of the weights after the update.
    steps = [0, *(report.steps for report in reports)]
    for previous, report in zip(steps, reports, strict=False):
        assert (report.sigma is not None) == (report.steps // 20 > previous // 20)
        assert report.measures.keys() == {"loss", "policy_loss", "value_loss", "entropy"}
    hired.worker.agent.parameters.copy_(torch.from_numpy(hired.shared.parameters))
    assert sigma_summary(hired.worker.agent.online).keys() == {
        name for report in reports for name in report.sigma or {}
    }


def test_every_rollout_begins_with_the_newest_weights_and_one_noise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hired, notes = Hired(configure()), list[str]()
    agent = hired.worker.agent

    def note(name: str) -> None:
        original = getattr(agent, name)

        def noted(*arguments: Any) -> Any:
            notes.append(name)
            if name == "begin_rollout":
                assert np.array_equal(agent.parameters.numpy(), hired.shared.parameters)
                # Another worker's update comes at once, and is not looked at until the next.
                hired.shared.parameters[:] += 1
            return original(*arguments)

        monkeypatch.setattr(agent, name, noted)

    for name in ("begin_rollout", "act", "learn"):
        note(name)
    hired.play_to(40)
    rollouts = " ".join(notes).split("begin_rollout")[1:]
    for rollout, report in zip(rollouts, hired.reports(), strict=True):
        assert rollout.split()[-1] == "learn"
        assert rollout.split().count("learn") == 1
        assert 1 <= rollout.split().count("act") <= 5
        assert report.not_finite is None


def test_the_learning_rate_falls_to_nothing_over_the_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rates, original = list[tuple[int, float]](), shared_rmsprop_step

    def noted(*arguments: Any) -> None:
        rates.append((shared.steps, arguments[3]))
        original(*arguments)

    for anneal in (True, False):
        config = configure("a3c", f"optimiser.anneal={str(anneal).lower()}", frames=200)
        hired = Hired(config)
        shared = hired.shared
        shared.slots[1].count(50, dropped=False)  # of all workers' steps
        monkeypatch.setattr(module, "shared_rmsprop_step", noted)
        rates.clear()
        hired.play_to(200)
        rate = config.optimiser.learning_rate
        expected = [rate * (1 - steps / 200) if anneal else rate for steps, _ in rates]
        assert [found for _, found in rates] == pytest.approx(expected)
        assert all(found > 0 for _, found in rates)


@pytest.mark.parametrize("envs", [1, 3])
@pytest.mark.parametrize("frames", [61, 62, 63, 64, 65])
def test_one_worker_alone_meets_its_budget(frames: int, envs: int) -> None:
    hired = Hired(configure("a3c", f"envs_per_worker={envs}", frames=frames))
    hired.play_to(frames)
    assert hired.shared.steps == -(-frames // envs) * envs


def test_no_rollout_is_begun_once_all_workers_together_are_there() -> None:
    hired = Hired(configure("a3c"))
    hired.shared.slots[1].count(100, dropped=False)
    hired.play_to(100)
    assert hired.shared.slots[0].steps == 0
    assert hired.reports() == []


# --- gradients that are not finite ----------------------------------------------------------------


def _place(agent: ActorCriticAgent, name: str) -> int:
    """Where a parameter begins in the vector of all."""
    parameter = dict(agent.online.named_parameters())[name]
    return (parameter.data_ptr() - agent.parameters.data_ptr()) // 4


def test_an_update_whose_gradient_is_not_finite_is_dropped_counted_and_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hired = Hired(configure("noisynet-a3c"))
    agent, shared = hired.worker.agent, hired.shared
    original, calls = agent.learn, iter(range(100))
    kept = list[tuple[Any, Any]]()

    def learn(rollout: Any) -> Any:
        learnt = original(rollout)
        if next(calls) not in (2, 3):
            return learnt
        agent.gradient[_place(agent, "policy.weight_sigma") + 1] = float("nan")
        kept.append((shared.parameters.copy(), shared.squares.copy()))
        return type(learnt)(**{**vars(learnt), "finite": False})

    monkeypatch.setattr(agent, "learn", learn)
    hired.play_to(30)
    reports = hired.reports()
    bad = [report for report in reports if report.not_finite is not None]
    assert [report.not_finite for report in bad] == ["the gradient of 'policy.weight_sigma'"] * 2
    assert [report.dropped for report in reports[:5]] == [0, 0, 1, 2, 2]
    assert [report.updates for report in reports[:5]] == [1, 2, 2, 2, 3]
    assert shared.slots[0].dropped == 2
    assert shared.slots[0].updates == len(reports) - 2
    (weights, squares), (weights_after, squares_after) = kept
    assert np.array_equal(weights, weights_after)
    assert np.array_equal(squares, squares_after)
    assert reports[-1].steps == shared.slots[0].steps  # the steps were made all the same
    assert np.isfinite(shared.parameters).all()


def test_a_weight_that_is_not_finite_is_named_before_its_gradient() -> None:
    hired = Hired(configure("a3c"))
    hired.shared.parameters[_place(hired.worker.agent, "value.bias")] = np.nan
    hired.play_to(5)
    assert hired.reports()[0].not_finite == "'value.bias'"
    assert hired.shared.slots[0].updates == 0


# --- state ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings", [[], ["envs_per_worker=3"], ["recurrent=true"], ["recurrent=true", "workers=1"]]
)
@pytest.mark.parametrize("agent", AGENTS)
def test_a_worker_goes_on_from_what_another_process_handed_over(
    agent: str, settings: list[str]
) -> None:
    """As a run that is continued from a checkpoint: the same weights, bit for bit."""
    config = configure(agent, *settings)
    straight = Hired(config)
    straight.play_to(300)
    first = Hired(config)
    for stop_at in (47, 51, 173):
        (state,) = first.play_to(stop_at)
        shared = SharedState.create(config.workers, len(first.shared.parameters))
        shared.parameters[:] = first.shared.parameters
        shared.squares[:] = first.shared.squares
        shared.slots[0].restore(first.shared.slots[0].state())
        first = Hired(config, shared, state)
    (state,) = first.play_to(300)
    assert first.shared.slots[0].state() == straight.shared.slots[0].state()
    assert np.array_equal(first.shared.parameters, straight.shared.parameters)
    assert np.array_equal(first.shared.squares, straight.shared.squares)
    expected = straight.messages[-1][1]
    tensors, rest = unpack(state)
    expected_tensors, expected_rest = unpack(expected)
    assert rest == expected_rest
    assert all(tensors[name].equal(value) for name, value in expected_tensors.items())


def test_stopping_changes_nothing() -> None:
    config = configure()
    straight, stopped = Hired(config), Hired(config)
    straight.play_to(200)
    stopped.play_to(3, 50, 51, 52, 120, 200)
    assert np.array_equal(straight.shared.parameters, stopped.shared.parameters)


def test_each_worker_and_each_of_its_lives_has_streams_of_its_own() -> None:
    config = configure()
    weights = []
    for number, incarnation in ((0, 0), (1, 0), (0, 1), (0, 0)):
        hired = Hired(config, number=number, incarnation=incarnation)
        hired.play_to(30)
        weights.append(hired.shared.parameters.tobytes())
    assert len(set(weights[:3])) == 3
    assert weights[3] == weights[0]


# --- leaving --------------------------------------------------------------------------------------


def test_a_worker_without_a_parent_leaves() -> None:
    hired = Hired(configure())
    hired.channel.close()
    with pytest.raises(OSError, match="Broken pipe"):
        hired.worker.run(os.getppid())


def test_a_worker_whose_parent_has_changed_leaves_before_the_next_rollout() -> None:
    hired = Hired(configure())
    hired.shared.stop_at = 100
    hired.channel.send(GO)
    with pytest.raises(Orphaned):
        hired.worker.run(os.getppid() + 1)
    assert hired.shared.steps == 0


def test_a_worker_that_is_told_to_end_leaves() -> None:
    hired = Hired(configure())
    hired.shared.stop_at = END
    hired.channel.send(GO)
    with pytest.raises(Orphaned):
        hired.worker.run(os.getppid())
    assert hired.shared.steps == 0


def test_a_process_whose_parent_is_gone_leaves_before_it_imports_anything_heavy() -> None:
    arguments = [str(os.getpid() + 1), "3", "4", "5", json.dumps(sys.path)]
    ended = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", PROGRAM, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    imported = {line.rpartition("|")[2].strip() for line in ended.stderr.splitlines()}
    assert "noisynet.loops.entrance" in imported
    assert "torch" not in imported
