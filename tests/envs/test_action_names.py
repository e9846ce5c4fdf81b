"""Names of actions."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import pytest

from noisynet.envs import make_environment
from noisynet.envs.action_names import atari_action_name

from .custom_environments import Corridor


@pytest.mark.parametrize(
    ("environment", "options", "expected"),
    [
        ("atari/pong", {}, ["no-op", "fire", "right", "left", "right fire", "left fire"]),
        ("atari/pong", {"pong_actions": "original"}, ["no-op", "right", "left"]),
        ("minatar/breakout", {}, ["no-op", "left", "up", "right", "down", "fire"]),
        ("minatar/breakout", {"minimal_actions": True}, ["no-op", "left", "right"]),
        ("deep_sea/4", {}, []),  # "right" differs from cell to cell
        ("gym/CartPole-v1", {}, ["push left", "push right"]),
        ("gym/Taxi", {}, ["south", "north", "east", "west", "pick up", "drop off"]),
        ("gym/FrozenLake-v1", {}, ["left", "down", "right", "up"]),
        (Corridor, {}, ["left", "right"]),
    ],
)
def test_a_specification_names_the_actions(
    environment: Any, options: dict[str, Any], expected: list[str]
) -> None:
    with make_environment(environment, **options) as made:
        assert list(made.spec.action_names) == expected


class Turn(IntEnum):
    TURN_LEFT = 0
    TURN_RIGHT = 1


@pytest.mark.parametrize(
    ("attribute", "value", "expected"),
    [
        ("action_names", ["one", "two"], ("one", "two")),
        ("action_names", {1: "two", 0: "one"}, ("one", "two")),
        ("get_action_meanings", lambda: ["NOOP", "FIRE"], ("NOOP", "FIRE")),
        ("actions", Turn, ("turn left", "turn right")),
        ("action_names", ["one", "two", "three"], ()),  # not one for each action
        ("action_names", "ab", ()),
        ("action_names", [0, 1], ()),
        ("actions", {"left": 0, "right": 1}, ()),
        ("actions", 2, ()),
    ],
)
def test_environments_name_their_actions_in_several_ways(
    attribute: str, value: Any, expected: tuple[str, ...]
) -> None:
    game: Any = Corridor()
    game.action_names = None
    setattr(game, attribute, value)
    with make_environment(game) as made:
        assert made.spec.action_names == expected


@pytest.mark.parametrize(
    ("name", "expected"), [("NOOP", "no-op"), ("UPRIGHTFIRE", "up right fire"), ("DOWN", "down")]
)
def test_the_emulators_names_become_words(name: str, expected: str) -> None:
    assert atari_action_name(name) == expected
