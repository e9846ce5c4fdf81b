"""Roll-outs: their arrays at the ends of episodes, and their resumption."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from loops.known_games import STACK, KnownGames
from noisynet.agents import ActorCriticAgent, Rollout
from noisynet.config import ActorCriticConfig, build_config
from noisynet.envs import episode_seed
from noisynet.loops import FinishedEpisode
from noisynet.loops.rollouts import RolloutCollector
from noisynet.loops.shared_state import SharedState

GAMMA = 0.75  # exact in float32
LENGTH = 5


class Random:
    """An agent that acts at random and records what it observes."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.shown: list[tuple[NDArray[Any], NDArray[np.bool_]]] = []

    def act(self, observation: NDArray[Any], begins: NDArray[np.bool_]) -> NDArray[np.int64]:
        self.shown.append((observation.copy(), begins.copy()))
        return self.rng.integers(4, size=len(observation))


def configure(*settings: str) -> ActorCriticConfig:
    fixed = [f"learning.rollout_steps={LENGTH}", f"learning.discount={GAMMA}"]
    config = build_config("a3c", "deep_sea/4", seed=3, settings=[*fixed, *settings])
    assert isinstance(config, ActorCriticConfig)
    return config


def make_collector(
    envs: int, *settings: str, worker: int = 0, shared: Any = None
) -> RolloutCollector:
    agent = cast(ActorCriticAgent, Random())
    slot = (shared or SharedState.create(4, 1)).slots[worker]
    return RolloutCollector(configure(*settings), agent, KnownGames(envs), worker, slot)


@pytest.mark.parametrize("clip", [True, False])
@pytest.mark.parametrize("envs", [1, 3])
def test_rollouts_have_every_episode_as_it_was(envs: int, clip: bool) -> None:
    """Every array is computed again from seeds and actions alone."""
    collector = make_collector(envs, f"learning.clip_rewards={str(clip).lower()}", worker=2)
    collector.begin()
    number, time, past = [0] * envs, [0] * envs, [list[int]() for _ in range(envs)]
    seeds = [episode_seed(3, "train", 2 * envs + env, 0) for env in range(envs)]
    lengths, ended = set(), []
    for _ in range(60):
        rollout, finished = collector.collect(LENGTH)
        ended += finished
        steps = len(rollout.action)
        lengths.add(steps)
        for t in range(steps + 1):
            for env in range(envs):
                expected = KnownGames.observation(seeds[env], past[env], time[env])
                np.testing.assert_array_equal(rollout.observation[t, env], expected)
                assert rollout.begins[t, env] == (time[env] == 0)
            if t == steps:
                break
            cut = []
            for env in range(envs):
                action, seed = int(rollout.action[t, env]), seeds[env]
                past[env].append(action)
                time[env] += 1
                reward = time[env] - 2.0 * action
                assert rollout.reward[t, env] == (np.clip(reward, -1, 1) if clip else reward)
                over = time[env] == KnownGames.length(seed)
                terminal = over and seed % 2 == 0
                cut.append(over and not terminal)
                ends = terminal or KnownGames.end(seed, time[env])[2]
                assert rollout.discount[t, env] == (0 if ends else GAMMA)
            assert rollout.cut[t].tolist() == cut
            assert (t in rollout.final) == any(cut)
            for env in range(envs):
                if cut[env]:
                    final = KnownGames.observation(seeds[env], past[env], time[env])
                    np.testing.assert_array_equal(rollout.final[t][env], final)
                if time[env] == KnownGames.length(seeds[env]):
                    number[env] += 1
                    seeds[env] = episode_seed(3, "train", 2 * envs + env, number[env])
                    time[env], past[env] = 0, []
                    if envs == 1:
                        assert t == steps - 1  # the roll-out ends with the episode
    assert lengths == ({1, 3, 4, 5} if envs == 1 else {5})
    assert {episode.env for episode in ended} == {2 * envs + env for env in range(envs)}
    for env in range(envs):
        numbers = [episode.number for episode in ended if episode.env == 2 * envs + env]
        assert numbers == list(range(number[env]))


