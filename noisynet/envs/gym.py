"""Any single-agent Gymnasium environment with discrete actions.

Observations become frames by one of three rules: images (uint8, two or three axes) stay uint8 with
channels first; discrete states become one-hot vectors; every other box becomes a flat float32
vector.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from noisynet.envs.environment import Environment, EnvironmentSpec, Step, check_count
from noisynet.envs.names import suggestion
from noisynet.extras import import_extra

Encode: TypeAlias = Callable[[Any], NDArray[Any]]


class FrameRule(NamedTuple):
    """How observations of one space become frames."""

    shape: tuple[int, ...]
    dtype: str
    encode: Encode
    pixel_scale: float = 1.0


@final
class GymEnvironment(Environment):
    """N environments made by `gymnasium.make`, stepped one after the other.

    Args:
        environment_id: such as "CartPole-v1"; "package:Name-v0" imports the package first.
        num_envs: N.
        colour: make them with render_mode="rgb_array", so that `screen` works.
        max_episode_frames: steps after which an episode is truncated; None for the registered
            limit.
        arguments: further keyword arguments of `gymnasium.make`.
    """

    def __init__(
        self,
        environment_id: str,
        num_envs: int = 1,
        *,
        colour: bool = False,
        max_episode_frames: int | None = None,
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        check_count("num_envs", num_envs, at_least=1)
        given = dict(arguments) if arguments is not None else {}
        if max_episode_frames is not None:
            given["max_episode_steps"] = check_count(
                "max_episode_frames", max_episode_frames, at_least=1
            )
        if colour:
            given["render_mode"] = "rgb_array"
        self._games = [_make_game(environment_id, given) for _ in range(num_envs)]
        name = f"gym/{environment_id}"
        num_actions, self._first_action = _discrete_actions(name, self._games[0].action_space)
        self._rule = frame_rule(name, self._games[0].observation_space)
        spec = EnvironmentSpec(
            name=name,
            num_actions=num_actions,
            frame_shape=self._rule.shape,
            frame_dtype=self._rule.dtype,
            stack=1,
            frames_per_step=1,
            pixel_scale=self._rule.pixel_scale,
        )
        super().__init__(spec, num_envs)

    def _start(self, seeds: Sequence[int | None]) -> NDArray[Any]:
        frames = self._no_frames()
        for index, seed in enumerate(seeds):
            if seed is not None:
                observation, _ = self._games[index].reset(seed=seed)
                frames[index] = self._rule.encode(observation)
        return frames

    def _recv(self, actions: NDArray[np.int64]) -> Step:
        frames = self._no_frames()
        reward = np.zeros(self.num_envs, dtype=np.float64)
        terminated = np.zeros(self.num_envs, dtype=np.bool_)
        truncated = np.zeros(self.num_envs, dtype=np.bool_)
        for index, game in enumerate(self._games):
            action = int(actions[index]) + self._first_action
            result = game.step(action)
            observation, reward[index], terminated[index], truncated[index], _ = result
            if not np.isfinite(reward[index]):  # the replay buffer would be useless from here on
                raise ValueError(
                    f"expected a finite reward from {self.spec.name}, got {reward[index]} after "
                    f"action {action}; fix the environment, or register a wrapper with finite "
                    "rewards"
                )
            frames[index] = self._rule.encode(observation)
        return Step(frames, reward, terminated, truncated & ~terminated, np.zeros_like(terminated))

    def _screen(self, index: int) -> NDArray[np.uint8]:
        game = self._games[index]
        if game.render_mode != "rgb_array":
            raise RuntimeError(f"{self.spec.name} has no screens: make it with colour=True")
        missing = import_extra("gymnasium", "gym").error.DependencyNotInstalled
        try:
            screen = game.render()
        except missing as error:
            raise ImportError(f"{self.spec.name} cannot render its screen: {error}") from error
        return np.array(screen, dtype=np.uint8)

    def _close(self) -> None:
        for game in self._games:
            game.close()


def frame_rule(name: str, space: Any) -> FrameRule:
    """Return how observations of `space` become frames.

    Raises:
        ValueError: if no rule fits, naming `name` and the space.
    """
    spaces = import_extra("gymnasium", "gym").spaces
    if isinstance(space, spaces.Discrete):
        return _one_hot_rule(int(space.n), int(space.start))
    if isinstance(space, spaces.Box):
        if space.dtype == np.uint8 and len(space.shape) in (2, 3):
            return _image_rule(space.shape, 1 / 255 if space.high.max() == 255 else 1.0)
        if space.dtype != np.uint8 or len(space.shape) < 2:
            return _flat_rule(int(np.prod(space.shape)))
    raise ValueError(
        f"expected {name} to observe a Box of numbers, a uint8 image of two or three axes or a "
        f"Discrete state, got {space}. Register a wrapped environment, for example with "
        "gymnasium.wrappers.FlattenObservation"
    )


def _one_hot_rule(count: int, first: int) -> FrameRule:
    def encode(observation: Any) -> NDArray[Any]:
        frame = np.zeros(count, dtype=np.float32)
        frame[int(observation) - first] = 1.0
        return frame

    return FrameRule((count,), "float32", encode)


def _flat_rule(size: int) -> FrameRule:
    def encode(observation: Any) -> NDArray[Any]:
        return np.asarray(observation, dtype=np.float32).reshape(size)

    return FrameRule((size,), "float32", encode)


def _image_rule(shape: tuple[int, ...], pixel_scale: float) -> FrameRule:
    # An image has fewer channels than rows, so the shape tells which axis holds the channels.
    if len(shape) == 3 and shape[2] <= shape[0]:
        height, width, channels = shape
        return FrameRule((channels, height, width), "uint8", _channels_first, pixel_scale)
    return FrameRule(shape, "uint8", np.asarray, pixel_scale)


def _channels_first(observation: Any) -> NDArray[Any]:
    return np.asarray(observation).transpose(2, 0, 1)


def _discrete_actions(name: str, space: Any) -> tuple[int, int]:
    """Return the number of actions and the first of them."""
    if not isinstance(space, import_extra("gymnasium", "gym").spaces.Discrete):
        raise ValueError(
            f"expected {name} to have Discrete actions, got {space}. Register a wrapper that has "
            "Discrete actions"
        )
    return int(space.n), int(space.start)


def _make_game(environment_id: str, arguments: Mapping[str, Any]) -> Any:
    gymnasium = import_extra("gymnasium", "gym")
    try:
        # Spaces are checked here; Gymnasium's checker would check every step.
        return gymnasium.make(environment_id, disable_env_checker=True, **arguments)
    except gymnasium.error.DependencyNotInstalled as error:
        raise ImportError(f"gym/{environment_id} needs another package: {error}") from error
    except gymnasium.error.Error as error:
        raise ValueError(
            f"expected gym/<id> with a registered Gymnasium id, got {environment_id!r} ({error})."
            + suggestion(environment_id, gymnasium.registry)
        ) from error
