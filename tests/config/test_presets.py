"""The settings of agents and presets: those of the papers, and the choices left open."""

from __future__ import annotations

from typing import Any

import pytest

from noisynet.config import (
    ACTOR_CRITIC_AGENTS,
    AGENT_SPECS,
    AGENTS,
    PRESETS,
    VALUE_AGENTS,
    ActorCriticConfig,
    build_config,
    has_large_convolutions,
)
from noisynet.config.build import setting_sources
from noisynet.config.presets import AGENT_SETTINGS, PRESETS_OF_FAMILY
from noisynet.config.sections import EntropyBonus, NoisyRollouts
from noisynet.envs import FAMILIES

from .settings import ENVIRONMENTS, refusal, value_of

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

C51 = DQN | {
    "network.atoms": 51,
    "network.v_min": -10.0,
    "network.v_max": 10.0,
    "optimiser.kind": "adam",
    "optimiser.learning_rate": 2.5e-4,
    "optimiser.epsilon": 0.01 / 32,
}
del C51["optimiser.decay"]

RAINBOW = C51 | {
    "network.dueling": True,
    "learning.double_q": True,
    "learning.n_step": 3,
    "learning.starts_steps": 20_000,  # 80k frames
    "learning.sync_target_steps": 8_000,  # 32k frames
    "learning.max_gradient_norm": 10.0,
    "optimiser.learning_rate": 6.25e-5,
    "optimiser.epsilon": 1.5e-4,
    "replay.kind": "prioritised",
    "replay.alpha": 0.5,
    "replay.beta_initial": 0.4,
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
    "exploration.distribution": "gaussian",
    "exploration.f": "signed_sqrt",
    "exploration.redraw": "action",
    "exploration.warm_up": "noisy",
    "exploration.used_in": "acting and learning",
    "exploration.learn_sigma": True,
    "exploration.evaluation": "on",
}

PAPERS: dict[str, dict[str, Any]] = {
    "dqn": DQN | EPSILON | {"exploration.final": 0.1, "exploration.evaluation": 0.05},
    "dueling": DUELING | EPSILON | {"exploration.final": 0.01, "exploration.evaluation": 0.001},
    "noisynet-dqn": DQN | NOISY,
    "noisynet-dueling": DUELING | NOISY,
    "c51": C51
    | EPSILON
    | {
        "exploration.anneal_steps": 250_000,  # 1M frames
        "exploration.final": 0.01,
        "exploration.evaluation": 0.001,
    },
    "noisynet-c51": C51 | NOISY,
    "rainbow": RAINBOW | NOISY,
    "rainbow-without-noise": RAINBOW
    | EPSILON
    | {
        "exploration.anneal_steps": 62_500,  # 250k frames
        "exploration.final": 0.01,
        "exploration.evaluation": 0.001,
    },
}


@pytest.mark.parametrize("agent", VALUE_AGENTS)
def test_on_atari_an_agent_has_the_settings_of_its_paper(agent: str) -> None:
    config = build_config(agent, "atari/pong")
    expected = PAPERS[agent]
    assert {key: value_of(config, key) for key in expected} == expected


@pytest.mark.parametrize("name", ENVIRONMENTS.values())
@pytest.mark.parametrize(
    ("baseline", "noisy"),
    [
        ("dqn", "noisynet-dqn"),
        ("dueling", "noisynet-dueling"),
        ("c51", "noisynet-c51"),
        ("rainbow-without-noise", "rainbow"),
    ],
)
def test_noisy_agents_differ_from_their_baselines_in_exploration_alone(
    baseline: str, noisy: str, name: str
) -> None:
    plain, other = (build_config(agent, name).model_dump() for agent in (baseline, noisy))
    assert {key for key in plain if plain[key] != other[key]} == {"agent", "exploration"}


# "Rainbow without X" (Hessel et al. 2018, figure 3): the sections and fields that differ.
ABLATIONS: dict[str, dict[str, Any]] = {
    "learning.double_q=false": {"learning.double_q": False},
    "network.dueling=false": {"network.dueling": False},
    "learning.n_step=1": {"learning.n_step": 1},
    "replay.kind=uniform": {"replay.kind": "uniform"},
    "network.atoms=null": {"network.atoms": None},
}


@pytest.mark.parametrize("name", ENVIRONMENTS.values())
@pytest.mark.parametrize("setting", ABLATIONS)
@pytest.mark.parametrize("agent", ["rainbow", "rainbow-without-noise"])
def test_every_ablation_of_rainbow_is_one_setting(agent: str, setting: str, name: str) -> None:
    whole, without = build_config(agent, name), build_config(agent, name, settings=[setting])
    ((key, value),) = ABLATIONS[setting].items()
    assert value_of(whole, key) != value
    assert value_of(without, key) == value
    section, _, field = key.partition(".")
    left = {name: getattr(whole, name) for name in type(whole).model_fields if name != section}
    assert left == {name: getattr(without, name) for name in left}
    if section != "replay":  # the fields of a replay are those of its kind
        fields = getattr(whole, section).model_dump()
        assert getattr(without, section).model_dump() == fields | {field: value}
    else:
        capacity = [config.replay.capacity_steps for config in (whole, without)]  # type: ignore[union-attr]
        assert capacity[0] == capacity[1]


