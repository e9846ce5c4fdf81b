"""Names of actions, where an environment has them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Final

MINATAR_ACTIONS: Final = ("no-op", "left", "up", "right", "down", "fire")
"""The six actions of every MinAtar game."""

# As the documentation of Gymnasium's environments numbers them.
_GYMNASIUM: Final[dict[str, tuple[str, ...]]] = {
    "Acrobot": ("torque -1", "no torque", "torque +1"),
    "Blackjack": ("stick", "hit"),
    "CarRacing": ("nothing", "steer right", "steer left", "gas", "brake"),
    "CartPole": ("push left", "push right"),
    "CliffWalking": ("up", "right", "down", "left"),
    "FrozenLake": ("left", "down", "right", "up"),
    "LunarLander": ("nothing", "left engine", "main engine", "right engine"),
    "MountainCar": ("push left", "no push", "push right"),
    "Taxi": ("south", "north", "east", "west", "pick up", "drop off"),
}


def atari_action_name(name: str) -> str:
    """ALE's "UPRIGHTFIRE" as "up right fire"."""
    if name == "NOOP":
        return "no-op"
    return " ".join(re.findall("UP|DOWN|LEFT|RIGHT|FIRE", name)).lower()


def gymnasium_action_names(game: Any, num_actions: int) -> tuple[str, ...]:
    """The names of a Gymnasium environment's actions; none if it has none.

    They are an attribute `action_names` or `actions` (an Enum, as MiniGrid's), the result of
    `get_action_meanings()` (as Atari's), or those in the documentation of Gymnasium's own.
    """
    inner = game.unwrapped
    meanings = getattr(inner, "get_action_meanings", None)
    candidates = [
        getattr(inner, "action_names", None),
        meanings() if callable(meanings) else None,
        getattr(inner, "actions", None),
    ]
    if type(inner).__module__.startswith("gymnasium.envs."):
        candidates.append(_GYMNASIUM.get(re.sub(r"-v\d+$", "", game.spec.id if game.spec else "")))
    for candidate in candidates:
        names = _names(candidate)
        if len(names) == num_actions:
            return names
    return ()


def _names(found: Any) -> tuple[str, ...]:
    """The names in a sequence, a mapping from action to name or an Enum; none in anything else."""
    if isinstance(found, type) and issubclass(found, Enum):
        return tuple(member.name.replace("_", " ").lower() for member in found)
    if isinstance(found, Mapping):
        found = [found[key] for key in sorted(found)] if _are_actions(found) else None
    if isinstance(found, str) or not isinstance(found, Iterable):
        return ()
    names = tuple(found)
    return names if all(isinstance(name, str) for name in names) else ()


def _are_actions(found: Mapping[Any, Any]) -> bool:
    return all(isinstance(key, int) for key in found)
