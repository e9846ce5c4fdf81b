"""Sections of a configuration: defaults that depend on others, and what a section cannot hold."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from pydantic import ValidationError

from noisynet.config import EpsilonGreedy, build_config
from noisynet.config.sections import Convolution, Network, NoisyRollouts, NoisyWeights

from .settings import refusal, value_of


def test_independent_noise_has_its_own_sigma0() -> None:
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


@pytest.mark.parametrize(
    ("settings", "evaluation"),
    [
        ({}, "on"),
        ({"used_in": "acting"}, "on"),
        ({"used_in": "learning"}, "off"),
        ({"used_in": "learning", "evaluation": "on"}, "on"),
    ],
    ids=str,
)
def test_the_score_is_with_noise_if_the_agent_acts_with_noise(
    settings: dict[str, Any], evaluation: str
) -> None:
    assert NoisyWeights(**settings).evaluation == evaluation
    assert NoisyRollouts(**settings).evaluation == evaluation


@pytest.mark.parametrize(
    ("settings", "hidden"),
    [
        ([], (512,)),
        (["network.torso=nature"], (512,)),
        (["network.torso=a3c"], (256,)),
        (["network.torso=[[16, 8, 4, 0]]"], (512,)),
        (["network.torso=nature", "network.hidden=[256]"], (256,)),
        (["network.torso=a3c", "network.hidden=[512, 64]"], (512, 64)),
    ],
    ids=str,
)
def test_the_hidden_layer_of_an_actor_critic_follows_its_torso_unless_given(
    settings: list[str], hidden: tuple[int, ...]
) -> None:
    assert build_config("a3c", "atari/pong", settings=settings).network.hidden == hidden


@pytest.mark.parametrize(
    ("name", "hidden"), [("minatar/breakout", (128,)), ("deep_sea/10", (64, 64))]
)
def test_small_frames_keep_the_hidden_layers_of_their_preset(
    name: str, hidden: tuple[int, ...]
) -> None:
    for torso in ("auto", "a3c"):
        config = build_config("a3c", name, settings=[f"network.torso={torso}"])
        assert config.network.hidden == hidden


def test_atoms_are_evenly_spaced_from_the_lowest_to_the_highest() -> None:
    assert Network(atoms=5, v_min=-1, v_max=3).support == (-1, 0, 1, 2, 3)
    assert Network().support == ()
    c51 = Network(atoms=51).support
    assert len(c51) == 51
    assert c51[0] == -10
    assert c51[-1] == pytest.approx(10)
    assert c51[25] == pytest.approx(0)


@pytest.mark.parametrize("name", ["initial", "final", "anneal_steps"])
@pytest.mark.parametrize("agent", ["noisynet-dqn", "noisynet-dueling", "noisynet-c51", "rainbow"])
def test_a_noisy_agent_has_no_epsilon(agent: str, name: str) -> None:
    assert not hasattr(build_config(agent, "atari/pong").exploration, name)
    (error,) = refusal(agent, "atari/pong", settings=[f"exploration.{name}=1"])
    assert error.startswith(f"unknown key 'exploration.{name}'")
    with pytest.raises(ValidationError):
        NoisyWeights.model_validate({name: 1})


@pytest.mark.parametrize(
    "name", ["sigma0", "noise", "distribution", "f", "redraw", "warm_up", "learn_sigma"]
)
def test_an_epsilon_greedy_agent_has_no_noise(name: str) -> None:
    (error,) = refusal("dqn", "atari/pong", settings=[f"exploration.{name}=1"])
    assert error.startswith(f"unknown key 'exploration.{name}'")
    with pytest.raises(ValidationError):
        EpsilonGreedy.model_validate({name: 1})


@pytest.mark.parametrize("agent", ["noisynet-a3c", "noisynet-a3c-factorised"])
def test_a_noisy_agent_has_no_entropy_bonus(agent: str) -> None:
    assert not hasattr(build_config(agent, "atari/pong").exploration, "beta")
    (error,) = refusal(agent, "atari/pong", settings=["exploration.beta=0.01"])
    assert error.startswith(
        "unknown key 'exploration.beta', which belongs to exploration.kind=entropy-bonus"
    )
    (error,) = refusal(agent, "atari/pong", settings=["exploration.kind=entropy-bonus"])
    assert error == f"{agent} does not explore by entropy-bonus; choose the agent a3c instead"
    with pytest.raises(ValidationError):
        NoisyRollouts.model_validate({"beta": 0.01})


@pytest.mark.parametrize(
    "name",
    ["noise", "sigma0", "distribution", "f", "layers", "used_in", "learn_sigma", "evaluation"],
)
def test_a3c_has_no_noise(name: str) -> None:
    (error,) = refusal("a3c", "atari/pong", settings=[f"exploration.{name}=1"])
    assert error.startswith(
        f"unknown key 'exploration.{name}', which belongs to exploration.kind=noisy-weights"
    )


def test_a_configuration_and_its_sections_are_frozen() -> None:
    config = build_config("noisynet-dqn", "atari/pong")
    fields: list[tuple[Any, str]] = [
        (config, "seed"),
        (config.exploration, "sigma0"),
        (config.learning, "discount"),
        (config.optimiser, "learning_rate"),
        (config.replay, "capacity_steps"),
        (config.network, "hidden"),
        (config.evaluation, "frames"),
    ]
    for section, name in fields:
        with pytest.raises(ValidationError, match="frozen"):
            setattr(section, name, getattr(section, name))


def test_an_actor_critic_configuration_is_frozen() -> None:
    config = build_config("noisynet-a3c", "atari/pong")
    fields: list[tuple[Any, str]] = [
        (config, "workers"),
        (config.exploration, "sigma0"),
        (config.learning, "rollout_steps"),
        (config.optimiser, "anneal"),
        (config.network, "hidden"),
    ]
    for section, name in fields:
        with pytest.raises(ValidationError, match="frozen"):
            setattr(section, name, getattr(section, name))


# --- torsos --------------------------------------------------------------------------------------

TORSO = "network.torso=[[16,8,4,0],[32,4,2,1]]"


@pytest.mark.parametrize("agent", ["dqn", "a3c"])
def test_a_torso_of_convolutions_is_a_tuple_of_tuples(agent: str) -> None:
    torso = build_config(agent, "atari/pong", settings=[TORSO]).network.torso
    assert torso == ((16, 8, 4, 0), (32, 4, 2, 1))
    assert isinstance(torso, tuple)
    assert torso[1] == Convolution(filters=32, kernel=4, stride=2, padding=1)
    assert hash(torso)


def test_a_torso_comes_back_from_json() -> None:
    network = build_config("dqn", "atari/pong", settings=[TORSO]).network
    stored = json.loads(json.dumps(network.model_dump(mode="json")))
    assert stored["torso"] == [[16, 8, 4, 0], [32, 4, 2, 1]]
    assert Network.model_validate(stored) == network
    assert hash(Network.model_validate(stored)) == hash(network)


@pytest.mark.parametrize("name", ["auto", "nature", "a3c", "minatar", "flat"])
def test_names_of_torsos_stay_names(name: str) -> None:
    config = build_config("dqn", "atari/pong", settings=[f"network.torso={name}"])
    assert config.network.torso == name


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("natur", r"expected auto, .* or a list of .*, got 'natur'\. Did you mean 'nature'\?$"),
        ("zzz", r"expected auto, nature, a3c, minatar, flat or a list of .*, got 'zzz'\.$"),
        ("3", r"or a list of convolutions \[filters, kernel, stride, padding\], got 3$"),
        ("[]", r"or a list of convolutions .*, got \[\]$"),
        ("[16, 8, 4, 0]", r"expected a convolution as \[filters, .*\], got 16$"),
        ("[[16, 8, 4]]", r"expected a convolution as .*padding\], got \[16, 8, 4\]$"),
        ("[[0, 8, 4, 0]]", r"the filters of a convolution .* at least 1, got 0 in \[0, 8, 4, 0\]$"),
        ("[[16, 8, 0, 0]]", r"the stride of .* at least 1, got 0 in "),
        ("[[16, 8, 4, -1]]", r"the padding of .* at least 0, got -1 in "),
        ("[[16, 8.5, 4, 0]]", r"the kernel of .* an integer of at least 1, got 8.5 in "),
        ("[[16, true, 4, 0]]", r"the kernel of .* an integer of at least 1, got True in "),
    ],
)
def test_any_other_torso_is_refused_with_what_was_expected(value: str, message: str) -> None:
    (error,) = refusal("dqn", "atari/pong", settings=[f"network.torso={value}"])
    assert error.startswith("network.torso: ")
    assert re.search(message, error), error