# Each choice that the papers leave open or contradict each other on: its field, its default and
# another value.
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
    "the distribution of ε": (
        "noisynet-dqn",
        "exploration.distribution",
        "gaussian",
        "uniform",
        "uniform",
    ),
    "the distribution of ε in A3C": (
        "noisynet-a3c",
        "exploration.distribution",
        "gaussian",
        "rademacher",
        "rademacher",
    ),
    "f of factorised noise": ("rainbow", "exploration.f", "signed_sqrt", "identity", "identity"),
    "f of factorised noise in A3C": (
        "noisynet-a3c-factorised",
        "exploration.f",
        "signed_sqrt",
        "identity",
        "identity",
    ),
    "control: where A3C uses noise": (
        "noisynet-a3c",
        "exploration.used_in",
        "acting and learning",
        "learning",
        "learning",
    ),
    "control: ε = 0": ("dqn", "exploration.final", 0.1, "0", 0.0),
    "replay may be prioritised": ("dqn", "replay.kind", "uniform", "prioritised", "prioritised"),
    "n-step returns": ("dqn", "learning.n_step", 1, "3", 3),
    "how it is computed": ("dqn", "compute", "auto", "torch", "torch"),
    "the number of threads": ("a3c", "threads", None, "2", 2),
    "the learning rate": ("a3c", "optimiser.learning_rate", 7e-4, "1e-3", 1e-3),
    "the rate falls over the budget": ("a3c", "optimiser.anneal", True, "false", False),
    "the weight of the value loss": ("a3c", "learning.value_weight", 0.5, "1", 1.0),
    "the longest gradient": ("a3c", "learning.max_gradient_norm", 40.0, "null", None),
    "the entropy bonus": ("a3c", "exploration.beta", 0.01, "0", 0.0),
    "the length of roll-outs": ("a3c", "learning.rollout_steps", 5, "20", 20),
    "the convolutions": ("a3c", "network.torso", "auto", "a3c", "a3c"),
    "which layers are noisy": ("noisynet-a3c", "exploration.layers", "all", "heads", "heads"),
    "control: σ of A3C frozen": ("noisynet-a3c", "exploration.learn_sigma", True, "false", False),
    "evaluation noise of A3C is on": ("noisynet-a3c", "exploration.evaluation", "on", "off", "off"),
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


@pytest.mark.parametrize(
    ("family", "preset"),
    [
        ("atari", "paper"),
        ("minatar", "minatar"),
        ("deep_sea", "classic"),
        ("gym", "classic"),
        ("object", "classic"),
        ("function", "classic"),
    ],
)
def test_every_family_of_environments_has_a_preset(family: str, preset: str) -> None:
    assert FAMILIES[family].preset == preset
    name = "gym/MountainCar-v0" if family == "gym" else ENVIRONMENTS[family]
    assert build_config("dqn", name) == build_config("dqn", name, preset=preset)


@pytest.mark.parametrize(
    ("name", "single"),
    [
        ("gym/CartPole-v1", "cartpole"),
        ("gym/CartPole-v0", "cartpole"),
        ("gym/CartPole", "cartpole"),
        ("gym/Acrobot-v1", "acrobot"),
    ],
)
def test_agents_with_q_values_have_presets_for_single_environments(name: str, single: str) -> None:
    for agent, spec in AGENT_SPECS.items():
        own = spec.family == "value" and "network.atoms" not in AGENT_SETTINGS[agent]
        preset = single if own else "classic"
        assert build_config(agent, name) == build_config(agent, name, preset=preset)
        assert (f"preset {preset}" in setting_sources(agent, name).values()) is True


def test_every_agent_and_every_preset_has_settings() -> None:
    assert set(AGENT_SETTINGS) == set(AGENTS)
    assert set(PRESETS_OF_FAMILY["value"]) == set(PRESETS)
    assert set(PRESETS_OF_FAMILY["actor-critic"]) < set(PRESETS)
    assert {family.preset for family in FAMILIES.values()} <= set(PRESETS_OF_FAMILY["actor-critic"])


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("agent", VALUE_AGENTS)
def test_every_preset_fits_every_value_agent(agent: str, preset: str) -> None:
    config = build_config(agent, "atari/pong", preset=preset)
    kind = "noisy-weights" if AGENT_SPECS[agent].noisy else "epsilon-greedy"
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
                "optimiser.epsilon": 1e-4,
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
def test_presets_have_the_settings_of_their_sources(preset: str, expected: dict[str, Any]) -> None:
    config = build_config("dqn", "minatar/breakout", preset=preset)
    assert {key: value_of(config, key) for key in expected} == expected


