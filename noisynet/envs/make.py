"""Make an environment by its name, such as "atari/pong", or from an object or a function.

Only the standard library is imported until an environment is made, so that a name can be checked
quickly.
"""

from __future__ import annotations

import difflib
import importlib
import re
from typing import TYPE_CHECKING, Any

from noisynet.envs.names import FAMILIES, family_of, name_of_gymnasium_id, snake_case, suggestion
from noisynet.envs.sources import check_not_importing_main, source_name

if TYPE_CHECKING:
    from noisynet.envs.environment import Environment
    from noisynet.envs.sources import EnvironmentLike

_FORMS = "atari/<rom>, minatar/<game>, deep_sea/<n> or gym/<id>"
_GIVEN_IN_PYTHON = {"object": "an object", "function": "a function that makes it"}
_CLASSES = {
    "atari": "AtariEnvironment",
    "minatar": "MinAtarEnvironment",
    "deep_sea": "DeepSeaEnvironment",
}
_GAMES = {name: family.games for name, family in FAMILIES.items() if family.games is not None}


def parse_environment(name: str) -> tuple[str, str]:
    """Check the name of an environment; return family and game, such as ("atari", "pong").

    Gymnasium ids are checked when the environment is made.

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


def resolve_environment(name: str) -> str:
    """Return the one name of an environment: a Gymnasium id without a version has the highest.

    Gymnasium is imported only for such an id. A name that cannot be resolved is returned as it is;
    making it reports why.

    Raises:
        ValueError: the name is unknown; see `parse_environment`.
    """
    family, game = parse_environment(name)
    if family != "gym" or re.search(r"-v\d+$", game):
        return name
    try:
        from noisynet.envs.gym_games import latest_version

        return f"gym/{latest_version(game)}"
    except (ImportError, ValueError):
        return name


def environment_name(environment: EnvironmentLike) -> str:
    """Return the name that a run stores: the given one, "object/<class>" or "function/<name>".

    Raises:
        ValueError: the name is unknown, or it is none of the three.
    """
    if isinstance(environment, str):
        return resolve_environment(environment)
    return source_name(environment)


def make_environment(
    environment: EnvironmentLike, num_envs: int = 1, **options: Any
) -> Environment:
    """Make a vector of `num_envs` environments.

    Args:
        environment: a name (see `parse_environment`), a Gymnasium environment, or a function that
            makes one. An object is one environment only, and stays open when the vector is closed;
            several vectors can use it in turns.
        num_envs: N.
        **options: keyword arguments of the family's class: `AtariEnvironment`,
            `MinAtarEnvironment`, `DeepSeaEnvironment` or `GymEnvironment`.

    Raises:
        ValueError: a name, an option or its value is wrong; the message suggests the nearest name.
        ImportError: the family's package is missing; the message names the pip line.
    """
    check_not_importing_main()
    family, _, game = environment_name(environment).partition("/")
    if isinstance(environment, str) and family in _GIVEN_IN_PYTHON:
        raise ValueError(
            f"expected the environment of {environment} itself: it was given to the run in Python, "
            f"as {_GIVEN_IN_PYTHON[family]}, and must be given again"
        )
    package = importlib.import_module("noisynet.envs")  # imports the class of one family
    kind: Any = getattr(package, _CLASSES.get(family, "GymEnvironment"))
    known = list(kind.__init__.__kwdefaults__)  # options are keyword-only and have defaults
    for option in options:
        if option not in known:
            raise ValueError(
                f"{family} environments have no option {option!r}; they have {', '.join(known)}."
                + suggestion(option, known)
            )
    source = game if isinstance(environment, str) else environment
    made: Environment = kind(int(game) if family == "deep_sea" else source, num_envs, **options)
    return made


def screen_options(name: str) -> dict[str, Any]:
    """Return the options that make `screen` available in the environment `name`, for videos.

    They do not change the game: the same seed and actions give the same rewards.
    """
    parse_environment(name)
    return {"colour": True} if family_of(name).has_colour else {}


def _nearest(name: str) -> str:
    """Suggest a full name, first in the nearest family, then in every family with games."""
    family, slash, game = name.partition("/")
    if not slash:
        family, game = "", family
    meant = difflib.get_close_matches(snake_case(family), FAMILIES, n=1)
    if not meant and (found := name_of_gymnasium_id(name)):
        return f" Did you mean {found!r}?"
    for candidate in (*meant, *_GAMES):
        if candidate in _GAMES:
            near = suggestion(game, _GAMES[candidate])
            if near:
                return near.replace("'", f"'{candidate}/", 1)
        elif game and candidate != family and candidate not in _GIVEN_IN_PYTHON:
            return f" Did you mean '{candidate}/{game}'?"
    try:
        from noisynet.envs.gym_games import nearest_id

        near_id = None if slash else nearest_id(name)
    except ImportError:
        near_id = None
    return "" if near_id is None else f" Did you mean 'gym/{near_id}'?"
