"""Running episodes: seeds, records, and the return to them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from loops.known_games import KnownGames
from noisynet.envs import episode_seed, make_environment
from noisynet.loops.episodes import Episodes, FinishedEpisode
from noisynet.runs import RunDamaged


def play(episodes: Episodes, steps: int, seed: int = 0) -> list[FinishedEpisode]:
    """Play random actions, starting the next episode wherever one ends."""
    rng, finished = np.random.default_rng(seed), list[FinishedEpisode]()
    for _ in range(steps):
        spec, num_envs = episodes.environment.spec, episodes.environment.num_envs
        actions = rng.integers(spec.num_actions, size=num_envs)
        step = episodes.environment.step(actions)
        finished += episodes.record(actions, step)
        over = np.flatnonzero(step.terminated | step.truncated)
        if len(over):
            episodes.start(over.tolist())
    return finished


def test_every_episode_has_its_own_seed_and_number() -> None:
    started = list[int]()
    episodes = Episodes(KnownGames(2), run_seed=3, first_env=4, on_start=started.append)
    episodes.start(range(2), first_number=5)
    assert started == [5, 5]
    assert [e.seed for e in episodes.running] == [
        episode_seed(3, "train", env, 5) for env in (4, 5)
    ]
    finished = play(episodes, 30)
    for env in (4, 5):
        numbers = [episode.number for episode in finished if episode.env == env]
        assert numbers == list(range(5, 5 + len(numbers)))
        assert episodes.running[env - 4].number == 5 + len(numbers)
    assert len(started) == len(finished) + 2


def test_observations_are_stacks_of_the_running_episode() -> None:
    episodes = Episodes(KnownGames(2), run_seed=0)
    episodes.start(range(2))
    for steps in range(1, 20):
        play(episodes, 1, seed=steps)
        for env, episode in enumerate(episodes.running):
            time = len(episode.actions)
            expected = KnownGames.observation(episode.seed, episode.actions, time)
            np.testing.assert_array_equal(episodes.observation[env], expected)


def returned_to(episodes: Episodes, other: Episodes) -> NDArray[Any]:
    """Restore `other` to the state of `episodes`; return its observations."""
    other.restore(episodes.tensors(), episodes.state())
    assert other.running == episodes.running
    return other.observation


@pytest.mark.parametrize("name", ["deep_sea/4", "minatar/breakout", "gym/CartPole-v1"])
@pytest.mark.parametrize("num_envs", [1, 3])
def test_restored_episodes_have_the_same_observations(name: str, num_envs: int) -> None:
    with make_environment(name, num_envs) as first, make_environment(name, num_envs) as second:
        episodes, other = Episodes(first, 0), Episodes(second, 0)
        episodes.start(range(num_envs))
        second.start([77] * num_envs)  # in any state
        for steps in (1, 2, 40):
            play(episodes, steps, seed=steps)
            observation = returned_to(episodes, other)
            np.testing.assert_array_equal(observation, episodes.observation)
        assert play(episodes, 60) == play(other, 60)


def test_episodes_of_unequal_length_are_restored_together() -> None:
    """Waiting environments may end their arbitrary episodes before they are due."""
    with make_environment("gym/CartPole-v1", 3) as first:
        episodes = Episodes(first, 0)
        episodes.start(range(3))
        lengths = [0]
        while not (lengths[0] == 0 and lengths[-1] > 8):
            play(episodes, 1, seed=lengths[-1])
            lengths = sorted(len(episode.actions) for episode in episodes.running)
        with make_environment("gym/CartPole-v1", 3) as second:
            observation = returned_to(episodes, Episodes(second, 0))
            np.testing.assert_array_equal(observation, episodes.observation)


def test_restoring_gives_a_heartbeat_at_every_step() -> None:
    episodes = Episodes(KnownGames(), 0)
    episodes.start([0])
    play(episodes, 2)
    beats = list[int]()
    episodes.restore(episodes.tensors(), episodes.state(), lambda: beats.append(1))
    assert len(beats) == 3


def test_episodes_can_be_restored_before_the_first_start() -> None:
    episodes = Episodes(KnownGames(2), 0)
    assert returned_to(episodes, Episodes(KnownGames(2), 0)).sum() == 0


def test_environments_that_show_other_frames_are_detected() -> None:
    episodes = Episodes(KnownGames(2), 0, first_env=4)
    episodes.start(range(2))
    play(episodes, 5)
    state = episodes.state()
    state["episodes"][1]["seed"] += 4  # another version of a game may show other frames
    with pytest.raises(RunDamaged, match=r"environments 4 to 5 of deep_sea/4 did not reproduce"):
        Episodes(KnownGames(2), 0, first_env=4).restore(episodes.tensors(), state)
