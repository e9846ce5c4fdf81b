"""Make an environment by its name, such as "atari/pong".

Only the standard library is imported until an environment is made, so that a name can be checked
quickly.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from noisynet.envs.names import FAMILIES, family_of, snake_case, suggestion

if TYPE_CHECKING:
    from noisynet.envs.environment import Environment

_FORMS = "atari/<rom>, minatar/<game>, deep_sea/<n> or gym/<id>"
_GAMES = {name: family.games for name, family in FAMILIES.items() if family.games is not None}


def parse_environment(name: str) -> tuple[str, str]:
    """Split and check the name of an environment.

    Args:
        name: "atari/<rom>", "minatar/<game>", "deep_sea/<n>" or "gym/<id>".

    Returns:
        Family and game, such as ("atari", "pong"). Gymnasium ids are checked when the environment
        is made.

    Raises:
        ValueError: the name is unknown; the message suggests the nearest one.
    """
    family, _, game = name.partition("/")
    if not game and family in FAMILIES:
        raise ValueError(f"expected an environment as {_FORMS}, got the family {name!r} only")
    if family not in FAMILIES:
        raise ValueError(f"expected an environment as {_FORMS}, got {name!r}." + _nearest(name))
    if family in _GAMES and game not in _GAMES[family]:
        raise ValueError(f"{family} has no game {game!r}." + _nearest(name))
    if family == "deep_sea" and not (game.isdecimal() and str(int(game)) == game and int(game) > 1):
        raise ValueError(
            f"expected deep_sea/<n> with a size n of at least 2, such as deep_sea/10, got {name!r}"
        )
    return family, game


def make_environment(name: str, num_envs: int = 1, **options: Any) -> Environment:
    """Make a vector of `num_envs` environments.

    Args:
        name: see `parse_environment`.
        num_envs: the number of environments.
        **options: keyword arguments of the family's class: `AtariEnvironment`,
            `MinAtarEnvironment`, `DeepSeaEnvironment` or `GymEnvironment`.

    Raises:
        ValueError: a name, an option or its value is wrong; the message suggests the nearest name.
        ImportError: the family's package is missing; the message names the pip line.
    """
    family, game = parse_environment(name)
    kind = _environment_class(family)
    known = list(kind.__init__.__kwdefaults__)  # options are keyword-only and have defaults
    for option in options:
        if option not in known:
            raise ValueError(
                f"{family} environments have no option {option!r}; they have {', '.join(known)}."
                + suggestion(option, known)
            )
    made: Environment = kind(int(game) if family == "deep_sea" else game, num_envs, **options)
    return made


def screen_options(name: str) -> dict[str, Any]:
    """Return the options that make `screen` available in the environment `name`, for videos.

    They do not change the game: the same seed and actions give the same rewards.
    """
    parse_environment(name)
    return {"colour": True} if family_of(name).has_colour else {}


def _environment_class(family: str) -> Any:
    if family == "atari":
        from noisynet.envs.atari import AtariEnvironment

        return AtariEnvironment
    if family == "minatar":
        from noisynet.envs.minatar import MinAtarEnvironment

        return MinAtarEnvironment
    if family == "deep_sea":
        from noisynet.envs.deep_sea import DeepSeaEnvironment

        return DeepSeaEnvironment
    from noisynet.envs.gym import GymEnvironment

    return GymEnvironment


def _nearest(name: str) -> str:
    """Suggest a full name, first in the nearest family, then in every family with games."""
    family, slash, game = name.partition("/")
    if not slash:
        family, game = "", family
    meant = difflib.get_close_matches(snake_case(family), FAMILIES, n=1)
    for candidate in (*meant, *_GAMES):
        if candidate in _GAMES:
            near = suggestion(game, _GAMES[candidate])
            if near:
                return near.replace("'", f"'{candidate}/", 1)
        elif game and candidate != family:
            return f" Did you mean '{candidate}/{game}'?"
    return ""
