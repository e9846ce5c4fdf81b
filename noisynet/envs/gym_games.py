"""One Gymnasium environment, from an id, an object or a function, with the options of a run."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from noisynet.envs.names import name_of_gymnasium_id, suggestion
from noisynet.envs.observations import Frames, Game, prepare_images
from noisynet.envs.sources import call_function, is_object, source_name
from noisynet.extras import extra, import_own

with extra("gym"):
    import gymnasium
    from gymnasium.envs.registration import find_highest_version, parse_env_id

if TYPE_CHECKING:
    from noisynet.envs.sources import EnvironmentLike


@dataclass(frozen=True)
class GameMaker:
    """Makes equal games, also in other processes.

    Attributes:
        name: of the environment, such as "gym/CartPole-v1".
        source: an object, a function, or the specification that an id is registered with.
    """

    name: str
    source: Any
    colour: bool
    max_episode_frames: int | None
    arguments: Mapping[str, Any]
    resize: tuple[int, int] | None
    greyscale: bool

    def __call__(self) -> Frames:
        """Make one game."""
        made = self.make()
        try:
            game = prepare_images(self.name, made, resize=self.resize, greyscale=self.greyscale)
            return Frames(self.name, game, made)
        except Exception:
            if not isinstance(self.source, gymnasium.Env):
                made.close()
            raise

    def make(self) -> Game:
        """Make one environment with its own observations."""
        return self._make_registered() if self.name.startswith("gym/") else self._take_given()

    def _make_registered(self) -> Game:
        given = dict(self.arguments)
        if self.max_episode_frames is not None:
            given["max_episode_steps"] = self.max_episode_frames
        if self.colour:
            given["render_mode"] = "rgb_array"
        try:
            # Spaces are checked here; Gymnasium's checker would check every step.
            return gymnasium.make(self.source, disable_env_checker=True, **given)
        except gymnasium.error.DependencyNotInstalled as error:
            raise ImportError(f"{self.name} needs another package: {error}") from error
        except gymnasium.error.Error as error:
            raise ValueError(f"{self.name} cannot be made: {error}") from error

    def _take_given(self) -> Game:
        if self.arguments:
            raise ValueError(
                f"environment_options.arguments are for gym/<id>, got {self.name}: give them to "
                "the environment, or to the function that makes it"
            )
        game = self.source
        if not is_object(game):
            game = call_function(game, colour=self.colour)
            if not isinstance(game, gymnasium.Env):
                raise ValueError(f"expected {self.name} to return a gymnasium.Env, got {game!r}")
        if self.colour and game.render_mode != "rgb_array":
            raise ValueError(
                f'expected {self.name} with render_mode="rgb_array" to show its screen, got '
                f"{game.render_mode!r}: make it with that mode, or pass a function with a "
                "parameter render_mode"
            )
        limit = self.max_episode_frames
        return game if limit is None else gymnasium.wrappers.TimeLimit(game, limit)


def find_source(environment: EnvironmentLike) -> tuple[str, Any]:
    """Return the name of an environment and what makes it, as `GameMaker` has them.

    Raises:
        ValueError: the id is not registered; the message suggests the nearest one.
        ImportError: the module of the id cannot be imported.
    """
    if not isinstance(environment, str):
        return source_name(environment), environment
    registered_id = import_module_of(environment)
    try:
        # The specification, not the id: another process may not have registered it.
        return f"gym/{environment}", gymnasium.spec(registered_id)
    except gymnasium.error.Error as error:
        other = name_of_gymnasium_id(environment)
        module = environment.removesuffix(registered_id)  # with its colon
        near = suggestion(registered_id, gymnasium.registry).replace("'", f"'gym/{module}", 1)
        if other is not None and not other.startswith("gym/"):
            near = f" Did you mean {other!r}?"
        elif not near and not module:
            near = f" If a module of yours registers it: gym/my_module:{registered_id}"
        raise ValueError(
            f"expected gym/<id> with a registered Gymnasium id, got {environment!r} ({error})."
            + near
        ) from error


def import_module_of(environment_id: str) -> str:
    """Import the module of "module:Name-v0", which registers it; return the id after the colon.

    The module may be in the current folder.

    Raises:
        ValueError: the module does not exist.
        ImportError: it exists and fails.
    """
    module, colon, registered_id = environment_id.partition(":")
    if not colon:
        return environment_id
    import_own(module, "gym/<module>:<id>", f"gym/{environment_id}")
    return registered_id


def latest_version(environment_id: str) -> str:
    """The id with the highest registered version, if it has none: "CartPole" is "CartPole-v1"."""
    try:
        namespace, name, version = parse_env_id(import_module_of(environment_id))
    except gymnasium.error.Error:  # malformed, which making it will report
        return environment_id
    highest = find_highest_version(namespace, name)
    if version is not None or highest is None:
        return environment_id
    return f"{environment_id}-v{highest}"


def nearest_id(word: str) -> str | None:
    """The registered id nearest to a word without a version: "cartpole" is "CartPole-v1"."""
    versions = {spec.name.lower(): spec.name for spec in gymnasium.registry.values()}
    near = difflib.get_close_matches(word.lower(), versions, n=1, cutoff=0.8)
    return latest_version(versions[near[0]]) if near else None
