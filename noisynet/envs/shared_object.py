"""One environment object that several players use in turns.

An object given in Python cannot be made again: training and evaluation play on the same one. Each
player keeps the seed and the actions of its episode, and plays them again when another player has
used the object in between.
"""

from __future__ import annotations

from typing import Any, Final, final

import gymnasium
import numpy as np

from noisynet.envs.environment import EnvironmentFailed
from noisynet.envs.observations import Frames

_PLAYER: Final = "_noisynet_player"


@final
class SharedObject(gymnasium.Wrapper[Any, Any, Any, Any]):
    """One player's episodes on an environment object, possibly in wrappers of this player."""

    def __init__(self, name: str, game: Frames) -> None:
        super().__init__(game)
        self._name = name
        self._token = object()
        self._seed: int | None = None
        self._actions: list[int] = []
        self._frame: Any = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        # On the object itself, so that players know of each other however they were made.
        setattr(self.unwrapped, _PLAYER, self._token)
        self._seed, self._actions = seed, []
        frame, info = self.env.reset(seed=seed, options=options)
        self._frame = np.array(frame)
        return frame, info

    def step(self, action: int) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Make one step of this player's episode."""
        self._take_turn()
        frame, reward, terminated, truncated, info = self.env.step(action)
        self._actions.append(action)
        self._frame = np.array(frame)
        return frame, reward, terminated, truncated, info

    def render(self) -> Any:
        """The screen of this player's episode."""
        self._take_turn()
        return self.env.render()

    def close(self) -> None:
        """Leave the object open: it belongs to the caller."""

    def _take_turn(self) -> None:
        """Return to this player's episode, if another player has used the object."""
        if getattr(self.unwrapped, _PLAYER, None) is self._token:
            return
        expected, actions = self._frame, self._actions
        self.reset(seed=self._seed)
        for action in actions:
            self._frame = np.array(self.env.step(action)[0])
        self._actions = actions
        if expected is None or not np.array_equal(self._frame, expected, equal_nan=True):
            raise EnvironmentFailed(
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
