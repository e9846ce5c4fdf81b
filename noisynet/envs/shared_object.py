"""One environment object that several players use in turns.

An object given in Python cannot be made again: training and evaluation play on the same one. Each
player keeps the seed and the actions of its episode, and plays them again when another player has
used the object in between.
"""

from __future__ import annotations

from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from noisynet.envs.observations import Encode

_PLAYER: Final = "_noisynet_player"


@final
class SharedObject:
    """One player's episodes on an environment object.

    Args:
        name: of the environment, for errors.
        game: the object, possibly in wrappers of this player.
        encode: makes the frame of an observation.
    """

    def __init__(self, name: str, game: Any, encode: Encode) -> None:
        self._name, self._game, self._encode = name, game, encode
        self._token = object()
        self._seed = 0
        self._actions: list[int] = []
        self._frame: NDArray[Any] | None = None

    @property
    def render_mode(self) -> str | None:
        """The object's own."""
        mode: str | None = self._game.render_mode
        return mode

    def reset(self, *, seed: int) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        # On the object itself, so that players know of each other however they were made.
        setattr(self._game.unwrapped, _PLAYER, self._token)
        self._seed, self._actions = seed, []
        observation, info = self._game.reset(seed=seed)
        self._frame = np.array(self._encode(observation))
        return observation, info

    def step(self, action: int) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Make one step of this player's episode."""
        self._take_turn()
        observation, reward, terminated, truncated, info = self._game.step(action)
        self._actions.append(action)
        self._frame = np.array(self._encode(observation))
        return observation, reward, terminated, truncated, info

    def render(self) -> Any:
        """The screen of this player's episode."""
        self._take_turn()
        return self._game.render()

    def close(self) -> None:
        """Leave the object open: it belongs to the caller."""

    def _take_turn(self) -> None:
        """Return to this player's episode, if another player has used the object."""
        if getattr(self._game.unwrapped, _PLAYER, None) is self._token:
            return
        expected, actions = self._frame, self._actions
        observation, _ = self.reset(seed=self._seed)
        for action in actions:
            observation = self._game.step(action)[0]
        self._actions = actions
        self._frame = np.array(self._encode(observation))
        if expected is None or not np.array_equal(self._frame, expected, equal_nan=True):
            raise ValueError(
                f"{self._name} did not reproduce its episode of {len(actions)} steps after an "
                "evaluation on the same object: expected the same observation for the same seed "
                "and actions. Make reset(seed=...) seed everything random, or pass a function that "
                "makes the environment"
            )


def release_object(environment: Any) -> None:
    """Let the caller play on an environment object; its players then play their episodes again.

    Args:
        environment: the object; anything else is left as it is.
    """
    game = getattr(environment, "unwrapped", None)
    if hasattr(game, _PLAYER):
        delattr(game, _PLAYER)
