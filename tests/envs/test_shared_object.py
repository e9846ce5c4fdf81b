"""Players that use one environment object in turns."""

from __future__ import annotations

import numpy as np
import pytest

from noisynet.envs import EnvironmentFailed, make_environment, release_object

from .custom_environments import Corridor, Unseeded

ACTIONS = [1, 0, 0, 1, 0, 1, 0, 0]


def test_players_in_turns_see_what_each_would_see_alone() -> None:
    shared = Corridor("float image")
    with (
        make_environment(shared) as first,
        make_environment(shared, max_episode_frames=20) as second,
        make_environment(Corridor("float image")) as alone,
        make_environment(Corridor("float image")) as other,
    ):
        for one, expected, seed in ((first, alone, 3), (second, other, 4)):
            np.testing.assert_array_equal(one.start([seed]), expected.start([seed]))
        for action in ACTIONS:
            for one, expected in ((first, alone), (second, other)):
                step, wanted = one.step(np.array([action])), expected.step(np.array([action]))
                np.testing.assert_array_equal(step.frame, wanted.frame)
                assert step.reward == wanted.reward


def test_a_player_returns_to_its_screen() -> None:
    shared = Corridor(render_mode="rgb_array")
    with make_environment(shared, colour=True) as first, make_environment(shared) as second:
        first.start([1])
        first.step(np.array([1]))
        before = first.screen(0)
        for seed in range(3):
            second.start([seed])
            second.step(np.array([0]))
        np.testing.assert_array_equal(first.screen(0), before)


def test_closing_leaves_the_object_open() -> None:
    closed = []
    shared = Corridor()
    shared.close = lambda: closed.append(True)  # type: ignore[method-assign]
    with make_environment(shared) as environment:
        environment.start([1])
    assert not closed
    with make_environment(lambda: shared) as environment:
        environment.start([1])
    assert closed  # what a function makes belongs to the environment


def test_an_object_that_does_not_repeat_its_episode_is_reported() -> None:
    shared = Unseeded()
    with make_environment(shared) as first, make_environment(shared) as second:
        first.start([1])
        first.step(np.array([1]))
        second.start([1])
        with pytest.raises(EnvironmentFailed, match=r"object/Unseeded did not .* 1 steps"):
            first.step(np.array([1]))


def test_a_player_plays_its_episode_again_after_its_owner_has_used_the_object() -> None:
    game = Corridor("float image")
    right = np.ones(1, np.int64)
    with make_environment(Corridor("float image")) as alone, make_environment(game) as player:
        for environment in (alone, player):
            environment.start([3])
            environment.step(right)
        release_object(game)
        game.reset(seed=8)
        game.step(0)
        for expected, found in zip(alone.step(right), player.step(right), strict=True):
            assert np.array_equal(expected, found)
    release_object(None)  # not an object: nothing to release
