"""Names of what environments are made from, and functions in other processes."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.vector import SyncVectorEnv

from noisynet.envs import decode_function, encode_function, environment_name, make_environment
from noisynet.envs.sources import call_function, is_object

from .custom_environments import Corridor, Maker, make_corridor, make_kind


def make_any(kind: object) -> Corridor:
    return Corridor(str(kind))


class Named:
    def __call__(self) -> Corridor:
        return Corridor()


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ("gym/CartPole-v1", "gym/CartPole-v1"),
        ("gym/CartPole", "gym/CartPole-v1"),
        (Corridor(), "object/Corridor"),
        (gymnasium.wrappers.TimeLimit(Corridor(), 3), "object/Corridor"),
        (Corridor, "function/Corridor"),
        (make_corridor, "function/make_corridor"),
        (functools.partial(make_kind, "dict"), "function/make_kind"),
        (lambda: Corridor(), "function/lambda"),
        (Named(), "function/Named"),
        (Maker.make, "function/make"),
    ],
)
def test_what_is_given_has_a_name(environment: Any, name: str) -> None:
    assert environment_name(environment) == name
    with make_environment(environment) as made:
        assert made.spec.name == name


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (3, "a single gymnasium.Env or a function that makes one, got builtins.int"),
        (SyncVectorEnv([Corridor]), "got gymnasium.*SyncVectorEnv.*, and set num_envs"),
    ],
)
def test_anything_else_is_refused(environment: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        environment_name(environment)
    with pytest.raises(ValueError, match=message):
        make_environment(environment)


def test_an_object_is_one_environment_only() -> None:
    with pytest.raises(
        ValueError, match=r"expected num_envs=1 .*object/Corridor, got 2: .*Pass a f"
    ):
        make_environment(Corridor(), 2)


def test_a_false_object_is_an_object() -> None:
    assert not Corridor()  # of no length
    assert is_object(Corridor())


@pytest.mark.parametrize("colour", [False, True])
def test_functions_that_take_a_render_mode_get_it_for_screens(colour: bool) -> None:
    expected = "rgb_array" if colour else None
    assert call_function(Corridor, colour=colour).render_mode == expected
    assert call_function(functools.partial(Corridor, "dict"), colour=colour).render_mode == expected
    assert call_function(make_corridor, colour=colour).render_mode is None


@pytest.mark.parametrize(
    "function",
    [make_corridor, Corridor, functools.partial(make_kind, "tuple"), Maker.make],
    ids=["function", "class", "partial", "class method"],
)
def test_functions_are_decoded_to_the_same(function: Any) -> None:
    decoded = decode_function(encode_function(function))
    assert environment_name(decoded) == environment_name(function)
    one, other = decoded(), function()
    assert type(one) is type(other) is Corridor
    assert one.kind == other.kind


def local() -> Any:
    def within() -> Corridor:
        return Corridor()

    return within


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda: Corridor(), "not a name of its module"),
        (local(), "not a name of its module"),
        (Named(), "not a name of its module"),
        (functools.partial(lambda kind: Corridor(kind), "dict"), "not a name of its module"),
        (functools.partial(make_any, Path("x")), "arguments that are not plain data"),
    ],
)
def test_functions_that_cannot_be_imported_are_refused(function: Any, why: str) -> None:
    with pytest.raises(ValueError, match=rf"({why}).*at the top level of a .py file"):
        encode_function(function)


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_function_of_a_session_without_a_file_is_refused() -> None:
    code = "def make(): pass\nfrom noisynet.envs import encode_function as e; e(make)"
    assert "it is defined in a session that has no file" in python(code).stderr


SCRIPT = """
import json, sys
from noisynet.envs import encode_function, make_environment
def make(): return 7
{guard}
"""
DECODE = "import json, sys; from noisynet.envs import decode_function as d\n{rest}"


def test_a_function_of_a_script_is_found_by_importing_the_script(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    guard = 'if __name__ == "__main__": print(json.dumps(encode_function(make)))'
    script.write_text(SCRIPT.format(guard=guard))
    encoded = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    decode = "import json, sys; from noisynet.envs import decode_function as d\n"
    decoded = python(decode + "print(d(json.loads(sys.argv[1]))())", encoded.stdout)
    assert decoded.stdout.strip() == "7", decoded.stderr


def test_a_script_that_trains_when_it_is_imported_is_told_how_not_to(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(guard='make_environment("deep_sea/4")'))
    encoded = {"module": "__main__", "path": "make", "init_main_from_path": str(script)}
    code = (
        f"from noisynet.envs import decode_function as d; d({encoded | {'args': [], 'kwargs': {}}})"
    )
    ended = python(code)
    assert ended.returncode == 1
    assert 'put what trains under if __name__ == "__main__":' in ended.stderr
