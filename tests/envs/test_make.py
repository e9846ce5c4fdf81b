"""Names and options of environments."""

from __future__ import annotations

import subprocess
import sys

import pytest

import noisynet.envs
from noisynet.envs import ATARI_57, make_environment, parse_environment, screen_options


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("atari/ms_pacman", ("atari", "ms_pacman")),
        ("minatar/freeway", ("minatar", "freeway")),
        ("deep_sea/10", ("deep_sea", "10")),
        ("gym/CartPole-v1", ("gym", "CartPole-v1")),
        ("gym/ALE/Pong-v5", ("gym", "ALE/Pong-v5")),
    ],
)
def test_a_name_is_family_and_game(name: str, parts: tuple[str, str]) -> None:
    assert parse_environment(name) == parts


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("pong", "got 'pong'. Did you mean 'atari/pong'"),
        ("atari/Pong", "atari has no game 'Pong'. Did you mean 'atari/pong'"),
        ("atari/SpaceInvaders", "Did you mean 'atari/space_invaders'"),
        ("Atari/pong", "Did you mean 'atari/pong'"),
        ("minatar/brekout", "Did you mean 'minatar/breakout'"),
        ("minatari/breakout", "Did you mean 'minatar/breakout'"),
        ("deepsea/10", "Did you mean 'deep_sea/10'"),
        ("Gym/CartPole-v1", "Did you mean 'gym/CartPole-v1'"),
        ("CartPole-v1", "Did you mean 'gym/CartPole-v1'"),
        ("CartPole", "Did you mean 'gym/CartPole-v1'"),
        ("cartpole", "Did you mean 'gym/CartPole-v1'"),
        ("ALE/Pong-v5", "Did you mean 'atari/pong'"),
        ("PongNoFrameskip-v4", "Did you mean 'atari/pong'"),
        ("MinAtar/Breakout-v1", "Did you mean 'minatar/breakout'"),
        ("deep_sea/ten", "size n of at least 2"),
        ("deep_sea/1", "size n of at least 2"),
        ("deep_sea/010", "size n of at least 2"),
        ("deep_sea/-4", "size n of at least 2"),
        ("atari", "got the family 'atari' only"),
        ("gym/", "got the family 'gym/' only"),
        ("", "expected an environment as atari/<rom>"),
    ],
)
def test_a_wrong_name_is_refused_with_the_nearest_one(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_environment(name)


def test_a_name_near_to_nothing_gets_no_suggestion() -> None:
    with pytest.raises(ValueError, match=r"atari has no game 'qqqqqq'\.$"):
        parse_environment("atari/qqqqqq")


@pytest.mark.parametrize(
    ("name", "option", "message"),
    [
        ("atari/pong", "color", "no option 'color'; .* Did you mean 'colour'"),
        ("minatar/breakout", "sticky_prob", "Did you mean 'sticky_action_prob'"),
        ("deep_sea/4", "map_seed", "Did you mean 'mapping_seed'"),
        ("gym/CartPole-v1", "max_episode_steps", "Did you mean 'max_episode_frames'"),
        ("deep_sea/4", "zzz", r"they have mapping_seed, randomise_actions\.$"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest_one(
    name: str, option: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make_environment(name, **{option: 1})


@pytest.mark.parametrize(
    ("name", "module", "extra"),
    [
        ("atari/pong", "ale_py.vector_env", "atari"),
        ("minatar/breakout", "minatar", "minatar"),
        ("gym/CartPole-v1", "gymnasium", "gym"),
    ],
)
def test_a_missing_package_is_named_with_its_pip_line(
    name: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    if extra == "gym":  # imported at the top of these modules: as in a new process
        monkeypatch.delitem(vars(noisynet.envs), "GymEnvironment", raising=False)
        for loaded in ("gym", "gym_games", "observations", "parallel_games", "shared_object"):
            monkeypatch.delitem(sys.modules, f"noisynet.envs.{loaded}", raising=False)
    with pytest.raises(ImportError, match=rf'pip install "noisynet\[{extra}\]"'):
        make_environment(name)


@pytest.mark.parametrize(
    ("name", "how"), [("object/Mine", "an object"), ("function/make", "a function that makes it")]
)
def test_what_was_given_in_python_cannot_be_made_from_its_name(name: str, how: str) -> None:
    with pytest.raises(ValueError, match=f"the environment of {name} itself: .* as {how}, and"):
        make_environment(name)


def test_only_an_id_without_a_version_imports_gymnasium() -> None:
    code = "from noisynet.envs import resolve_environment as r; print(r('gym/CartPole{}'))"
    assert "gymnasium" not in modules_after(code.format("-v1"))
    assert "gymnasium" in modules_after(code.format(""))


def test_screen_options_make_screens_available() -> None:
    assert screen_options("atari/pong") == {"colour": True}
    assert screen_options("gym/CartPole-v1") == screen_options("object/Mine") == {"colour": True}
    assert screen_options("minatar/breakout") == screen_options("deep_sea/5") == {}
    with make_environment("atari/pong", **screen_options("atari/pong")) as env:
        env.start([1])
        assert env.screen(0).shape == (210, 160, 3)


def modules_after(code: str) -> set[str]:
    script = f"{code}\nimport sys\nprint(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def test_checking_a_name_imports_only_the_standard_library() -> None:
    loaded = modules_after("from noisynet.envs import parse_environment as p; p('atari/pong')")
    assert not loaded & {"numpy", "gymnasium", "ale_py", "minatar", "torch"}


def test_environments_run_without_torch() -> None:
    loaded = modules_after(
        "from noisynet.envs import *\n"
        "for name in ('atari/pong', 'deep_sea/4', 'gym/CartPole-v1'):\n"
        "    with make_environment(name) as env: env.start([1])\n"
    )
    assert "ale_py" in loaded
    assert "torch" not in loaded


def test_every_public_name_exists() -> None:
    for name in noisynet.envs.__all__:
        assert getattr(noisynet.envs, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = noisynet.envs.nothing


def test_all_57_names_are_valid() -> None:
    assert {parse_environment(f"atari/{game}")[1] for game in ATARI_57} == set(ATARI_57)
