"""MinAtar (Young & Tian 2019): five small games of 10×10 binary channels, one frame per step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from noisynet import paper
from noisynet.envs.action_names import MINATAR_ACTIONS
from noisynet.envs.environment import Environment, EnvironmentSpec, Step, check_count
from noisynet.envs.grid_rendering import CHANNEL_COLOURS, render_cells
from noisynet.envs.names import MINATAR_GAMES, suggestion
from noisynet.extras import import_extra
from noisynet.lazy import imported_when_used


@final
class MinAtarEnvironment(Environment):
    """N copies of one of the five games.

    Args:
        game: such as "space_invaders".
        num_envs: N.
        sticky_action_prob: the probability that the previous action is repeated instead.
        difficulty_ramping: whether games get faster over time.
        minimal_actions: use only the actions that have an effect in this game, instead of all 6.
        max_episode_frames: frames after which an episode is truncated. Freeway's end after 2500
            frames is part of the game and terminates.
    """

    def __init__(
        self,
        game: str,
        num_envs: int = 1,
        *,
        sticky_action_prob: float = paper.MINATAR_STICKY_ACTIONS,
        difficulty_ramping: bool = True,
        minimal_actions: bool = False,
        max_episode_frames: int = paper.MAX_EPISODE_FRAMES,
    ) -> None:
        if game not in MINATAR_GAMES:
            raise ValueError(
                f"expected one of the MinAtar games {', '.join(MINATAR_GAMES)}, got {game!r}."
                + suggestion(game, MINATAR_GAMES)
            )
        check_count("num_envs", num_envs, at_least=1)
        if not 0.0 <= sticky_action_prob <= 1.0:
            raise ValueError(f"expected sticky_action_prob in [0, 1], got {sticky_action_prob}")
        self._max_episode_frames = check_count("max_episode_frames", max_episode_frames, at_least=1)
        with imported_when_used("seaborn"):  # a second, and only for MinAtar's own pictures
            self._make_game = import_extra("minatar", "minatar").Environment
        self._arguments = (game, float(sticky_action_prob), bool(difficulty_ramping))
        self._games = [self._make_game(*self._arguments) for _ in range(num_envs)]
        self._action_ids = list(range(self._games[0].num_actions()))
        if minimal_actions:
            self._action_ids = self._games[0].minimal_action_set()
        height, width, channels = self._games[0].state_shape()
        spec = EnvironmentSpec(
            name=f"minatar/{game}",
            num_actions=len(self._action_ids),
            frame_shape=(channels, height, width),
            frame_dtype="uint8",
            stack=1,
            frames_per_step=1,
            pixel_scale=1.0,
            action_names=tuple(MINATAR_ACTIONS[action] for action in self._action_ids),
        )
        super().__init__(spec, num_envs)
        self._episode_frames = np.zeros(num_envs, dtype=np.int64)

    def _start(self, seeds: Sequence[int | None]) -> NDArray[Any]:
        frames = self._no_frames()
        for index, seed in enumerate(seeds):
            if seed is None:
                continue
            game = self._games[index]
            game.seed(seed)
            game.reset()
            game.last_action = 0  # reset keeps it, and a sticky first step would repeat it
            self._episode_frames[index] = 0
            frames[index] = _channels(game)
        return frames

    def _recv(self, actions: NDArray[np.int64]) -> Step:
        frames = self._no_frames()
        reward = np.zeros(self.num_envs, dtype=np.float64)
        terminated = np.zeros(self.num_envs, dtype=np.bool_)
        for index, game in enumerate(self._games):
            reward[index], terminated[index] = game.act(self._action_ids[actions[index]])
            frames[index] = _channels(game)
        self._episode_frames += 1
        truncated = (self._episode_frames >= self._max_episode_frames) & ~terminated
        return Step(frames, reward, terminated, truncated, np.zeros_like(terminated))

    def _screen(self, index: int) -> NDArray[np.uint8]:
        game = self._games[index]
        channels: dict[str, int] = game.env.channels
        planes = _channels(game).astype(np.bool_)
        # Trails are painted first, the player's channel (the lowest) last, on top.
        layers = sorted(channels.items(), key=lambda item: (not _is_trail(item[0]), -item[1]))
        return render_cells([(planes[c], CHANNEL_COLOURS[name]) for name, c in layers])


def _channels(game: Any) -> NDArray[np.uint8]:
    """Return MinAtar's state, [H, W, C] of booleans, as uint8 [C, H, W]."""
    state: NDArray[np.bool_] = game.state()
    return state.transpose(2, 0, 1).astype(np.uint8)


def _is_trail(channel: str) -> bool:
    return channel == "trail" or channel.startswith("speed")