# Distributional agents in our presets: settings of their papers, except for these.
DISTRIBUTIONAL_PRESETS: dict[str, dict[str, Any]] = {
    "minatar": {
        "network.v_min": -25.0,
        "network.v_max": 25.0,
        "network.hidden": (128,),
        "learning.starts_steps": 5_000,
        "learning.sync_target_steps": 1_000,
        "learning.update_period_steps": 1,
        "learning.clip_rewards": False,
        "optimiser.learning_rate": 2.5e-4,
        "optimiser.epsilon": 0.01 / 32,
        "replay.capacity_steps": 100_000,
    },
    "classic": {
        "network.v_min": -100.0,
        "network.v_max": 100.0,
        "network.hidden": (64, 64),
        "learning.starts_steps": 200,
        "learning.sync_target_steps": 100,
        "learning.update_period_steps": 1,
        "learning.clip_rewards": False,
        "optimiser.learning_rate": 1e-3,
        "replay.capacity_steps": 50_000,
    },
}


@pytest.mark.parametrize("preset", DISTRIBUTIONAL_PRESETS)
@pytest.mark.parametrize("agent", ["c51", "noisynet-c51", "rainbow", "rainbow-without-noise"])
def test_distributional_agents_in_the_presets_of_small_problems(agent: str, preset: str) -> None:
    config = build_config(agent, "atari/pong", preset=preset)
    kept = (
        *("network.atoms", "network.dueling", "learning.double_q", "learning.n_step"),
        *("learning.batch_size", "learning.max_gradient_norm", "optimiser.kind", "replay.kind"),
    )
    expected = {key: PAPERS[agent][key] for key in kept} | DISTRIBUTIONAL_PRESETS[preset]
    assert {key: value_of(config, key) for key in expected} == expected


@pytest.mark.parametrize("preset", ["minatar", "classic"])
def test_the_range_of_returns_is_not_set_for_agents_without_distributions(preset: str) -> None:
    network = build_config("noisynet-dueling", "atari/pong", preset=preset).network
    assert (network.v_min, network.v_max) == (-10.0, 10.0)


@pytest.mark.parametrize("agent", AGENTS)
def test_pixels_are_observed_as_on_atari(agent: str) -> None:
    config = build_config(agent, "gym/CarRacing-v3", preset="pixels")
    assert config.environment_options == {"resize": 84, "greyscale": True, "frame_stack": 4}
    assert config.max_episode_frames is None
    assert config.learning.clip_rewards
    assert has_large_convolutions(config)
    assert not has_large_convolutions(build_config(agent, "gym/CarRacing-v3"))


def test_one_option_of_a_preset_can_be_changed() -> None:
    for setting in ("environment_options.frame_stack=2", 'environment_options={"frame_stack": 2}'):
        config = build_config("dqn", "gym/CarRacing-v3", preset="pixels", settings=[setting])
        assert config.environment_options == {"resize": 84, "greyscale": True, "frame_stack": 2}


def test_gymnasium_environments_keep_their_own_time_limit() -> None:
    assert build_config("dqn", "gym/CartPole-v1").max_episode_frames is None
    assert build_config("dqn", "minatar/breakout").max_episode_frames == 108_000


NOISY_ACTOR_CRITICS = ("noisynet-a3c", "noisynet-a3c-factorised")
A3C = {
    "frames": 320_000_000,
    "workers": 16,
    "envs_per_worker": 1,
    "recurrent": False,
    "noisy_lstm": False,
    "network.torso": "auto",
    "network.hidden": (512,),
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
def test_on_atari_an_actor_critic_has_the_settings_of_its_paper(agent: str) -> None:
    config = build_config(agent, "atari/pong")
    assert isinstance(config, ActorCriticConfig)
    assert {key: value_of(config, key) for key in A3C} == A3C
    assert config.exploration == EXPLORATION[agent]


@pytest.mark.parametrize("name", ENVIRONMENTS.values())
def test_noisy_actor_critics_differ_from_a3c_in_exploration_alone(name: str) -> None:
    plain = build_config("a3c", name).model_dump()
    for agent in NOISY_ACTOR_CRITICS:
        noisy = build_config(agent, name).model_dump()
        assert {key for key in plain if plain[key] != noisy[key]} == {"agent", "exploration"}


@pytest.mark.parametrize("preset", ["paper", "minatar", "classic", "pixels", "pong-fast"])
@pytest.mark.parametrize("agent", ACTOR_CRITIC_AGENTS)
def test_a_preset_leaves_exploration_to_the_agent(agent: str, preset: str) -> None:
    config = build_config(agent, "atari/pong", preset=preset)
    assert config.exploration.kind == EXPLORATION[agent].kind


def test_a_preset_without_settings_for_the_agent_is_refused() -> None:
    assert refusal("a3c", "atari/pong", preset="minatar-fast", settings=["worker=2"]) == [
        "preset 'minatar-fast' has no settings for a3c, expected one of paper, minatar, pong-fast, "
        "pixels, classic",
        "unknown key 'worker'; did you mean 'workers'?",
    ]
