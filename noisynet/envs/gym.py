"""Any single-agent Gymnasium environment with discrete actions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

from noisynet.envs.action_names import gymnasium_action_names
from noisynet.envs.environment import (
    Environment,
    EnvironmentFailed,
    EnvironmentSpec,
    Step,
    check_count,
)
from noisynet.envs.gym_games import GameMaker, find_source
from noisynet.envs.parallel_games import ParallelGames, Results
from noisynet.envs.raw_observations import RawObservations
from noisynet.envs.shared_object import SharedObject
from noisynet.envs.sources import check_single, is_object
from noisynet.extras import extra

with extra("gym"):
    from gymnasium.error import DependencyNotInstalled

if TYPE_CHECKING:
    from noisynet.envs.sources import EnvironmentLike


@final
class GymEnvironment(Environment):
    """N Gymnasium environments, stepped one after the other or in parallel.

    Args:
        environment: an id such as "CartPole-v1", where "module:Name-v0" imports the module first;
            an environment object, which is one environment and stays open; or a function that makes
            a new one at each call.
        num_envs: N.
        colour: make them with render_mode="rgb_array", so that `screen` works.
        max_episode_frames: steps after which an episode is truncated; None for the environment's
            own limit.
        arguments: further keyword arguments of `gymnasium.make`.
        resize: the height and width of images, or one number for both; None: as they are.
        greyscale: whether images in colour become grey.
        frame_stack: the number of successive frames in one observation.
        parallel: whether each environment plays in a process of its own. Results are the same.

    Attributes:
        first_action: the environment's own number of action 0.
        raw: how observations of the environment itself become frames.
    """

    def __init__(
        self,
        environment: EnvironmentLike,
        num_envs: int = 1,
        *,
        colour: bool = False,
        max_episode_frames: int | None = None,
        arguments: Mapping[str, Any] | None = None,
        resize: int | Sequence[int] | None = None,
        greyscale: bool = False,
        frame_stack: int = 1,
        parallel: bool = False,
    ) -> None:
        check_count("num_envs", num_envs, at_least=1)
        check_single(environment, num_envs)
        if max_episode_frames is not None:
            check_count("max_episode_frames", max_episode_frames, at_least=1)
        name, source = find_source(environment)
        maker = GameMaker(
            name,
            source,
            colour=colour,
            max_episode_frames=max_episode_frames,
            arguments=dict(arguments or {}),
            resize=_height_and_width(resize),
            greyscale=greyscale,
        )
        self._parallel: ParallelGames | None = None
        self._games: list[Any] = []  # Frames, or a SharedObject
        try:
            spec = self._make_games(maker, num_envs, frame_stack, parallel and num_envs > 1)
        except BaseException:
            if not is_object(environment):
                self._close()
            raise
        if is_object(environment):
            self._games = [SharedObject(name, *self._games)]
        super().__init__(spec, num_envs)

    def _make_games(
        self, maker: GameMaker, num_envs: int, frame_stack: int, parallel: bool
    ) -> EnvironmentSpec:
        while len(self._games) < (1 if parallel else num_envs):
            self._games.append(maker())
        if len({id(game.unwrapped) for game in self._games}) < len(self._games):
            raise ValueError(
                f"expected {maker.name} to make a new environment at each call, got the same one "
                "twice"
            )
        game = self._games[0]
        self.first_action: int = game.first_action
        transforms = _transforms(game.env, game.made)
        self.raw = RawObservations(game.made.observation_space, transforms, game.rule.encode)
        spec = EnvironmentSpec(
            name=maker.name,
            num_actions=int(game.action_space.n),
            frame_shape=game.rule.shape,
            frame_dtype=game.rule.dtype,
            stack=check_count("frame_stack", frame_stack, at_least=1),
            frames_per_step=1,
            pixel_scale=game.rule.pixel_scale,
            action_names=gymnasium_action_names(game, int(game.action_space.n)),
        )
        if parallel:
            self._games.pop().close()
            self._parallel = ParallelGames(maker, num_envs)
        return spec

    def _start(self, seeds: Sequence[int | None]) -> NDArray[Any]:
        if self._parallel is not None:
            return self._parallel.start(seeds)
        frames = self._no_frames()
        for index, seed in enumerate(seeds):
            if seed is not None:
                frames[index], _ = self._games[index].reset(seed=seed)
        self._check_finite("observation", frames)
        return frames

    def _send(self, actions: NDArray[np.int64]) -> None:
        if self._parallel is not None:
            self._parallel.send(actions)

    def _recv(self, actions: NDArray[np.int64]) -> Step:
        results = self._step_games(actions) if self._parallel is None else self._parallel.recv()
        frames, reward, terminated, truncated = results
        self._check_finite("reward", reward)
        self._check_finite("observation", frames)
        return Step(frames, reward, terminated, truncated & ~terminated, np.zeros_like(terminated))

    def _check_finite(self, name: str, values: NDArray[Any]) -> None:
        """Refuse NaN and infinity: the replay would be useless from here on."""
        if not np.isfinite(values).all():
            wrong = values[~np.isfinite(values)][0]
            raise EnvironmentFailed(
                f"expected a finite {name} from {self.spec.name}, got {wrong}; fix the "
                f"environment, or wrap it so that every {name} is finite"
            )

    def _step_games(self, actions: NDArray[np.int64]) -> Results:
        frames = self._no_frames()
        reward = np.zeros(self.num_envs, dtype=np.float64)
        terminated = np.zeros(self.num_envs, dtype=np.bool_)
        truncated = np.zeros(self.num_envs, dtype=np.bool_)
        for index, game in enumerate(self._games):
            result = game.step(int(actions[index]))
            frames[index], reward[index], terminated[index], truncated[index], _ = result
        return frames, reward, terminated, truncated

    def _screen(self, index: int) -> NDArray[np.uint8]:
        if self._parallel is None and self._games[index].render_mode != "rgb_array":
            raise RuntimeError(f"{self.spec.name} has no screens: make it with colour=True")
        try:
            games = self._parallel
            screen = self._games[index].render() if games is None else games.render(index)
        except DependencyNotInstalled as error:
            raise ImportError(f"{self.spec.name} cannot render its screen: {error}") from error
        return np.array(screen, dtype=np.uint8)

    def _close(self) -> None:
        for game in self._games:
            game.close()
        if self._parallel is not None:
            self._parallel.close()


def _height_and_width(resize: int | Sequence[int] | None) -> tuple[int, int] | None:
    if resize is None:
        return None
    sides = list(resize) if isinstance(resize, list | tuple) else [resize, resize]
    if len(sides) != 2:
        raise ValueError(f"expected resize as one side or [height, width], got {resize!r}")
    height, width = (check_count("resize", side, at_least=1) for side in sides)
    return height, width


def _transforms(game: Any, made: Any) -> list[Callable[[Any], Any]]:
    """What the wrappers from `made` to `game` do to an observation, in this order."""
    found: list[Callable[[Any], Any]] = []
    while game is not made:
        found.insert(0, game.observation)
        game = game.env
    return found
