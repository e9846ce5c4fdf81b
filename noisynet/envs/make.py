"""From a name such as "atari/pong" to an environment.

Only the standard library is imported until an environment is really made, so that a configuration
can be checked at once.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from noisynet.envs.names import ATARI_57, FAMILIES, MINATAR_GAMES, snake_case, suggestion

if TYPE_CHECKING:
    from noisynet.envs.environment import Environment

_FORMS = "atari/<rom>, minatar/<game>, deep_sea/<n> or gym/<id>"
_GAMES = {"atari": ATARI_57, "minatar": MINATAR_GAMES}


def parse_environment(name: str) -> tuple[str, str]:
    """Split and check the name of an environment.

    Args:
        name: "atari/<rom>", "minatar/<game>", "deep_sea/<n>" or "gym/<id>".

    Returns:
        Family and game, such as ("atari", "pong"). Whether a Gymnasium id is registered is only
        known when the environment is made.

    Raises:
        ValueError: if no environment has this name; the message names the nearest one.
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
    """Make `num_envs` environments of one kind.

    Args:
        name: see `parse_environment`.
        num_envs: how many to play side by side.
        **options: what the family's class takes: `AtariEnvironment`, `MinAtarEnvironment`,
            `DeepSeaEnvironment` or `GymEnvironment`.

    Raises:
        ValueError: for an unknown name or option, naming the nearest; or for a wrong value.
        ImportError: if the family's package is missing, naming the line that installs it.
    """
    family, game = parse_environment(name)
    kind = _environment_class(family)
    known = list(kind.__init__.__kwdefaults__)  # the keyword-only parameters: all have defaults
    for option in options:
        if option not in known:
            raise ValueError(
                f"{family} environments have no option {option!r}; they have {', '.join(known)}."
                + suggestion(option, known)
            )
    made: Environment = kind(int(game) if family == "deep_sea" else game, num_envs, **options)
    return made


def screen_options(name: str) -> dict[str, Any]:
    """Return the options with which the environment `name` can give its `screen`, for videos.

    They change what is shown, never the game: the same seed and actions give the same rewards.
    """
    family, _ = parse_environment(name)
    return {"colour": True} if family in ("atari", "gym") else {}


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
    """Suggest a whole name, by the family that was probably meant and by the game alone."""
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
