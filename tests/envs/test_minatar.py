"""MinAtar against its own class."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from noisynet.envs import MINATAR_GAMES, MinAtarEnvironment, make_environment
from noisynet.lazy import imported_when_used

with imported_when_used("seaborn"):
    minatar = pytest.importorskip("minatar")

CHANNELS = {"asterix": 4, "breakout": 4, "freeway": 7, "seaquest": 10, "space_invaders": 6}
MINIMAL = {"asterix": 5, "breakout": 3, "freeway": 3, "seaquest": 6, "space_invaders": 4}


@pytest.mark.parametrize("game", MINATAR_GAMES)
def test_each_game_is_minatars_own_from_its_seed_on(game: str) -> None:
    generator = np.random.default_rng(0)
    with make_environment(f"minatar/{game}") as env:
        assert env.spec.frame_shape == (CHANNELS[game], 10, 10)
        assert (env.spec.num_actions, env.spec.stack, env.spec.frames_per_step) == (6, 1, 1)
        for seed in (1, 2, 3):
            raw = minatar.Environment(game)
            raw.seed(seed)
            raw.reset()
            np.testing.assert_array_equal(env.start([seed])[0], raw.state().transpose(2, 0, 1))
            for action in generator.integers(6, size=400):
                step = env.step(np.array([action]))
                reward, terminal = raw.act(int(action))
                assert (step.reward[0], step.terminated[0]) == (reward, terminal)
                assert not step.truncated[0]
                assert not step.life_lost[0]
                np.testing.assert_array_equal(step.frame[0], raw.state().transpose(2, 0, 1))
                if terminal:
                    break


def test_channels_are_binary_and_not_scaled() -> None:
    with make_environment("minatar/breakout") as env:
        assert env.spec.pixel_scale == 1
        assert set(np.unique(env.start([0]))) == {0, 1}


def test_the_last_action_of_an_episode_does_not_stick_to_the_next_one() -> None:
    def first_frame(env: MinAtarEnvironment) -> Any:
        env.start([4])
        return env.step(np.array([0])).frame

    with MinAtarEnvironment("breakout", sticky_action_prob=1.0) as env:
        expected = first_frame(env)
        env.start([5])
        # Set directly: with probability 1 the agent's actions are never used.
        env._games[0].last_action = 3
        env.step(np.array([3]))
        np.testing.assert_array_equal(first_frame(env), expected)


@pytest.mark.parametrize("game", MINATAR_GAMES)
def test_minimal_actions_are_those_that_minatar_lists(game: str) -> None:
    minimal = minatar.Environment(game).minimal_action_set()
    with (
        MinAtarEnvironment(game, minimal_actions=True) as few,
        MinAtarEnvironment(game) as all_of_them,
    ):
        assert few.spec.num_actions == len(minimal) == MINIMAL[game]
        for index, action in enumerate(minimal):
            few.start([1])
            all_of_them.start([1])
            for _ in range(4):
                one = few.step(np.array([index]))
                other = all_of_them.step(np.array([action]))
                np.testing.assert_array_equal(one.frame, other.frame)


def test_sticky_actions_and_difficulty_ramping_reach_the_game() -> None:
    env = MinAtarEnvironment("asterix", sticky_action_prob=0.0, difficulty_ramping=False)
    with env:
        env.start([1])
        assert env._games[0].sticky_action_prob == 0.0
        assert env._games[0].env.ramping is False
    with MinAtarEnvironment("asterix") as env:
        env.start([1])
        assert env._games[0].sticky_action_prob == 0.1
        assert env._games[0].env.ramping is True


def test_freeways_own_clock_terminates() -> None:
    with make_environment("minatar/freeway") as env:
        env.start([1])
        steps = 0
        over = False
        while not over:
            step = env.step(np.array([0]))
            steps, over = steps + 1, bool(step.terminated[0])
            assert not step.truncated[0]
    assert steps == 2501


@pytest.mark.parametrize("game", MINATAR_GAMES)
def test_screens_show_the_player_on_top(game: str) -> None:
    with make_environment(f"minatar/{game}") as env:
        frame = env.start([2])
        screen = env.screen(0)
        assert screen.shape == (160, 160, 3)
        row, column = np.argwhere(frame[0, 0])[0]
        assert screen[16 * row + 8, 16 * column + 8].tolist() == [255, 214, 64]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"game": "pong"}, "got 'pong'"),
        ({"game": "brekout"}, "Did you mean 'breakout'"),
        ({"game": "breakout", "sticky_action_prob": 1.1}, r"\[0, 1\], got 1.1"),
        ({"game": "breakout", "max_episode_frames": 0}, "max_episode_frames to be at least 1"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MinAtarEnvironment(**options)


@pytest.mark.parametrize("game", MINATAR_GAMES)
def test_an_episode_does_not_depend_on_the_episodes_before(game: str) -> None:
    """One object plays all episodes of an environment: nothing of it may survive a start."""
    actions = np.random.default_rng(0).integers(6, size=(400, 1))
    played = []
    with MinAtarEnvironment(game) as used, MinAtarEnvironment(game) as fresh:
        used.start([7])
        for action in actions:
            if used.step(action).terminated[0]:
                used.start([8])
        for env in (used, fresh):
            shown = [env.start([1]).tobytes(), _state(env)]
            for action in actions:
                step = env.step(action)
                shown += [field.tobytes() for field in step]
                if step.terminated[0]:
                    break
            played.append(shown)
    assert played[0] == played[1]


def _state(env: MinAtarEnvironment) -> bytes:
    """Everything that a game holds, except its generator."""
    held = {**vars(env._games[0]), **vars(env._games[0].env)}
    kept = {name: held[name] for name in sorted(held) if name not in ("random", "env")}
    return repr(kept).encode()
