"""Configurations of A3C: the papers' settings, and what cannot be written down."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from noisynet.config import (
    ACTOR_CRITIC_AGENTS,
    ActorCriticConfig,
    ConfigError,
    EntropyBonus,
    NoisyRollouts,
    build_config,
    load_config,
)

NOISY = ("noisynet-a3c", "noisynet-a3c-factorised")
FAMILIES = ("atari/pong", "minatar/breakout", "deep_sea/10", "gym/CartPole-v1")


def value_of(config: Any, key: str) -> Any:
    for part in key.split("."):
        config = getattr(config, part)
    return config


def refusal(*arguments: Any, **keywords: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        build_config(*arguments, **keywords)
    return str(caught.value).splitlines()


# --- the papers' settings ------------------------------------------------------------------------

A3C = {
    "frames": 320_000_000,
    "workers": 16,
    "envs_per_worker": 1,
    "recurrent": False,
    "noisy_lstm": False,
    "network.torso": "auto",
    "network.hidden": (256,),
    "network.cells": 256,
    "learning.rollout_steps": 5,
    "learning.discount": 0.99,
    "learning.value_weight": 0.5,
    "learning.clip_rewards": True,
    "learning.max_gradient_norm": 40.0,
    "optimiser.kind": "shared-rmsprop",
    "optimiser.learning_rate": 7e-4,
    "optimiser.decay": 0.99,
    "optimiser.epsilon": 0.1,
    "optimiser.anneal": True,
    "max_episode_frames": 108_000,
    "evaluation.period_frames": 1_000_000,
    "evaluation.frames": 500_000,
}
EXPLORATION: dict[str, EntropyBonus | NoisyRollouts] = {
    "a3c": EntropyBonus(beta=0.01),
    "noisynet-a3c": NoisyRollouts(noise="independent", sigma0=0.017, layers="all"),
    "noisynet-a3c-factorised": NoisyRollouts(noise="factorised", sigma0=0.5, layers="all"),
}


@pytest.mark.parametrize("agent", ACTOR_CRITIC_AGENTS)
def test_on_atari_an_agent_has_the_settings_of_its_paper(agent: str) -> None:
    config = build_config(agent, "atari/pong")
    assert isinstance(config, ActorCriticConfig)
    assert {key: value_of(config, key) for key in A3C} == A3C
    assert config.exploration == EXPLORATION[agent]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_agents_differ_in_exploration_alone(family: str) -> None:
    plain = build_config("a3c", family).model_dump()
    for agent in NOISY:
        noisy = build_config(agent, family).model_dump()
        assert {key for key in plain if plain[key] != noisy[key]} == {"agent", "exploration"}


# Each decision marked D in section 5 of FIDELITY.md or left open there, with the field that holds
# it, its default and another choice.
DECISIONS: dict[str, tuple[str, str, Any, str, Any]] = {
    "the learning rate": ("a3c", "optimiser.learning_rate", 7e-4, "1e-3", 1e-3),
    "the rate falls over the budget": ("a3c", "optimiser.anneal", True, "false", False),
    "the weight of the value loss": ("a3c", "learning.value_weight", 0.5, "1", 1.0),
    "the longest gradient": ("a3c", "learning.max_gradient_norm", 40.0, "null", None),
    "the entropy bonus": ("a3c", "exploration.beta", 0.01, "0", 0.0),
    "the length of roll-outs": ("a3c", "learning.rollout_steps", 5, "20", 20),
    "the convolutions": ("a3c", "network.torso", "auto", "nature", "nature"),
    "which layers are noisy": ("noisynet-a3c", "exploration.layers", "all", "heads", "heads"),
    "control: σ frozen": ("noisynet-a3c", "exploration.learn_sigma", True, "false", False),
    "evaluation noise is on": ("noisynet-a3c", "exploration.evaluation", "on", "off", "off"),
    "feed-forward": ("noisynet-a3c", "recurrent", False, "true", True),
    "environments of a worker": ("a3c", "envs_per_worker", 1, "8", 8),
    "workers": ("a3c", "workers", 16, "2", 2),
}


@pytest.mark.parametrize("decision", DECISIONS)
def test_every_decision_is_a_field_with_a_default_and_a_choice(decision: str) -> None:
    agent, key, default, text, other = DECISIONS[decision]
    assert value_of(build_config(agent, "atari/pong"), key) == default
    changed = build_config(agent, "atari/pong", settings=[f"{key}={text}"])
    assert value_of(changed, key) == other


def test_after_natures_convolutions_the_hidden_layer_is_natures_unless_given() -> None:
    settings = ["network.torso=nature"]
    assert build_config("a3c", "atari/pong", settings=settings).network.hidden == (512,)
    settings.append("network.hidden=[256]")
    assert build_config("a3c", "atari/pong", settings=settings).network.hidden == (256,)


@pytest.mark.parametrize("preset", ["paper", "minatar", "classic"])
@pytest.mark.parametrize("agent", ACTOR_CRITIC_AGENTS)
def test_a_preset_leaves_exploration_to_the_agent(agent: str, preset: str) -> None:
    config = build_config(agent, "atari/pong", preset=preset)
    assert config.exploration.kind == EXPLORATION[agent].kind


def test_a_preset_without_settings_for_the_agent_is_refused() -> None:
    assert refusal("a3c", "atari/pong", preset="pong-fast", settings=["worker=2"]) == [
        "preset 'pong-fast' has no settings for a3c, expected one of paper, minatar, classic",
        "unknown key 'worker'; did you mean 'workers'?",
    ]


@pytest.mark.parametrize("agent", ACTOR_CRITIC_AGENTS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_stored_configuration_comes_back_the_same(agent: str, family: str) -> None:
    config = build_config(agent, family, seed=3, settings=["recurrent=true", "workers=3"])
    stored = json.loads(json.dumps(config.model_dump(mode="json")))
    assert load_config(stored) == config


def test_a_configuration_is_frozen() -> None:
    config = build_config("noisynet-a3c", "atari/pong")
    places: list[tuple[Any, str]] = [
        (config, "workers"),
        (config.exploration, "sigma0"),
        (config.learning, "rollout_steps"),
        (config.optimiser, "anneal"),
        (config.network, "hidden"),
    ]
    for part, name in places:
        with pytest.raises(ValidationError, match="frozen"):
            setattr(part, name, getattr(part, name))


# --- what cannot be written down -----------------------------------------------------------------


@pytest.mark.parametrize("agent", NOISY)
def test_a_noisy_agent_has_no_entropy_bonus(agent: str) -> None:
    assert not hasattr(build_config(agent, "atari/pong").exploration, "beta")
    (error,) = refusal(agent, "atari/pong", settings=["exploration.beta=0.01"])
    assert error.startswith(
        "unknown key 'exploration.beta', which is of exploration.kind=entropy-bonus only"
    )
    (error,) = refusal(agent, "atari/pong", settings=["exploration.kind=entropy-bonus"])
    assert error == f"{agent} does not explore by entropy-bonus"
    with pytest.raises(ValidationError):
        NoisyRollouts.model_validate({"beta": 0.01})


@pytest.mark.parametrize("name", ["noise", "sigma0", "layers", "learn_sigma", "evaluation"])
def test_a_plain_agent_has_no_noise(name: str) -> None:
    (error,) = refusal("a3c", "atari/pong", settings=[f"exploration.{name}=1"])
    assert error.startswith(
        f"unknown key 'exploration.{name}', which is of exploration.kind=noisy-weights only"
    )


@pytest.mark.parametrize(
    ("agent", "noise", "other"),
    [
        ("noisynet-a3c", "factorised", "noisynet-a3c-factorised"),
        ("noisynet-a3c-factorised", "independent", "noisynet-a3c"),
    ],
)
def test_an_agent_has_the_noise_of_its_name(agent: str, noise: str, other: str) -> None:
    (error,) = refusal(agent, "atari/pong", settings=[f"exploration.noise={noise}"])
    assert error.startswith(f"{agent} expects exploration.noise=")
    assert error.endswith(f"got {noise}; choose the agent {other} instead")


@pytest.mark.parametrize(
    ("agent", "settings", "missing"),
    [
        ("noisynet-a3c", [], "recurrent=true"),
        ("a3c", ["recurrent=true"], "an agent noisynet-…"),
        ("a3c", [], "recurrent=true and an agent noisynet-…"),
    ],
)
def test_a_noisy_lstm_needs_an_lstm_and_noise(
    agent: str, settings: list[str], missing: str
) -> None:
    (error,) = refusal(agent, "atari/pong", settings=[*settings, "noisy_lstm=true"])
    assert error.startswith(f"noisy_lstm=true expects {missing}: ")
    both = build_config("noisynet-a3c", "atari/pong", settings=["recurrent=true"])
    assert both.recurrent
    assert not both.noisy_lstm


OF_VALUE_AGENTS = {
    "num_envs": "; did you mean 'envs_per_worker'?",
    "learning.n_step": "; did you mean 'learning.rollout_steps'?",
    "learning.batch_size": "",
    "learning.double_q": "",
    "network.dueling": "",
    "exploration.redraw": "",
    "exploration.used_in": "",
}
OF_A3C = {
    "envs_per_worker": "; did you mean 'num_envs'?",
    "learning.rollout_steps": "; did you mean 'learning.n_step'?",
    "workers": "",
    "recurrent": "",
    "noisy_lstm": "",
    "exploration.layers": "",
    "optimiser.anneal": "",
    "learning.value_weight": "",
}


def test_the_keys_of_value_agents_are_refused_together() -> None:
    errors = refusal(
        "noisynet-a3c",
        "atari/pong",
        settings=[*(f"{key}=1" for key in OF_VALUE_AGENTS), "replay.kind=uniform"],
    )
    expected = [
        f"unknown key {key!r}, which is of value agents only{hint}"
        for key, hint in (OF_VALUE_AGENTS | {"replay": ""}).items()
    ]
    assert sorted(errors) == sorted(expected)


def test_value_agents_refuse_the_keys_of_a3c_together() -> None:
    errors = refusal("noisynet-dqn", "atari/pong", settings=[f"{key}=1" for key in OF_A3C])
    expected = [f"unknown key {k!r}, which is of A3C only{hint}" for k, hint in OF_A3C.items()]
    assert sorted(errors) == sorted(expected)


def test_an_agent_of_the_other_kind_does_not_fit_the_settings() -> None:
    (error,) = refusal("dqn", "atari/pong", settings=["agent=a3c"])
    assert error == (
        "agent: expected a value agent among these settings, got 'a3c', which is an actor-critic "
        "one"
    )


def test_errors_and_contradictions_are_told_at_once_with_the_nearest_names() -> None:
    assert refusal(
        "noisynet-a3c",
        "atari/pongg",
        settings=[
            "exploration.layer=heads",
            "exploration.noise=factorised",
            "optimiser.kind=adam",
            "learning.rollout_steps=0",
            "noisy_lstm=true",
        ],
    ) == [
        "atari has no game 'pongg'. Did you mean 'atari/pong'?",
        "unknown key 'exploration.layer'; did you mean 'exploration.layers'?",
        "learning.rollout_steps: Input should be greater than 0, got 0",
        "optimiser.kind: expected 'shared-rmsprop', got 'adam'",
        "noisynet-a3c expects exploration.noise=independent, got factorised; choose the agent "
        "noisynet-a3c-factorised instead",
        "noisy_lstm=true expects recurrent=true: noisynet-a3c has no LSTM to be noisy",
    ]


def test_a_name_near_an_actor_critic_agent_is_judged_as_that_agent() -> None:
    (error,) = refusal("noisynet-a2c", "atari/pong", settings=["exploration.layers=heads"])
    assert error.endswith("did you mean 'noisynet-a3c'?")
