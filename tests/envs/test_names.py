"""Families of environments, and suggestions for misspelt names."""

from __future__ import annotations

import pytest

from noisynet.config import PRESETS
from noisynet.envs import ATARI_57, FAMILIES, MINATAR_GAMES, family_of, make_environment
from noisynet.envs.names import snake_case, suggestion

ONE_OF_EACH = ("atari/pong", "minatar/breakout", "deep_sea/4", "gym/CartPole-v1")


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_a_familys_specification_holds_for_its_environments(name: str) -> None:
    family = family_of(name)
    with make_environment(name) as env:
        shape = env.spec.frame_shape
        options = type(env).__init__.__kwdefaults__ or {}
    assert family.has_large_frames == (len(shape) > 1 and min(shape[-2:]) >= 36)
    assert family.has_frame_limit == ("max_episode_frames" in options)
    assert family.has_threads == ("threads" in options)
    assert family.has_colour == ("colour" in options)
    assert family.preset in PRESETS


def test_every_family_is_tested_here() -> None:
    assert {name.partition("/")[0] for name in ONE_OF_EACH} == set(FAMILIES)
    assert FAMILIES["atari"].games == ATARI_57
    assert FAMILIES["minatar"].games == MINATAR_GAMES


@pytest.mark.parametrize("word", ["MsPacman", "Ms Pacman", "ms-pacman", " ms_pacman "])
def test_snake_case(word: str) -> None:
    assert snake_case(word) == "ms_pacman"


def test_a_suggestion_ignores_case_and_keeps_the_known_spelling() -> None:
    assert (
        suggestion("cartpole-v1", ["CartPole-v1", "Acrobot-v1"]) == " Did you mean 'CartPole-v1'?"
    )
    assert suggestion("SpaceInvaders", ATARI_57) == " Did you mean 'space_invaders'?"
    assert suggestion("xyz", ATARI_57) == ""
