"""One Gymnasium environment: ids, versions, modules in the current folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import pytest

from noisynet.envs import make_environment, resolve_environment
from noisynet.envs.gym_games import import_module_of, latest_version, nearest_id

from .custom_environments import Corridor


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    before = dict(gymnasium.registry)
    for registered_id in ("Mine-v2", "Mine-v10", "Plain", "space/Mine-v1"):
        gymnasium.register(registered_id, entry_point=lambda **given: Corridor(**given))
    yield
    gymnasium.registry.clear()
    gymnasium.registry.update(before)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, which is not on Python's path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    return tmp_path


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("Mine", "Mine-v10"),
        ("Mine-v2", "Mine-v2"),
        ("Plain", "Plain"),
        ("space/Mine", "space/Mine-v1"),
        ("Unknown", "Unknown"),
        ("two words", "two words"),
    ],
)
def test_an_id_without_a_version_has_the_highest(given: str, expected: str) -> None:
    assert latest_version(given) == expected
    assert resolve_environment(f"gym/{given}") == f"gym/{expected}"


def test_the_environment_has_the_name_with_the_version() -> None:
    with make_environment("gym/Mine") as environment:
        assert environment.spec.name == "gym/Mine-v10"


@pytest.mark.parametrize(
    ("word", "expected"), [("cartpole", "CartPole-v1"), ("mine", "Mine-v10"), ("qqqq", None)]
)
def test_the_nearest_id(word: str, expected: str | None) -> None:
    assert nearest_id(word) == expected


def test_a_module_is_found_in_the_current_folder_and_hides_nothing(folder: Path) -> None:
    for name in ("found_in_folder", "json"):
        (folder / f"{name}.py").write_text(
            f'import gymnasium\ngymnasium.register("{name}-v4", lambda: None)\n'
        )
    assert import_module_of("found_in_folder:found_in_folder-v4") == "found_in_folder-v4"
    assert latest_version("found_in_folder:found_in_folder") == "found_in_folder:found_in_folder-v4"
    sys.modules.pop("found_in_folder")
    import_module_of("json:json-v4")
    assert "json-v4" not in gymnasium.registry  # the standard library's was imported


@pytest.mark.parametrize(
    ("source", "kind", "message"),
    [
        (None, ValueError, r"with a module in .* or installed, got 'gym/broken_module:Mine-v2'"),
        ("import not_there", ImportError, "the module of gym/.* needs another: .*not_there"),
        ("1 / 0", ImportError, "the module of gym/.* cannot be imported: ZeroDivisionError"),
    ],
)
def test_a_module_that_cannot_be_imported_is_named(
    source: str | None, kind: type[Exception], message: str, folder: Path
) -> None:
    if source is not None:
        (folder / "broken_module.py").write_text(source)
    with pytest.raises(kind, match=message):
        make_environment("gym/broken_module:Mine-v2")
    # The configuration accepts it as it is: making it reports why.
    assert resolve_environment("gym/broken_module:Mine") == "gym/broken_module:Mine"


def test_a_wrong_id_of_an_atari_game_names_ours() -> None:
    with pytest.raises(ValueError, match=r"registered Gymnasium id.* Did you mean 'atari/pong'"):
        make_environment("gym/ALE/Pong-v99")


def test_a_wrong_id_of_a_module_is_suggested_with_the_module(folder: Path) -> None:
    (folder / "suggested_module.py").write_text(
        'import gymnasium\ngymnasium.register("Suggested-v1", lambda: None)\n'
    )
    with pytest.raises(ValueError, match=r"Did you mean 'gym/suggested_module:Suggested-v1'"):
        make_environment("gym/suggested_module:Sugested-v1")


def test_arguments_are_for_ids() -> None:
    with make_environment("gym/Mine-v2", arguments={"kind": "tuple"}) as environment:
        assert environment.spec.frame_shape == (11,)
    with pytest.raises(ValueError, match=r"arguments are for gym/<id>, got function/Corridor"):
        make_environment(Corridor, arguments={"kind": "tuple"})


def test_a_function_must_return_a_new_environment_at_each_call() -> None:
    with pytest.raises(ValueError, match=r"function/lambda to return a gymnasium.Env, got 3"):
        make_environment(lambda: 3)  # type: ignore[arg-type, return-value]
    game = Corridor()
    with pytest.raises(ValueError, match=r"a new environment at each call, got the same one twice"):
        make_environment(lambda: game, 2)


@pytest.mark.parametrize("given", ["object", "function"])
def test_what_a_refused_function_made_is_closed_and_an_object_is_not(given: str) -> None:
    game, closed = Corridor(), []
    game.action_space = gymnasium.spaces.Box(0, 1)
    game.close = lambda: closed.append(True)  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="to have Discrete actions"):
        make_environment(game if given == "object" else lambda: game)
    assert bool(closed) == (given == "function")


@pytest.mark.parametrize("environment", [Corridor, "gym/Mine-v2"])
def test_the_frame_limit_holds_however_it_is_given(environment: object) -> None:
    import numpy as np

    with make_environment(environment, max_episode_frames=4) as made:  # type: ignore[arg-type]
        made.start([1])
        ends = [bool(made.step(np.array([0])).truncated[0]) for _ in range(4)]
    assert ends == [False, False, False, True]
