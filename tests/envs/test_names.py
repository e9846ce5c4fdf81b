"""Families of environments, and suggestions for misspelt names."""

from __future__ import annotations

import pytest

from noisynet.config import PRESETS
from noisynet.envs import (
    ATARI_57,
    FAMILIES,
    MINATAR_GAMES,
    EnvironmentLike,
    environment_folder,
    environment_name,
    family_of,
    make_environment,
    name_of_gymnasium_id,
)
from noisynet.envs.names import snake_case, suggestion

from .custom_environments import Corridor

ONE_OF_EACH: dict[str, EnvironmentLike] = {
    "atari": "atari/pong",
    "minatar": "minatar/breakout",
    "deep_sea": "deep_sea/4",
    "gym": "gym/CartPole-v1",
    "object": Corridor(),
    "function": Corridor,
}


@pytest.mark.parametrize("family_name", ONE_OF_EACH)
def test_a_familys_specification_holds_for_its_environments(family_name: str) -> None:
    environment = ONE_OF_EACH[family_name]
    family = family_of(environment_name(environment))
    assert family is FAMILIES[family_name]
    with make_environment(environment) as env:
        shape = env.spec.frame_shape
        options = type(env).__init__.__kwdefaults__ or {}
    assert family.has_large_frames == (len(shape) > 1 and min(shape[-2:]) >= 36)
    assert family.has_frame_limit == ("max_episode_frames" in options)
    assert family.has_threads == ("threads" in options)
    assert family.has_colour == ("colour" in options)
    assert family.preset in PRESETS


def test_every_family_is_tested_here() -> None:
    assert set(ONE_OF_EACH) == set(FAMILIES)
    assert FAMILIES["atari"].games == ATARI_57
    assert FAMILIES["minatar"].games == MINATAR_GAMES


@pytest.mark.parametrize(
    ("environment_id", "name"),
    [
        ("CartPole-v1", "gym/CartPole-v1"),
        ("my_module:Mine-v0", "gym/my_module:Mine-v0"),
        ("space/Mine-v0", "gym/space/Mine-v0"),
        ("ALE/Pong-v5", "atari/pong"),
        ("ALE/UpNDown-v5", "atari/up_n_down"),
        ("MsPacmanNoFrameskip-v4", "atari/ms_pacman"),
        ("Pong-ram-v0", "atari/pong"),
        ("MinAtar/SpaceInvaders-v1", "minatar/space_invaders"),
        ("ALE/Adventure-v5", "gym/ALE/Adventure-v5"),  # not one of the 57
        ("CartPole", None),
        ("pong", None),
        ("two words-v1", None),
    ],
)
def test_gymnasium_ids_have_a_name_here(environment_id: str, name: str | None) -> None:
    assert name_of_gymnasium_id(environment_id) == name


def test_every_atari_game_is_found_by_its_gymnasium_id() -> None:
    for game in ATARI_57:
        camel = "".join(word.capitalize() for word in game.split("_"))
        assert name_of_gymnasium_id(f"ALE/{camel}-v5") == f"atari/{game}"


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("atari/pong", "atari/pong"),
        ("gym/CartPole-v1", "gym/CartPole-v1"),
        ("gym/package.module:Mine-v0", "gym/package.module.Mine-v0"),
    ],
)
def test_folders_have_no_colon(name: str, folder: str) -> None:
    assert environment_folder(name) == folder


@pytest.mark.parametrize("word", ["MsPacman", "Ms Pacman", "ms-pacman", " ms_pacman "])
def test_snake_case(word: str) -> None:
    assert snake_case(word) == "ms_pacman"


def test_a_suggestion_ignores_case_and_keeps_the_known_spelling() -> None:
    assert (
        suggestion("cartpole-v1", ["CartPole-v1", "Acrobot-v1"]) == " Did you mean 'CartPole-v1'?"
    )
    assert suggestion("SpaceInvaders", ATARI_57) == " Did you mean 'space_invaders'?"
    assert suggestion("xyz", ATARI_57) == ""
