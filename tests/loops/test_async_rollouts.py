"""Roll-outs: what they hold at the ends of episodes, and that they go on where they were."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from noisynet.agents import ActorCriticAgent, Rollout
from noisynet.config import ActorCriticConfig, build_config
from noisynet.envs import Environment, EnvironmentSpec, Step, episode_seed
from noisynet.loops.off_policy import FinishedEpisode
from noisynet.loops.rollouts import Actor
from noisynet.loops.shared_state import SharedState
from noisynet.runs import RunDamaged

STACK = 2
GAMMA = 0.75  # a float32 too
LENGTH = 5


class Known(Environment):
    """Games whose every frame, reward and end follow from their seed, time and last action.

    An episode lasts 3 to 6 steps, terminated if its seed is even and truncated otherwise; a life is
    lost in its second step.
    """

    def __init__(self, num_envs: int = 1) -> None:
        spec = EnvironmentSpec("deep_sea/4", 4, (3,), "float32", STACK, 4, 1.0)
        super().__init__(spec, num_envs)
        self.seeds, self.times = np.zeros((2, num_envs), np.int64)
        self.last = np.zeros(num_envs, np.int64)

    @staticmethod
    def length(seed: int) -> int:
        return 3 + seed % 4

    @staticmethod
    def frame(seed: int, time: int, action: int) -> NDArray[np.float32]:
        return np.array([1 + seed % 1_000, time, action], np.float32)

    def _start(self, seeds: Sequence[int | None]) -> NDArray[Any]:
        for env, seed in enumerate(seeds):
            if seed is not None:
                self.seeds[env], self.times[env], self.last[env] = seed, 0, 0
        return self._frames()

    def _recv(self, actions: NDArray[np.int64]) -> Step:
        self.last, self.times = actions, self.times + 1
        over = self.times == 3 + self.seeds % 4
        even = self.seeds % 2 == 0
        reward = self.times - 2.0 * actions
        return Step(self._frames(), reward, over & even, over & ~even, self.times == 2)

    def _screen(self, index: int) -> NDArray[np.uint8]:
        raise NotImplementedError

    def _frames(self) -> NDArray[np.float32]:
        games = zip(self.seeds.tolist(), self.times.tolist(), self.last.tolist(), strict=True)
        return np.stack([self.frame(*game) for game in games])


class Random:
    """An agent that acts at random and keeps what it was shown."""

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


def make_actor(envs: int, *settings: str, worker: int = 0, shared: Any = None) -> Actor:
    agent = cast(ActorCriticAgent, Random())
    slot = (shared or SharedState.create(4, 1)).slots[worker]
    return Actor(configure(*settings), agent, Known(envs), worker, slot)


def stack_of(seed: int, actions: list[int], time: int) -> NDArray[np.float32]:
    """What is observed after so many steps of an episode."""
    frames = [np.zeros(3, np.float32)] * STACK
    frames += [Known.frame(seed, t, actions[t - 1] if t else 0) for t in range(time + 1)]
    return np.stack(frames[-STACK:])


@pytest.mark.parametrize("clip", [True, False])
@pytest.mark.parametrize("envs", [1, 3])
def test_rollouts_hold_every_episode_as_it_was(envs: int, clip: bool) -> None:
    """Each array is worked out again from nothing but seeds and actions."""
    actor = make_actor(envs, f"learning.clip_rewards={str(clip).lower()}", worker=2)
    actor.begin()
    number, time, past = [0] * envs, [0] * envs, [list[int]() for _ in range(envs)]
    seeds = [episode_seed(3, "train", 2 * envs + env, 0) for env in range(envs)]
    lengths, told = set(), []
    for _ in range(60):
        rollout, finished = actor.collect(LENGTH)
        told += finished
        steps = len(rollout.action)
        lengths.add(steps)
        for t in range(steps + 1):
            for env in range(envs):
                expected = stack_of(seeds[env], past[env], time[env])
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
                over = time[env] == Known.length(seed)
                terminal = over and seed % 2 == 0
                cut.append(over and not terminal)
                ends = terminal or time[env] == 2
                assert rollout.discount[t, env] == (0 if ends else GAMMA)
            assert rollout.cut[t].tolist() == cut
            assert (t in rollout.final) == any(cut)
            for env in range(envs):
                if cut[env]:
                    final = stack_of(seeds[env], past[env], time[env])
                    np.testing.assert_array_equal(rollout.final[t][env], final)
                if time[env] == Known.length(seeds[env]):
                    number[env] += 1
                    seeds[env] = episode_seed(3, "train", 2 * envs + env, number[env])
                    time[env], past[env] = 0, []
                    if envs == 1:
                        assert t == steps - 1  # nothing is played beyond the end of an episode
    assert lengths == ({1, 3, 4, 5} if envs == 1 else {5})
    assert {episode.env for episode in told} == {2 * envs + env for env in range(envs)}
    for env in range(envs):
        numbers = [episode.number for episode in told if episode.env == 2 * envs + env]
        assert numbers == list(range(number[env]))


def test_finished_episodes_tell_the_unclipped_return() -> None:
    actor = make_actor(1)
    actor.begin()
    rewards, finished = list[float](), list[FinishedEpisode]()
    while not finished:
        rollout, finished = actor.collect(LENGTH)
        start = len(rewards)
        rewards += [start + t + 1 - 2.0 * int(a) for t, a in enumerate(rollout.action[:, 0])]
    seed = episode_seed(3, "train", 0, 0)
    assert finished == [FinishedEpisode(0, 0, sum(rewards), Known.length(seed))]


def test_the_agent_is_shown_what_the_rollout_holds() -> None:
    actor = make_actor(3)
    actor.begin()
    for _ in range(5):
        rollout, _ = actor.collect(LENGTH)
        shown = cast(Random, actor.agent).shown
        observations = np.stack([observation for observation, _ in shown])
        np.testing.assert_array_equal(observations, rollout.observation[:-1])
        np.testing.assert_array_equal(np.stack([b for _, b in shown]), rollout.begins[:-1])
        shown.clear()


def test_a_shorter_rollout_can_be_asked_for() -> None:
    actor = make_actor(3)
    actor.begin()
    rollout, _ = actor.collect(2)
    assert rollout.action.shape == rollout.cut.shape == (2, 3)
    assert rollout.observation.shape == (3, 3, STACK, 3)


def test_a_heartbeat_goes_with_every_step() -> None:
    shared = SharedState.create(4, 1)
    actor = make_actor(2, worker=1, shared=shared)
    actor.begin()
    beats = []
    actor.slot.beat = lambda: beats.append(1)  # type: ignore[method-assign]
    actor.collect(4)
    assert len(beats) == 4


# --- going on -------------------------------------------------------------------------------------


def _copy(rollout: Rollout) -> dict[str, Any]:
    return {name: np.copy(value) for name, value in vars(rollout).items() if name != "final"}


@pytest.mark.parametrize("envs", [1, 3])
@pytest.mark.parametrize("rollouts", [0, 1, 2, 7])
def test_a_restored_actor_goes_on_with_the_same_rollouts(rollouts: int, envs: int) -> None:
    shared, other = SharedState.create(4, 1), SharedState.create(4, 1)
    first = make_actor(envs, shared=shared)
    first.begin()
    for _ in range(rollouts):
        first.collect(LENGTH)
    second = make_actor(envs, shared=other)
    second.environment.start([77] * envs)  # whatever it was at before
    other.slots[0].restore(shared.slots[0].state())
    second.restore(first.tensors(), first.state())
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


def test_environments_that_do_not_play_their_episodes_again_are_refused() -> None:
    first = make_actor(2)
    first.begin()
    first.collect(LENGTH)
    state = first.state()
    state["episodes"][1]["seed"] += 4  # as another version of a game might show other frames
    with pytest.raises(RunDamaged, match=r"environments 0 to 1 of deep_sea/4 did not play"):
        make_actor(2).restore(first.tensors(), state)


def test_a_worker_started_again_begins_episodes_that_nobody_has_begun() -> None:
    shared = SharedState.create(4, 1)
    begun = set[tuple[int, int, int]]()
    for _ in range(3):  # each dies in the midst of its episodes
        actor = make_actor(2, shared=shared, worker=1)
        actor.begin()
        for _ in range(10):
            begun_now = {(env, e.number, e.seed) for env, e in enumerate(actor.episodes)}
            actor.collect(LENGTH)
            begun_after = {(env, e.number, e.seed) for env, e in enumerate(actor.episodes)}
            assert not (begun_after - begun_now) & begun
            begun |= begun_now | begun_after
    assert shared.slots[1].episode == max(number for _, number, _ in begun)
