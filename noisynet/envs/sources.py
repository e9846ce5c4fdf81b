"""What environments are made from: a name, an environment object, or a function that makes one."""

from __future__ import annotations

import functools
import inspect
import json
import pkgutil
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import gymnasium

EnvironmentFunction: TypeAlias = "Callable[[], gymnasium.Env[Any, Any]]"
EnvironmentLike: TypeAlias = "str | gymnasium.Env[Any, Any] | EnvironmentFunction"
"""A name such as "gym/CartPole-v1", an environment object, or a function that makes one."""

_FUNCTION_NEEDED = (
    "Pass a function that makes the environment instead, such as its class or `lambda: MyEnv(3)`"
)


def is_object(environment: object) -> bool:
    """Whether this is an environment object, and neither a name nor a function.

    Raises:
        ValueError: it is none of the three.
    """
    gymnasium: Any = sys.modules.get("gymnasium")  # an object of its class has imported it
    if gymnasium is not None and isinstance(environment, gymnasium.Env):
        return True
    if isinstance(environment, str) or (callable(environment) and not _is_vector(environment)):
        return False
    kind = f"{type(environment).__module__}.{type(environment).__qualname__}"
    raise ValueError(
        "expected the name of an environment, a single gymnasium.Env or a function that makes one, "
        f"got {kind}" + (f". {_FUNCTION_NEEDED}, and set num_envs" * _is_vector(environment))
    )


def _is_vector(environment: object) -> bool:
    return hasattr(environment, "num_envs") and hasattr(environment, "step")


def source_name(environment: EnvironmentLike) -> str:
    """The name that a run stores of an object, "object/<class>", or a function, "function/<name>".

    Raises:
        ValueError: it is neither an object nor a function nor a name.
    """
    if isinstance(environment, str):
        return environment
    if is_object(environment):
        return f"object/{_word(type(environment.unwrapped).__name__)}"  # type: ignore[union-attr]
    made_by: Any = environment
    while isinstance(made_by, functools.partial):
        made_by = made_by.func
    return f"function/{_word(getattr(made_by, '__name__', type(made_by).__name__))}"


def _word(name: str) -> str:
    """A name that can be a folder: "<lambda>" is "lambda"."""
    return re.sub(r"[^\w.-]+", "", name) or "unnamed"


def check_single(environment: EnvironmentLike, num_envs: int) -> None:
    """Raise ValueError if one object is to be several environments."""
    if num_envs > 1 and is_object(environment):
        raise ValueError(
            f"expected num_envs=1 for the environment object {source_name(environment)}, got "
            f"{num_envs}: one object cannot play several episodes at once. {_FUNCTION_NEEDED}"
        )


# --- functions in other processes ----------------------------------------------------------------


def encode_function(environment: EnvironmentLike) -> dict[str, Any]:
    """Encode a function by where it can be imported from, JSON-able, for `decode_function`.

    Raises:
        ValueError: it is an object, or a function that other processes cannot import.
    """
    name = source_name(environment)
    if is_object(environment):
        raise ValueError(
            f"expected a function that makes the environment, got the environment object {name}: "
            f"A3C plays in processes of its own, which cannot share an object. {_FUNCTION_NEEDED}"
        )
    function: Any = environment
    encoded: dict[str, Any] = {"args": [], "kwargs": {}}
    if isinstance(function, functools.partial):  # partials of partials are flat
        encoded = {"args": list(function.args), "kwargs": dict(function.keywords)}
        function = function.func
    try:
        module, path = function.__module__, function.__qualname__
        found = pkgutil.resolve_name(f"{module}:{path}")
    except (AttributeError, ImportError, ValueError):
        found = None
    if found is None or found != function:
        raise _not_importable(name, "it is not a name of its module")
    if json.loads(json.dumps(encoded, default=repr)) != encoded:
        raise _not_importable(name, "functools.partial gives it arguments that are not plain data")
    encoded |= {"module": module, "path": path}
    return encoded | (_main_module(name) if module == "__main__" else {})


def _main_module(name: str) -> dict[str, str]:
    """How another process imports the script that runs here."""
    main: Any = sys.modules["__main__"]
    if main.__spec__ is not None:
        return {"init_main_from_name": main.__spec__.name}
    if getattr(main, "__file__", None) is None:
        raise _not_importable(name, "it is defined in a session that has no file")
    return {"init_main_from_path": str(Path(main.__file__).resolve())}


def _not_importable(name: str, why: str) -> ValueError:
    return ValueError(
        f"expected {name} to be a function that A3C's processes can import, got one that they "
        f"cannot ({why}). Define it at the top level of a .py file, not as a lambda or within "
        "another function; functools.partial may give it numbers, strings, lists and dicts"
    )


_importing_main = False


def decode_function(encoded: Mapping[str, Any]) -> EnvironmentFunction:
    """Inverse of `encode_function`. A function of the main script imports that script first."""
    global _importing_main
    main = {key: encoded[key] for key in encoded if key.startswith("init_main")}
    if main:
        from multiprocessing import spawn

        _importing_main = True
        spawn.prepare(main)  # as multiprocessing does it, under the name __mp_main__
        _importing_main = False
    function = pkgutil.resolve_name(f"{encoded['module']}:{encoded['path']}")
    made: EnvironmentFunction = functools.partial(function, *encoded["args"], **encoded["kwargs"])
    return made


def check_not_importing_main() -> None:
    """Raise RuntimeError in a worker that imports a script which trains when it is imported."""
    if _importing_main:
        raise RuntimeError(
            "a worker of A3C imports your script to find the function that makes the environment, "
            "and the script trains when it is imported: put what trains under "
            'if __name__ == "__main__":'
        )


def call_function(environment: EnvironmentFunction, *, colour: bool) -> Any:
    """Make an environment; with `colour` and if the function accepts it, to render images."""
    accepts = False
    if colour:
        try:
            parameters = inspect.signature(environment).parameters.values()
        except (TypeError, ValueError):  # built in
            parameters = {}.values()
        accepts = any(p.name == "render_mode" or p.kind is p.VAR_KEYWORD for p in parameters)
    return environment(render_mode="rgb_array") if accepts else environment()  # type: ignore[call-arg]
