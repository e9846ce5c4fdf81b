"""One Gymnasium environment, from an id, an object or a function, with the options of a run."""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noisynet.envs.names import name_of_gymnasium_id, suggestion
from noisynet.envs.observations import prepare_images
from noisynet.envs.sources import call_function, is_object, source_name
from noisynet.extras import import_extra

if TYPE_CHECKING:
    from noisynet.envs.sources import EnvironmentLike


@dataclass(frozen=True)
class GameOptions:
    """How one environment is made; see `GymEnvironment`."""

    colour: bool = False
    max_episode_frames: int | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    resize: tuple[int, int] | None = None
    greyscale: bool = False


@dataclass(frozen=True)
class GameMaker:
    """Makes equal environments, also in other processes.

    Attributes:
        name: of the environment, such as "gym/CartPole-v1".
        source: an object, a function, or the specification that an id is registered with.
        options: how they are made.
    """

    name: str
    source: Any
    options: GameOptions

    def __call__(self) -> Any:
        """Make one environment."""
        return self.prepare(self.make())

    def make(self) -> Any:
        """Make one environment whose observations are its own, not yet resized or grey."""
        options, wrappers = self.options, import_extra("gymnasium.wrappers", "gym")
        if self.name.startswith("gym/"):
            return self._make_registered()
        game = self._take_given()
        if options.max_episode_frames is not None:
            game = wrappers.TimeLimit(game, options.max_episode_frames)
        return game

    def prepare(self, game: Any) -> Any:
        """Wrap an environment so that its images have the size and the colours of the options."""
        resize, greyscale = self.options.resize, self.options.greyscale
        return prepare_images(self.name, game, resize=resize, greyscale=greyscale)

    def _make_registered(self) -> Any:
        gymnasium, given = import_extra("gymnasium", "gym"), dict(self.options.arguments)
        if self.options.max_episode_frames is not None:
            given["max_episode_steps"] = self.options.max_episode_frames
        if self.options.colour:
            given["render_mode"] = "rgb_array"
        try:
            # Spaces are checked here; Gymnasium's checker would check every step.
            return gymnasium.make(self.source, disable_env_checker=True, **given)
        except gymnasium.error.DependencyNotInstalled as error:
            raise ImportError(f"{self.name} needs another package: {error}") from error
        except gymnasium.error.Error as error:
            raise ValueError(f"{self.name} cannot be made: {error}") from error

    def _take_given(self) -> Any:
        if self.options.arguments:
            raise ValueError(
                f"environment_options.arguments are for gym/<id>, got {self.name}: give them to "
                "the environment, or to the function that makes it"
            )
        game, colour = self.source, self.options.colour
        if not is_object(game):
            game = call_function(game, colour=colour)
            if not isinstance(game, import_extra("gymnasium", "gym").Env):
                raise ValueError(f"expected {self.name} to return a gymnasium.Env, got {game!r}")
        if colour and game.render_mode != "rgb_array":
            raise ValueError(
                f'expected {self.name} with render_mode="rgb_array" to show its screen, got '
                f"{game.render_mode!r}: make it with that mode, or pass a function with a "
                "parameter render_mode"
            )
        return game


def game_maker(environment: EnvironmentLike, options: GameOptions) -> GameMaker:
    """Return what makes the environments.

    Args:
        environment: a Gymnasium id such as "CartPole-v1" or "my_module:MyEnv-v0", an object, or a
            function.
        options: how they are made.

    Raises:
        ValueError: the id is not registered; the message suggests the nearest one.
        ImportError: Gymnasium, or the module of the id, cannot be imported.
    """
    gymnasium: Any = import_extra("gymnasium", "gym")
    if not isinstance(environment, str):
        return GameMaker(source_name(environment), environment, options)
    registered_id = import_module_of(environment)
    try:
        spec = gymnasium.spec(registered_id)
    except gymnasium.error.Error as error:
        other = name_of_gymnasium_id(environment)
        near = suggestion(registered_id, gymnasium.registry)
        if other is not None and not other.startswith("gym/"):
            near = f" Did you mean {other!r}?"
        raise ValueError(
            f"expected gym/<id> with a registered Gymnasium id, got {environment!r} ({error})."
            + near
        ) from error
    # The specification, not the id: another process may not have registered it.
    return GameMaker(f"gym/{environment}", spec, options)


def import_module_of(environment_id: str) -> str:
    """Import the module of "module:Name-v0", which registers it; return the id after the colon.

    The module may be in the current folder, whichever way Python was started. It comes last on the
    path, so that a file there hides nothing that is installed.

    Raises:
        ValueError: the module does not exist.
        ImportError: it exists and fails.
    """
    module, colon, registered_id = environment_id.partition(":")
    if not colon:
        return environment_id
    folder = str(Path.cwd())
    if folder not in sys.path and "" not in sys.path:
        sys.path.append(folder)
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise ImportError(
                f"the module of gym/{environment_id} needs another: {error}"
            ) from error
        raise ValueError(
            f"expected gym/<module>:<id> with a module in {folder} or installed, got "
            f"{environment_id!r} ({error})"
        ) from error
    except Exception as error:
        raise ImportError(
            f"the module {module} of gym/{environment_id} cannot be imported: "
            f"{type(error).__name__}: {error}"
        ) from error
    return registered_id


def latest_version(environment_id: str) -> str:
    """The id with the highest registered version, if it has none: "CartPole" is "CartPole-v1"."""
    registration: Any = import_extra("gymnasium.envs.registration", "gym")
    registered_id = import_module_of(environment_id)
    try:
        namespace, name, version = registration.parse_env_id(registered_id)
    except registration.error.Error:  # malformed, which making it will report
        return environment_id
    highest = registration.find_highest_version(namespace, name)
    if version is not None or highest is None:
        return environment_id
    return f"{environment_id}-v{highest}"


def nearest_id(word: str) -> str | None:
    """The registered id nearest to a word without a version: "cartpole" is "CartPole-v1"."""
    gymnasium: Any = import_extra("gymnasium", "gym")
    versions = {spec.name.lower(): spec.name for spec in gymnasium.registry.values()}
    near = difflib.get_close_matches(word.lower(), versions, n=1, cutoff=0.8)
    return latest_version(versions[near[0]]) if near else None
