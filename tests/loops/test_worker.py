"""One worker, in this process: its updates, counters, reports and snapshots."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from noisynet.agents import ActorCriticAgent
from noisynet.config import ActorCriticConfig, build_config
from noisynet.envs import make_environment
from noisynet.layers import sigma_summary
from noisynet.loops.channel import Channel
from noisynet.loops.messages import (
    GO,
    LEAVE,
    READY,
    REPORT,
    SNAPSHOT,
    RolloutReport,
    decode_reports,
    decode_snapshot,
)
from noisynet.loops.shared_state import END, SharedState
from noisynet.loops.worker import Orphaned, Worker
from noisynet.optimisers import shared_rmsprop_

AGENTS = ["a3c", "noisynet-a3c", "noisynet-a3c-factorised"]


def configure(
    agent: str = "noisynet-a3c-factorised", *settings: str, frames: int = 10_000
) -> ActorCriticConfig:
    one = ["envs_per_worker=1", "learning.rollout_steps=5"]
    fixed = ["network.hidden=[8]", "workers=2", *one]
    config = build_config(agent, "gym/CartPole-v1", frames=frames, settings=[*fixed, *settings])
    assert isinstance(config, ActorCriticConfig)
    return config


ALL: list[Harness] = []


@pytest.fixture(autouse=True)
def _close_all() -> Iterator[None]:
    yield
    for harness in ALL:
        harness.close()
    ALL.clear()


class Harness:
    """A worker, and the parent's end of its channel."""

    def __init__(
        self,
        config: ActorCriticConfig,
        shared: SharedState | None = None,
        snapshot: bytes | None = None,
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
            config, shared, theirs, number=number, incarnation=incarnation, snapshot=snapshot
        )
        ALL.append(self)

    def close(self) -> None:
        self.worker.environment.close()
        self.worker.channel.close()
        self.channel.close()

    def play_to(self, *stops: int) -> list[bytes]:
        """Let the worker play to each of these steps; return its snapshots."""
        snapshots: list[bytes] = []
        self.messages: list[tuple[str, bytes]] = []
        self.channel.send(GO)
        for stop_at in stops:
            self.shared.stop_at = stop_at
            self.channel.send(LEAVE)
            with pytest.raises(Orphaned):
                self.worker.run(os.getppid())
            self.messages += self.channel.arrived()
            snapshots.append([body for kind, body in self.messages if kind == SNAPSHOT][-1])
            self.channel.send(GO)
        return snapshots

    def reports(self) -> list[RolloutReport]:
        bodies = [body for kind, body in self.messages if kind == REPORT]
        return [report for body in bodies for report in decode_reports(body)]


