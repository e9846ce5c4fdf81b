"""How a configuration is built: which settings override which, and how values are parsed."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from noisynet.config import (
    ACTOR_CRITIC_AGENTS,
    AGENTS,
    ConfigError,
    build_config,
    load_config,
    parse_count,
)
from noisynet.config.presets import VALUE_PRESETS
from noisynet.config.sections import Adam, CentredRMSProp, PrioritisedReplay, UniformReplay

from .settings import ENVIRONMENTS, refusal, value_of


def test_settings_override_the_preset_which_overrides_the_agent() -> None:
    config = build_config("dueling", "minatar/breakout", settings=["learning.starts_steps=64"])
    assert config.learning.starts_steps == 64  # given; the preset has 5,000
    assert config.learning.sync_target_steps == 1_000  # the preset's; Dueling has 30,000
    assert config.learning.double_q  # Dueling's


def test_the_budget_is_the_presets_unless_given() -> None:
    assert build_config("dqn", "deep_sea/10").frames == 50_000
    assert build_config("dqn", "deep_sea/10", frames=123).frames == 123
    assert build_config("dqn", "deep_sea/10", frames=9, settings=["frames=2k"]).frames == 2_000


def test_a_change_of_kind_drops_the_settings_of_the_previous_kind() -> None:
    config = build_config("dueling", "atari/pong", settings=["optimiser.kind=adam"])
    assert config.optimiser == Adam()  # not Dueling's learning rate for RMSProp
    config = build_config("dqn", "deep_sea/10", settings=["optimiser.kind=centred-rmsprop"])
    assert config.optimiser == CentredRMSProp()  # not the preset's learning rate for Adam


def test_another_kind_of_replay_keeps_the_presets_capacity() -> None:
    for preset, capacity in (("minatar", 100_000), ("classic", 50_000), ("paper", 1_000_000)):
        config = build_config(
            "dqn", "atari/pong", preset=preset, settings=["replay.kind=prioritised"]
        )
        assert config.replay == PrioritisedReplay(capacity_steps=capacity)
    settings = ["replay.kind=prioritised", "replay.capacity_steps=60k"]
    config = build_config("dqn", "minatar/breakout", settings=settings)
    assert config.replay.capacity_steps == 60_000


def test_settings_of_the_previous_kind_of_replay_are_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prioritised = {
        "replay.kind": "prioritised",
        "replay.alpha": 0.5,
        "replay.capacity_steps": 99_999,
    }
    monkeypatch.setitem(VALUE_PRESETS, "classic", VALUE_PRESETS["classic"] | prioritised)
    config = build_config("dqn", "deep_sea/10", settings=["replay.kind=uniform"])
    assert config.replay == UniformReplay(capacity_steps=99_999)


def test_a_kind_and_its_settings_may_be_given_in_any_order() -> None:
    settings = ["optimiser.learning_rate=0.01", "optimiser.kind=adam"]
    for order in (settings, settings[::-1]):
        config = build_config("dueling", "atari/pong", settings=order)
        assert config.optimiser == Adam(learning_rate=0.01)


def test_naming_the_present_kind_changes_nothing() -> None:
    plain = build_config("dueling", "atari/pong")
    assert plain == build_config(
        "dueling", "atari/pong", settings=["optimiser.kind=centred-rmsprop"]
    )


def test_a_section_may_be_given_as_an_object() -> None:
    whole = build_config("dqn", "deep_sea/5", settings=['replay={"kind": "prioritised"}'])
    assert whole == build_config("dqn", "deep_sea/5", settings=["replay.kind=prioritised"])
    assert whole.replay.capacity_steps == 50_000


@pytest.mark.parametrize(
    ("setting", "key", "expected"),
    [
        ("network.hidden=[32, 16]", "network.hidden", (32, 16)),
        ("learning.double_q=true", "learning.double_q", True),
        ("learning.max_gradient_norm=null", "learning.max_gradient_norm", None),
        ("learning.max_gradient_norm=2.5", "learning.max_gradient_norm", 2.5),
        ("replay.capacity_steps=250k", "replay.capacity_steps", 250_000),
        ("learning.starts_steps=1e3", "learning.starts_steps", 1_000),
        (" learning.loss = squared ", "learning.loss", "squared"),
        (
            "environment_options.sticky_action_prob=0.0",
            "environment_options",
            {"sticky_action_prob": 0.0},
        ),
    ],
)
def test_values_are_parsed_as_json_counts_or_text(setting: str, key: str, expected: Any) -> None:
    found = value_of(build_config("dueling", "minatar/breakout", settings=[setting]), key)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("name", ENVIRONMENTS.values())
def test_a_stored_configuration_comes_back_the_same(agent: str, name: str) -> None:
    settings = ["network.hidden=[8,9]", "network.torso=[[16,8,4,0],[32,4,2,1]]", "threads=3"]
    config = build_config(agent, name, seed=3, settings=settings)
    stored = json.loads(json.dumps(config.model_dump(mode="json")))
    assert load_config(stored) == config


@pytest.mark.parametrize("agent", ACTOR_CRITIC_AGENTS)
@pytest.mark.parametrize("name", ENVIRONMENTS.values())
def test_a_stored_recurrent_configuration_comes_back_the_same(agent: str, name: str) -> None:
    config = build_config(agent, name, seed=3, settings=["recurrent=true", "workers=3"])
    stored = json.loads(json.dumps(config.model_dump(mode="json")))
    assert load_config(stored) == config


def test_stored_configurations_are_checked_like_any_other() -> None:
    stored = build_config("dqn", "deep_sea/10").model_dump()
    with pytest.raises(ConfigError, match="unknown key 'sed'; did you mean 'seed'"):
        load_config(stored | {"sed": 1})


def test_a_configuration_with_a_removed_setting_is_refused_and_the_setting_named() -> None:
    stored = build_config("dqn", "deep_sea/10").model_dump()
    stored["learning"]["draws_ahead"] = True
    with pytest.raises(ConfigError, match=r"^learning\.draws_ahead was removed: .*new run$"):
        load_config(stored)


def test_a_configuration_without_the_settings_that_are_new_has_their_defaults() -> None:
    config = build_config("dqn", "deep_sea/10")
    stored = config.model_dump()
    del stored["compute"], stored["threads"]
    assert load_config(stored) == config


def test_settings_are_checked_against_the_nearest_preset() -> None:
    for preset in ("clasic", "zzz"):  # the default of deep_sea is classic
        (error,) = refusal(
            "dqn", "deep_sea/10", preset=preset, settings=["replay.capacity_steps=1000"]
        )
        assert error.startswith(f"unknown preset {preset!r}")


def test_settings_are_checked_against_the_nearest_agent() -> None:
    (error,) = refusal("noisynet-dqnn", "atari/pong", settings=["exploration.sigma0=0.4"])
    assert error.startswith("unknown agent")


def test_settings_are_checked_against_the_nearest_actor_critic() -> None:
    (error,) = refusal("noisynet-a2c", "atari/pong", settings=["exploration.layers=heads"])
    assert error.endswith("did you mean 'noisynet-a3c'?")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", 1),
        ("500000", 500_000),
        ("500_000", 500_000),
        ("500k", 500_000),
        ("10M", 10_000_000),
        ("10m", 10_000_000),
        ("1e6", 1_000_000),
        ("2.5e3k", 2_500_000),
        ("1.5k", 1_500),
        ("1.001k", 1_001),  # 1.001 * 1000 is 1000.9999999999999
        (" 7 ", 7),
        ("9007199254740993", 9_007_199_254_740_993),  # no float is this number
    ],
)
def test_counts_are_parsed_exactly(text: str, expected: int) -> None:
    assert parse_count(text) == expected


@pytest.mark.parametrize(
    "text", ["", "0", "-1", "1.5", "0.0001k", "k", "ten", "1e-3", "1 000", "_", "1e999", "0x10"]
)
def test_other_text_is_refused_as_a_count(text: str) -> None:
    with pytest.raises(ValueError, match="expected a positive whole number"):
        parse_count(text)


def test_validating_imports_neither_torch_nor_scipy_nor_gymnasium() -> None:
    code = (
        "import sys; from noisynet.config import build_config\n"
        "for name in ('atari/pong', 'minatar/breakout', 'deep_sea/4', 'gym/CartPole-v1'):\n"
        "    build_config('noisynet-dueling', name)\n"
        "heavy = {'torch', 'scipy', 'gymnasium', 'ale_py', 'minatar', 'matplotlib', 'numpy'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