def test_finished_episodes_have_the_unclipped_return() -> None:
    collector = make_collector(1)
    collector.begin()
    rewards, finished = list[float](), list[FinishedEpisode]()
    while not finished:
        rollout, finished = collector.collect(LENGTH)
        start = len(rewards)
        rewards += [start + t + 1 - 2.0 * int(a) for t, a in enumerate(rollout.action[:, 0])]
    seed = episode_seed(3, "train", 0, 0)
    assert finished == [FinishedEpisode(0, 0, sum(rewards), KnownGames.length(seed))]


def test_the_agent_observes_what_the_rollout_has() -> None:
    collector = make_collector(3)
    collector.begin()
    for _ in range(5):
        rollout, _ = collector.collect(LENGTH)
        shown = cast(Random, collector.agent).shown
        observations = np.stack([observation for observation, _ in shown])
        np.testing.assert_array_equal(observations, rollout.observation[:-1])
        np.testing.assert_array_equal(np.stack([b for _, b in shown]), rollout.begins[:-1])
        shown.clear()


def test_a_rollout_can_be_shorter() -> None:
    collector = make_collector(3)
    collector.begin()
    rollout, _ = collector.collect(2)
    assert rollout.action.shape == rollout.cut.shape == (2, 3)
    assert rollout.observation.shape == (3, 3, STACK, 3)


def test_every_step_gives_a_heartbeat() -> None:
    shared = SharedState.create(4, 1)
    collector = make_collector(2, worker=1, shared=shared)
    collector.begin()
    beats = []
    collector.slot.beat = lambda: beats.append(1)  # type: ignore[method-assign]
    collector.collect(4)
    assert len(beats) == 4


# --- state ---------------------------------------------------------------------------------------


def _copy(rollout: Rollout) -> dict[str, Any]:
    return {name: np.copy(value) for name, value in vars(rollout).items() if name != "final"}


@pytest.mark.parametrize("envs", [1, 3])
@pytest.mark.parametrize("rollouts", [0, 1, 2, 7])
def test_a_restored_collector_continues_with_the_same_rollouts(rollouts: int, envs: int) -> None:
    shared, other = SharedState.create(4, 1), SharedState.create(4, 1)
    first = make_collector(envs, shared=shared)
    first.begin()
    for _ in range(rollouts):
        first.collect(LENGTH)
    second = make_collector(envs, shared=other)
    second.environment.start([77] * envs)  # in any state
    other.slots[0].restore(shared.slots[0].state())
    second.episodes.restore(first.episodes.tensors(), first.episodes.state())
    cast(Random, second.agent).rng.bit_generator.state = cast(
        Random, first.agent
    ).rng.bit_generator.state
    for _ in range(4):
        expected, finished = first.collect(LENGTH)
        expected_final, kept = dict(expected.final), _copy(expected)
        found, also_finished = second.collect(LENGTH)
        assert also_finished == finished
        for name, value in _copy(found).items():
            np.testing.assert_array_equal(value, kept[name], err_msg=name)
        assert found.final.keys() == expected_final.keys()
        for t, observation in expected_final.items():
            np.testing.assert_array_equal(found.final[t], observation)


def test_a_restarted_worker_never_starts_the_same_episode_again() -> None:
    shared = SharedState.create(4, 1)
    begun = set[tuple[int, int, int]]()
    for _ in range(3):  # each dies during its episodes
        collector = make_collector(2, shared=shared, worker=1)
        collector.begin()
        for _ in range(10):
            begun_now = {
                (env, e.number, e.seed) for env, e in enumerate(collector.episodes.running)
            }
            collector.collect(LENGTH)
            begun_after = {
                (env, e.number, e.seed) for env, e in enumerate(collector.episodes.running)
            }
            assert not (begun_after - begun_now) & begun
            begun |= begun_now | begun_after
    assert shared.slots[1].episode == max(number for _, number, _ in begun)