@pytest.mark.parametrize("agent", AGENTS)
def test_a_worker_plays_to_its_stop_updates_the_shared_weights_and_reports(agent: str) -> None:
    harness = Harness(configure(agent, "log_period_steps=20"))
    before = harness.shared.parameters.copy()
    (snapshot,) = harness.play_to(63)
    slot, reports = harness.shared.slots[0], harness.reports()
    assert 63 <= harness.shared.steps < 63 + 5
    assert harness.messages[0] == (READY, b"")
    assert harness.messages[-1] == (SNAPSHOT, snapshot)  # after every report
    assert len(reports) == slot.updates == reports[-1].updates
    assert reports[-1].steps == slot.steps == harness.shared.steps
    assert slot.dropped == 0
    assert slot.heartbeat > 0
    assert (harness.shared.parameters != before).any()
    assert (harness.shared.squares >= 0).all()
    assert (harness.shared.squares > 0).any()
    # Reports that cross a multiple of the period have Σ̄ of the weights after the update.
    steps = [0, *(report.steps for report in reports)]
    for previous, report in zip(steps, reports, strict=False):
        assert (report.sigma is not None) == (report.steps // 20 > previous // 20)
        names = {"loss", "policy_loss", "value_loss", "entropy", "gradient_norm"}
        assert report.measures.keys() == names
    harness.worker.agent.parameters.copy_(torch.from_numpy(harness.shared.parameters))
    assert sigma_summary(harness.worker.agent.online).keys() == {
        name for report in reports for name in report.sigma or {}
    }


def test_every_rollout_starts_with_the_latest_weights_and_one_noise_sample(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness, calls = Harness(configure()), list[str]()
    agent = harness.worker.agent

    def record(name: str) -> None:
        original = getattr(agent, name)

        def recorded(*arguments: Any) -> Any:
            calls.append(name)
            if name == "begin_rollout":
                assert np.array_equal(agent.parameters.numpy(), harness.shared.parameters)
                # Another worker updates at once; this roll-out does not see it.
                harness.shared.parameters[:] += 1
            return original(*arguments)

        monkeypatch.setattr(agent, name, recorded)

    for name in ("begin_rollout", "act", "learn"):
        record(name)
    harness.play_to(40)
    rollouts = " ".join(calls).split("begin_rollout")[1:]
    for rollout, report in zip(rollouts, harness.reports(), strict=True):
        assert rollout.split()[-1] == "learn"
        assert rollout.split().count("learn") == 1
        assert 1 <= rollout.split().count("act") <= 5
        assert report.not_finite is None


def test_an_update_of_several_environments_moves_as_far_as_their_updates_one_by_one() -> None:
    """With ε far above the squared gradients and with statistics that have converged alike."""
    envs, rate = 4, 0.01
    for epsilon, square in ((1e9, 0.0), (1e-9, 1.0)):
        settings = [f"optimiser.learning_rate={rate}", f"optimiser.epsilon={epsilon}"]
        settings += ["optimiser.anneal=false", "optimiser.decay=0.9999999"]
        unclipped = "learning.max_gradient_norm=null"
        harness = Harness(configure("a3c", f"envs_per_worker={envs}", unclipped, *settings))
        harness.shared.squares[:] = square  # of a single environment's gradients
        before = harness.shared.parameters.astype(np.float64)
        harness.play_to(5 * envs)
        assert harness.shared.slots[0].updates == 1
        moved = before - harness.shared.parameters
        summed = harness.worker.agent.gradient.double().numpy() * np.sqrt(envs)
        expected = rate * summed / np.sqrt(square + epsilon)
        np.testing.assert_allclose(moved, expected, rtol=1e-3, atol=1e-6)
        if square:
            assert np.abs(moved).max() > 1e-3


def test_the_learning_rate_is_annealed_to_zero_over_the_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rates, original = list[tuple[int, float]](), shared_rmsprop_

    def recorded(*arguments: Any) -> None:
        rates.append((shared.steps, arguments[3]))
        original(*arguments)

    for anneal in (True, False):
        config = configure("a3c", f"optimiser.anneal={str(anneal).lower()}", frames=200)
        harness = Harness(config)
        shared = harness.shared
        shared.slots[1].count(50, dropped=False)  # steps of all workers count
        monkeypatch.setattr(harness.worker, "_apply", recorded)
        rates.clear()
        harness.play_to(200)
        rate = config.optimiser.learning_rate
        expected = [rate * (1 - steps / 200) if anneal else rate for steps, _ in rates]
        assert [found for _, found in rates] == pytest.approx(expected)
        assert all(found > 0 for _, found in rates)


@pytest.mark.parametrize("envs", [1, 3])
@pytest.mark.parametrize("frames", [61, 62, 63, 64, 65])
def test_a_single_worker_meets_its_budget(frames: int, envs: int) -> None:
    harness = Harness(configure("a3c", f"envs_per_worker={envs}", frames=frames))
    harness.play_to(frames)
    assert harness.shared.steps == -(-frames // envs) * envs


def test_no_rollout_starts_once_all_workers_together_have_reached_the_stop() -> None:
    harness = Harness(configure("a3c"))
    harness.shared.slots[1].count(100, dropped=False)
    harness.play_to(100)
    assert harness.shared.slots[0].steps == 0
    assert harness.reports() == []


# --- gradients that are not finite ----------------------------------------------------------------


def _offset(agent: ActorCriticAgent, name: str) -> int:
    """Return the offset of a parameter in the flat vector."""
    parameter = dict(agent.online.named_parameters())[name]
    return (parameter.data_ptr() - agent.parameters.data_ptr()) // 4


def test_an_update_whose_gradient_is_not_finite_is_dropped_counted_and_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = Harness(configure("noisynet-a3c"))
    agent, shared = harness.worker.agent, harness.shared
    original, calls = agent.learn, iter(range(100))
    seen = list[tuple[Any, Any]]()

    def learn(rollout: Any) -> Any:
        learnt = original(rollout)
        if next(calls) not in (2, 3):
            return learnt
        agent.gradient[_offset(agent, "policy.weight_sigma") + 1] = float("nan")
        seen.append((shared.parameters.copy(), shared.squares.copy()))
        return type(learnt)(**{**vars(learnt), "finite": False})

    monkeypatch.setattr(agent, "learn", learn)
    harness.play_to(30)
    reports = harness.reports()
    bad = [report for report in reports if report.not_finite is not None]
    assert [report.not_finite for report in bad] == ["the gradient of 'policy.weight_sigma'"] * 2
    assert [report.dropped for report in reports[:5]] == [0, 0, 1, 2, 2]
    assert [report.updates for report in reports[:5]] == [1, 2, 2, 2, 3]
    assert shared.slots[0].dropped == 2
    assert shared.slots[0].updates == len(reports) - 2
    (weights, squares), (weights_after, squares_after) = seen
    assert np.array_equal(weights, weights_after)
    assert np.array_equal(squares, squares_after)
    assert reports[-1].steps == shared.slots[0].steps  # steps of dropped updates count
    assert np.isfinite(shared.parameters).all()


def test_a_weight_that_is_not_finite_is_named_before_its_gradient() -> None:
    harness = Harness(configure("a3c"))
    harness.shared.parameters[_offset(harness.worker.agent, "value.bias")] = np.nan
    harness.play_to(5)
    assert harness.reports()[0].not_finite == "'value.bias'"
    assert harness.shared.slots[0].updates == 0


# --- state ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings", [[], ["envs_per_worker=3"], ["recurrent=true"], ["recurrent=true", "workers=1"]]
)
@pytest.mark.parametrize("agent", AGENTS)
def test_a_worker_resumes_from_the_snapshot_of_another_process(
    agent: str, settings: list[str]
) -> None:
    """The weights are bit-identical to those of an uninterrupted worker."""
    config = configure(agent, *settings)
    straight = Harness(config)
    straight.play_to(300)
    first = Harness(config)
    for stop_at in (47, 51, 173):
        (snapshot,) = first.play_to(stop_at)
        shared = SharedState.create(config.workers, len(first.shared.parameters))
        shared.parameters[:] = first.shared.parameters
        shared.squares[:] = first.shared.squares
        shared.slots[0].restore(first.shared.slots[0].state())
        first = Harness(config, shared, snapshot)
    (snapshot,) = first.play_to(300)
    assert first.shared.slots[0].state() == straight.shared.slots[0].state()
    assert np.array_equal(first.shared.parameters, straight.shared.parameters)
    assert np.array_equal(first.shared.squares, straight.shared.squares)
    expected = straight.messages[-1][1]
    tensors, rest = decode_snapshot(snapshot)
    expected_tensors, expected_rest = decode_snapshot(expected)
    assert rest == expected_rest
    assert all(tensors[name].equal(value) for name, value in expected_tensors.items())


def test_stops_do_not_change_the_result() -> None:
    config = configure()
    straight, stopped = Harness(config), Harness(config)
    straight.play_to(200)
    stopped.play_to(3, 50, 51, 52, 120, 200)
    assert np.array_equal(straight.shared.parameters, stopped.shared.parameters)


def test_each_worker_and_each_incarnation_has_its_own_random_streams() -> None:
    config = configure()
    weights = []
    for number, incarnation in ((0, 0), (1, 0), (0, 1), (0, 0)):
        harness = Harness(config, number=number, incarnation=incarnation)
        harness.play_to(30)
        weights.append(harness.shared.parameters.tobytes())
    assert len(set(weights[:3])) == 3
    assert weights[3] == weights[0]


# --- exit --------------------------------------------------------------------------------------


def test_a_worker_exits_if_the_channel_is_closed() -> None:
    harness = Harness(configure())
    harness.channel.close()
    with pytest.raises(OSError, match="Broken pipe"):
        harness.worker.run(os.getppid())


def test_a_worker_exits_before_the_next_rollout_if_its_parent_has_died() -> None:
    harness = Harness(configure())
    harness.shared.stop_at = 100
    harness.channel.send(GO)
    with pytest.raises(Orphaned):
        harness.worker.run(os.getppid() + 1)
    assert harness.shared.steps == 0


def test_a_worker_exits_when_told_to() -> None:
    harness = Harness(configure())
    harness.shared.stop_at = END
    harness.channel.send(GO)
    with pytest.raises(Orphaned):
        harness.worker.run(os.getppid())
    assert harness.shared.steps == 0
