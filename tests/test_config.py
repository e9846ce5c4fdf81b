"""Configurations: the papers' settings, what overrides what, and what cannot be written down."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import pytest
from pydantic import ValidationError

from noisynet.config import (
    AGENTS,
    PRESETS,
    VALUE_AGENTS,
    Adam,
    CentredRMSProp,
    Config,
    ConfigError,
    EpsilonGreedy,
    NoisyWeights,
    PrioritisedReplay,
    RunConfig,
    UniformReplay,
    build_config,
    load_config,
    parse_count,
)
from noisynet.presets import DEFAULT_PRESETS, PRESET_SETTINGS

FAMILIES = {"atari": "atari/pong", "minatar": "minatar/breakout", "deep_sea": "deep_sea/10"}
FAMILIES["gym"] = "gym/CartPole-v1"


def value_of(config: RunConfig, key: str) -> Any:
    found: Any = config
    for part in key.split("."):
        found = getattr(found, part)
    return found


def refusal(*arguments: Any, **keywords: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        build_config(*arguments, **keywords)
    return str(caught.value).splitlines()


# --- the papers' settings ------------------------------------------------------------------------

NATURE = {
    "network.torso": "auto",
    "network.hidden": (512,),
    "learning.loss": "huber",
    "learning.discount": 0.99,
    "learning.n_step": 1,
    "learning.batch_size": 32,
    "learning.starts_steps": 50_000,
    "learning.update_period_steps": 4,
    "learning.clip_rewards": True,
    "replay.kind": "uniform",
    "replay.capacity_steps": 1_000_000,
    "optimiser.kind": "centred-rmsprop",
    "optimiser.decay": 0.95,
    "optimiser.epsilon": 0.01 / 32**2,
    "frames": 200_000_000,
    "max_episode_frames": 108_000,
    "evaluation.period_frames": 1_000_000,
    "evaluation.frames": 500_000,
    "num_envs": 1,
}
DQN = NATURE | {
    "network.dueling": False,
    "network.trunk_gradient_scale": 1.0,
    "learning.double_q": False,
    "learning.sync_target_steps": 10_000,
    "learning.max_gradient_norm": None,
    "optimiser.learning_rate": 2.5e-4,
}
DUELING = NATURE | {
    "network.dueling": True,
    "network.trunk_gradient_scale": 2**-0.5,
    "learning.double_q": True,
    "learning.sync_target_steps": 30_000,
    "learning.max_gradient_norm": 10.0,
    "optimiser.learning_rate": 6.25e-5,
}
EPSILON = {
    "exploration.kind": "epsilon-greedy",
    "exploration.initial": 1.0,
    "exploration.anneal_steps": 1_000_000,
}
NOISY = {
    "exploration.kind": "noisy-weights",
    "exploration.noise": "factorised",
    "exploration.sigma0": 0.5,
    "exploration.redraw": "action",
    "exploration.warm_up": "noisy",
    "exploration.used_in": "acting and learning",
    "exploration.learn_sigma": True,
    "exploration.evaluation": "on",
}
AGENT_SETTINGS: dict[str, dict[str, Any]] = {
    "dqn": DQN | EPSILON | {"exploration.final": 0.1, "exploration.evaluation": 0.05},
    "dueling": DUELING | EPSILON | {"exploration.final": 0.01, "exploration.evaluation": 0.001},
    "noisynet-dqn": DQN | NOISY,
    "noisynet-dueling": DUELING | NOISY,
}


@pytest.mark.parametrize("agent", VALUE_AGENTS)
def test_on_atari_an_agent_has_the_settings_of_its_paper(agent: str) -> None:
    config = build_config(agent, "atari/pong")
    expected = AGENT_SETTINGS[agent]
    assert {key: value_of(config, key) for key in expected} == expected


def test_noisy_agents_differ_from_their_baselines_in_exploration_alone() -> None:
    for baseline in ("dqn", "dueling"):
        plain = build_config(baseline, "atari/pong").model_dump()
        noisy = build_config(f"noisynet-{baseline}", "atari/pong").model_dump()
        assert {key for key in plain if plain[key] != noisy[key]} == {"agent", "exploration"}


# Each decision marked D in FIDELITY.md (sections 1 to 4), with the field that holds it, its
# default and another choice. Those of the layers and of Algorithm 1's slips are not choices.
DECISIONS: dict[str, tuple[str, str, Any, str, Any]] = {
    "σ0 is 0.5, later code has 0.1": ("noisynet-dqn", "exploration.sigma0", 0.5, "0.1", 0.1),
    "evaluation noise is on": ("noisynet-dqn", "exploration.evaluation", "on", "off", "off"),
    "acting noise is redrawn at every action": (
        "noisynet-dqn",
        "exploration.redraw",
        "action",
        "episode",
        "episode",
    ),
    "warm-up is noisy": ("noisynet-dqn", "exploration.warm_up", "noisy", "uniform", "uniform"),
    "the learning rate of Dueling": (
        "noisynet-dueling",
        "optimiser.learning_rate",
        6.25e-5,
        "2.5e-4",
        2.5e-4,
    ),
    "target copies count global steps": (
        "noisynet-dqn",
        "learning.sync_target_steps",
        10_000,
        "5k",
        5_000,
    ),
    "the error is clipped": ("noisynet-dqn", "learning.loss", "huber", "squared", "squared"),
    "an update every four steps": ("noisynet-dqn", "learning.update_period_steps", 4, "1", 1),
    "control: σ frozen": ("noisynet-dqn", "exploration.learn_sigma", True, "false", False),
    "control: where noise is used": (
        "noisynet-dqn",
        "exploration.used_in",
        "acting and learning",
        "acting",
        "acting",
    ),
    "control: ε = 0": ("dqn", "exploration.final", 0.1, "0", 0.0),
    "replay may be prioritised": ("dqn", "replay.kind", "uniform", "prioritised", "prioritised"),
    "n-step returns": ("dqn", "learning.n_step", 1, "3", 3),
}


@pytest.mark.parametrize("decision", DECISIONS)
def test_every_decision_is_a_field_with_a_default_and_a_choice(decision: str) -> None:
    agent, key, default, text, other = DECISIONS[decision]
    assert value_of(build_config(agent, "atari/pong"), key) == default
    changed = build_config(agent, "atari/pong", settings=[f"{key}={text}"])
    assert value_of(changed, key) == other


def test_independent_noise_starts_from_its_own_sigma0() -> None:
    config = build_config("noisynet-dqn", "atari/pong", settings=["exploration.noise=independent"])
    assert value_of(config, "exploration.sigma0") == 0.017
    assert value_of(config, "exploration.warm_up") == "noisy"


@pytest.mark.parametrize(
    ("settings", "warm_up"),
    [
        ({}, "noisy"),
        ({"sigma0": 0.1}, "uniform"),
        ({"sigma0": 0.11}, "noisy"),
        ({"sigma0": 0.1, "warm_up": "noisy"}, "noisy"),
        ({"warm_up": "uniform"}, "uniform"),
        ({"noise": "independent", "sigma0": 0.003}, "uniform"),
    ],
    ids=str,
)
def test_little_noise_warms_up_uniformly_unless_told_otherwise(
    settings: dict[str, Any], warm_up: str
) -> None:
    assert NoisyWeights(**settings).warm_up == warm_up


# --- presets -------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_its_own_preset(family: str) -> None:
    expected = {
        "atari": "paper",
        "minatar": "minatar",
        "deep_sea": "classic",
        "gym": "classic",
    }
    assert expected == DEFAULT_PRESETS
    config = build_config("dqn", FAMILIES[family])
    assert config == build_config("dqn", FAMILIES[family], preset=expected[family])


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("agent", VALUE_AGENTS)
def test_every_preset_fits_every_value_agent(agent: str, preset: str) -> None:
    config = build_config(agent, "atari/pong", preset=preset)
    kind = "noisy-weights" if agent.startswith("noisynet") else "epsilon-greedy"
    assert config.exploration.kind == kind


@pytest.mark.parametrize(
    ("preset", "expected"),
    [
        (
            "minatar",
            {
                "network.hidden": (128,),
                "learning.batch_size": 32,
                "replay.capacity_steps": 100_000,
                "learning.starts_steps": 5_000,
                "learning.sync_target_steps": 1_000,
                "learning.update_period_steps": 1,
                "optimiser.kind": "centred-rmsprop",
                "optimiser.learning_rate": 2.5e-4,
                "optimiser.decay": 0.95,
                "exploration.final": 0.1,
                "exploration.anneal_steps": 100_000,
                "learning.discount": 0.99,
            },
        ),
        (
            "pong-fast",
            {
                "optimiser.kind": "adam",
                "optimiser.learning_rate": 1e-4,
                "replay.capacity_steps": 100_000,
                "learning.starts_steps": 10_000,
                "learning.sync_target_steps": 1_000,
                "learning.update_period_steps": 1,
            },
        ),
    ],
)
def test_presets_hold_the_settings_of_fidelity_section_8(
    preset: str, expected: dict[str, Any]
) -> None:
    config = build_config("dqn", "minatar/breakout", preset=preset)
    assert {key: value_of(config, key) for key in expected} == expected


def test_gymnasium_environments_keep_their_own_time_limit() -> None:
    assert build_config("dqn", "gym/CartPole-v1").max_episode_frames is None
    assert build_config("dqn", "minatar/breakout").max_episode_frames == 108_000


# --- what overrides what -------------------------------------------------------------------------


def test_the_users_settings_come_over_the_presets_and_those_over_the_agents() -> None:
    config = build_config("dueling", "minatar/breakout", settings=["learning.starts_steps=64"])
    assert config.learning.starts_steps == 64  # the user's, over the preset's 5,000
    assert config.learning.sync_target_steps == 1_000  # the preset's, over Dueling's 30,000
    assert config.learning.double_q  # Dueling's


def test_the_budget_is_the_presets_unless_given() -> None:
    assert build_config("dqn", "deep_sea/10").frames == 50_000
    assert build_config("dqn", "deep_sea/10", frames=123).frames == 123
    assert build_config("dqn", "deep_sea/10", frames=9, settings=["frames=2k"]).frames == 2_000


def test_a_kind_takes_the_settings_of_the_kind_before_with_it() -> None:
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


def test_what_only_the_old_kind_of_replay_had_goes_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    prioritised = {
        "replay.kind": "prioritised",
        "replay.alpha": 0.5,
        "replay.capacity_steps": 99_999,
    }
    monkeypatch.setitem(PRESET_SETTINGS, "classic", PRESET_SETTINGS["classic"] | prioritised)
    config = build_config("dqn", "deep_sea/10", settings=["replay.kind=uniform"])
    assert config.replay == UniformReplay(capacity_steps=99_999)


def test_a_kind_can_be_changed_and_set_in_one_go_in_any_order() -> None:
    settings = ["optimiser.learning_rate=0.01", "optimiser.kind=adam"]
    for order in (settings, settings[::-1]):
        config = build_config("dueling", "atari/pong", settings=order)
        assert config.optimiser == Adam(learning_rate=0.01)


def test_naming_the_kind_that_is_there_changes_nothing() -> None:
    plain = build_config("dueling", "atari/pong")
    assert plain == build_config(
        "dueling", "atari/pong", settings=["optimiser.kind=centred-rmsprop"]
    )


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
def test_values_are_read_as_what_they_look_like(setting: str, key: str, expected: Any) -> None:
    found = value_of(build_config("dueling", "minatar/breakout", settings=[setting]), key)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_stored_configuration_comes_back_the_same(agent: str, family: str) -> None:
    config = build_config(agent, FAMILIES[family], seed=3, settings=["network.hidden=[8,9]"])
    stored = json.loads(json.dumps(config.model_dump(mode="json")))
    assert load_config(stored) == config


def test_a_configuration_is_frozen_through_and_through() -> None:
    config = build_config("noisynet-dqn", "atari/pong")
    places: list[tuple[Any, str]] = [
        (config, "seed"),
        (config.exploration, "sigma0"),
        (config.learning, "discount"),
        (config.optimiser, "learning_rate"),
        (config.replay, "capacity_steps"),
        (config.network, "hidden"),
        (config.evaluation, "frames"),
    ]
    for part, name in places:
        with pytest.raises(ValidationError, match="frozen"):
            setattr(part, name, getattr(part, name))


# --- what cannot be written down -----------------------------------------------------------------


@pytest.mark.parametrize("name", ["initial", "final", "anneal_steps"])
@pytest.mark.parametrize("agent", ["noisynet-dqn", "noisynet-dueling"])
def test_a_noisy_agent_has_no_epsilon(agent: str, name: str) -> None:
    assert not hasattr(build_config(agent, "atari/pong").exploration, name)
    (error,) = refusal(agent, "atari/pong", settings=[f"exploration.{name}=1"])
    assert error.startswith(f"unknown key 'exploration.{name}'")
    with pytest.raises(ValidationError):
        NoisyWeights.model_validate({name: 1})


@pytest.mark.parametrize("name", ["sigma0", "noise", "redraw", "warm_up", "learn_sigma"])
def test_an_epsilon_greedy_agent_has_no_noise(name: str) -> None:
    (error,) = refusal("dqn", "atari/pong", settings=[f"exploration.{name}=1"])
    assert error.startswith(f"unknown key 'exploration.{name}'")
    with pytest.raises(ValidationError):
        EpsilonGreedy.model_validate({name: 1})


@pytest.mark.parametrize(
    ("agent", "kind"), [("noisynet-dqn", "epsilon-greedy"), ("dueling", "noisy-weights")]
)
def test_an_agent_explores_in_its_own_way_only(agent: str, kind: str) -> None:
    errors = refusal(agent, "atari/pong", settings=[f"exploration.kind={kind}"])
    assert errors == [f"{agent} does not explore by {kind}"]


def test_every_error_is_told_at_once_with_the_nearest_name() -> None:
    errors = refusal(
        "noisnet-dqn",
        "atari/pongg",
        seed=-1,
        preset="papper",
        settings=[
            "learning.discunt=0.9",
            "learning.batch_size=many",
            "exploration.sigma=0.4",
            "replay.capacity_steps=0",
            "justtext",
        ],
    )
    text = "\n".join(errors)
    assert len(errors) == 9, text
    for expected in (
        r"unknown agent 'noisnet-dqn'.*did you mean 'noisynet-dqn'",
        r"unknown preset 'papper'.*did you mean 'paper'",
        r"no game 'pongg'.*'atari/pong'",
        r"seed: .*greater than or equal to 0.*-1",
        r"unknown key 'learning.discunt'; did you mean 'learning.discount'",
        r"learning.batch_size: .*integer.*'many'",
        r"unknown key 'exploration.sigma'; did you mean 'exploration.sigma0'",
        r"replay.capacity_steps: .*greater than 0",
        r"expected key=value, got 'justtext'",
    ):
        assert re.search(expected, text), expected


CONTRADICTORY = ["exploration.kind=noisy-weights", "replay.capacity_steps=8"]
CONTRADICTIONS = [
    "dqn does not explore by noisy-weights",
    "replay.capacity_steps (8) is below learning.batch_size (32)",
    "learning.starts_steps (200) is above replay.capacity_steps (8): learning could not start from "
    "a full batch",
]


def test_the_contradictions_are_told_together() -> None:
    assert refusal("dqn", "deep_sea/10", settings=CONTRADICTORY) == CONTRADICTIONS
    stored = build_config("dqn", "deep_sea/10").model_dump()
    stored["replay"]["capacity_steps"] = 8
    with pytest.raises(ValidationError) as caught:
        Config.model_validate(stored)
    assert all(sentence in str(caught.value) for sentence in CONTRADICTIONS[1:])


@pytest.mark.parametrize(
    ("more", "error"),
    [
        (["learning.discount=2"], "learning.discount: "),
        (["learning.discunt=0.9"], "unknown key 'learning.discunt'"),
        (["network.hidden=[4, 0]"], "network.hidden.1: "),
        (["optimiser.kind=adamw"], "optimiser.kind: "),
        (["exploration.sigma0=-1"], "exploration.sigma0: "),
        (["evaluation=3"], "evaluation: "),
        (["nonsense"], "--set expected key=value"),
    ],
    ids=str,
)
def test_contradictions_are_told_beside_the_errors_of_single_fields(
    more: list[str], error: str
) -> None:
    errors = refusal("dqn", "deep_sea/10", settings=[*CONTRADICTORY, *more])
    assert set(CONTRADICTIONS) < set(errors)
    (other,) = set(errors) - set(CONTRADICTIONS)
    assert other.startswith(error)


@pytest.mark.parametrize(
    ("agent", "settings", "left"),
    [
        ("dqn", [*CONTRADICTORY, "learning.batch_size=0"], [0, 2]),
        ("dqn", [*CONTRADICTORY, "learning.starts_steps=soon"], [0, 1]),
        ("dqn", [*CONTRADICTORY, "learning=3"], [0]),
        ("dqn", [*CONTRADICTORY, "replay.capacity_steps=-8"], [0]),
        ("dqn", [*CONTRADICTORY, "exploration.kind=noise"], [1, 2]),
        ("dqnn", CONTRADICTORY, [1, 2]),
    ],
    ids=str,
)
def test_a_field_with_an_error_of_its_own_contradicts_nothing(
    agent: str, settings: list[str], left: list[int]
) -> None:
    errors = refusal(agent, "deep_sea/10", settings=settings)
    assert errors[1:] == [CONTRADICTIONS[number] for number in left]


def test_a_wrong_preset_is_not_blamed_for_the_settings_of_the_one_that_was_meant() -> None:
    for preset in ("clasic", "zzz"):  # deep_sea has classic where none is asked for
        (error,) = refusal(
            "dqn", "deep_sea/10", preset=preset, settings=["replay.capacity_steps=1000"]
        )
        assert error.startswith(f"unknown preset {preset!r}")


@pytest.mark.parametrize(
    ("setting", "error"),
    [
        (
            "exploration.noise=factorized",
            "exploration.noise: expected 'factorised' or 'independent', got 'factorized'; "
            "did you mean 'factorised'?",
        ),
        (
            "learning.loss=hubert",
            "learning.loss: expected 'huber' or 'squared', got 'hubert'; did you mean 'huber'?",
        ),
        (
            "exploration.warm_up=uniformly",
            "exploration.warm_up: expected 'noisy' or 'uniform', got 'uniformly'; "
            "did you mean 'uniform'?",
        ),
        (
            "replay.kind=prioritized",
            "replay.kind: expected 'uniform' or 'prioritised', got 'prioritized'; "
            "did you mean 'prioritised'?",
        ),
        ("learning.loss=xyz", "learning.loss: expected 'huber' or 'squared', got 'xyz'"),
        ("learning.loss=3", "learning.loss: expected 'huber' or 'squared', got 3"),
        ("replay.kind=[1]", "replay.kind: expected 'uniform' or 'prioritised', got [1]"),
        ("replay.kind=3", "replay.kind: expected 'uniform' or 'prioritised', got 3"),
    ],
)
def test_a_wrong_choice_is_told_the_nearest_one(setting: str, error: str) -> None:
    assert refusal("noisynet-dqn", "atari/pong", settings=[setting]) == [error]
    settings = [setting, "replay.kin=uniform"]
    assert error in refusal("noisynet-dqn", "atari/pong", settings=settings)  # beside others, too


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        (["learning.starts_steps=31"], r"starts_steps \(31\) is below learning.batch_size \(32\)"),
        (["num_envs=201"], r"starts_steps \(200\) is below num_envs × learning.n_step \(201\)"),
        (["num_envs=50", "learning.n_step=5"], r"below num_envs × learning.n_step \(250\)"),
        (["learning.starts_steps=50001"], r"above replay.capacity_steps \(50000\)"),
        (["replay.kind=prioritised", "replay.alpha=1.1"], r"replay.alpha: .*1"),
        (["replay.alpha=0.5"], r"unknown key 'replay.alpha'"),
        (["learning.loss=hubr"], r"learning.loss: .*'huber' or 'squared', got 'hubr'"),
        (["exploration.kind=noisy"], r"exploration.kind: .*did you mean 'noisy-weights'"),
        (["learning.discount=1"], r"learning.discount: .*less than 1"),
        (["optimiser.learning_rate=Infinity"], r"optimiser.learning_rate: .*finite"),
        (["learning.max_gradient_norm=NaN"], r"learning.max_gradient_norm: "),
        (["network.hidden=[]"], r"network.hidden: .*at least 1"),
        (["learning=3"], r"learning: .*got 3"),
        (["learning=3", "learning.loss=huber"], r"learning is a value and has no parts"),
        (["adam=1"], r"unknown key 'adam'"),
        (["learning.uniform=1"], r"unknown key 'learning.uniform'"),
        (["=3"], r"expected key=value, got '=3'"),
        (["seed=2147483648"], r"seed: .*less than 2147483648"),
    ],
    ids=str,
)
def test_a_bad_setting_is_refused_with_its_reason(settings: list[str], error: str) -> None:
    assert re.search(error, "\n".join(refusal("dqn", "deep_sea/10", settings=settings)))


def test_noise_of_whole_episodes_is_refused_where_several_environments_share_it() -> None:
    settings = ["exploration.redraw=episode", "num_envs=3"]
    (error,) = refusal("noisynet-dqn", "deep_sea/10", settings=settings)
    assert error.startswith("exploration.redraw=episode expects num_envs=1, got 3: ")
    assert error.endswith("set num_envs=1, or exploration.redraw=action or update")
    for allowed in ("action", "update"):
        settings = [f"exploration.redraw={allowed}", "num_envs=3"]
        assert build_config("noisynet-dqn", "deep_sea/10", settings=settings).num_envs == 3


def test_the_smallest_start_of_learning_is_allowed() -> None:
    settings = ["num_envs=8", "learning.n_step=4", "learning.starts_steps=32"]
    assert build_config("dqn", "deep_sea/10", settings=settings).learning.starts_steps == 32


def test_a_wrong_agent_is_not_blamed_for_the_settings_of_the_one_that_was_meant() -> None:
    (error,) = refusal("noisynet-dqnn", "atari/pong", settings=["exploration.sigma0=0.4"])
    assert error.startswith("unknown agent")


def test_stored_configurations_are_checked_like_any_other() -> None:
    stored = build_config("dqn", "deep_sea/10").model_dump()
    with pytest.raises(ConfigError, match="unknown key 'sed'; did you mean 'seed'"):
        load_config(stored | {"sed": 1})


# --- counts --------------------------------------------------------------------------------------


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
def test_counts_are_read_exactly(text: str, expected: int) -> None:
    assert parse_count(text) == expected


@pytest.mark.parametrize(
    "text", ["", "0", "-1", "1.5", "0.0001k", "k", "ten", "1e-3", "1 000", "_", "1e999", "0x10"]
)
def test_what_is_no_positive_whole_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a positive whole number"):
        parse_count(text)


# --- imports -------------------------------------------------------------------------------------


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


def test_noise_of_whole_episodes_that_nobody_acts_with_goes_with_any_number() -> None:
    settings = ["exploration.redraw=episode", "exploration.used_in=learning", "num_envs=3"]
    assert build_config("noisynet-dqn", "deep_sea/5", settings=settings).num_envs == 3


@pytest.mark.parametrize(
    ("agent", "setting"),
    [
        ("dqn", "network.dueling=true"),
        ("noisynet-dueling", "network.dueling=false"),
        ("dqn", "agent=dueling"),
    ],
)
def test_an_agent_has_the_head_of_its_name(agent: str, setting: str) -> None:
    with pytest.raises(ConfigError, match=r"expects network\.dueling="):
        build_config(agent, "deep_sea/5", settings=[setting])


def test_a_part_given_whole_is_given_field_by_field() -> None:
    whole = build_config("dqn", "deep_sea/5", settings=['replay={"kind": "prioritised"}'])
    assert whole == build_config("dqn", "deep_sea/5", settings=["replay.kind=prioritised"])
    assert whole.replay.capacity_steps == 50_000
