"""Settings that are valid on their own but not together."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from noisynet.config import Config, build_config

from .settings import refusal

CONTRADICTORY = ["exploration.kind=noisy-weights", "replay.capacity_steps=8"]

CONTRADICTIONS = [
    "dqn does not explore by noisy-weights; choose the agent noisynet-dqn instead",
    "replay.capacity_steps (8) is below learning.batch_size (32)",
    "learning.starts_steps (200) is above replay.capacity_steps (8): the replay never holds that "
    "many",
]


def test_all_contradictions_are_listed() -> None:
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
def test_contradictions_are_listed_with_the_errors_of_single_fields(
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
def test_an_invalid_field_contradicts_nothing(
    agent: str, settings: list[str], left: list[int]
) -> None:
    errors = refusal(agent, "deep_sea/10", settings=settings)
    assert errors[1:] == [CONTRADICTIONS[number] for number in left]


@pytest.mark.parametrize(
    ("agent", "kind", "other"),
    [
        ("noisynet-dqn", "epsilon-greedy", "dqn"),
        ("dueling", "noisy-weights", "noisynet-dueling"),
        ("c51", "noisy-weights", "noisynet-c51"),
        ("rainbow", "epsilon-greedy", "rainbow-without-noise"),
        ("rainbow-without-noise", "noisy-weights", "rainbow"),
        ("noisynet-a3c-factorised", "entropy-bonus", "a3c"),
        ("a3c", "noisy-weights", "noisynet-a3c-factorised or noisynet-a3c"),
    ],
)
def test_the_kind_of_exploration_is_the_agents(agent: str, kind: str, other: str) -> None:
    errors = refusal(agent, "atari/pong", settings=[f"exploration.kind={kind}"])
    assert errors == [f"{agent} does not explore by {kind}; choose the agent {other} instead"]


@pytest.mark.parametrize(
    ("agent", "setting", "error"),
    [
        ("dqn", "network.dueling=true", "dqn expects network.dueling=false, got true; {dueling}"),
        (
            "noisynet-dueling",
            "network.dueling=false",
            "noisynet-dueling expects network.dueling=true, got false; {noisynet-dqn}",
        ),
        (
            "dqn",
            "agent=dueling",
            "dueling expects network.dueling=true, got false; {dqn}",
        ),
        (
            "c51",
            "network.dueling=true",
            "c51 expects network.dueling=false, got true; {rainbow-without-noise}",
        ),
        ("dqn", "network.atoms=51", "dqn expects network.atoms=null, got 51; {c51}"),
        (
            "noisynet-c51",
            "network.atoms=null",
            "noisynet-c51 expects a number of network.atoms, got null; {noisynet-dqn}",
        ),
        (
            "noisynet-dueling",
            "network.atoms=21",
            "noisynet-dueling expects network.atoms=null, got 21; {rainbow}",
        ),
    ],
)
def test_the_head_is_the_agents(agent: str, setting: str, error: str) -> None:
    expected = error.replace("{", "choose the agent ").replace("}", " instead")
    assert refusal(agent, "deep_sea/5", settings=[setting]) == [expected]


@pytest.mark.parametrize("v_min", [10.0, 12.5])
def test_an_empty_range_of_returns_is_refused(v_min: float) -> None:
    settings = [f"network.v_min={v_min}", "network.v_max=10"]
    (error,) = refusal("c51", "atari/pong", settings=settings)
    assert error == f"network.v_min ({v_min:g}) is not below network.v_max (10)"


def test_one_atom_is_no_distribution() -> None:
    (error,) = refusal("rainbow", "atari/pong", settings=["network.atoms=1"])
    assert error == "network.atoms: Input should be greater than or equal to 2, got 1"


def test_distributions_have_no_other_loss_than_the_cross_entropy() -> None:
    (error,) = refusal("rainbow", "atari/pong", settings=["learning.loss=squared"])
    assert error == (
        "learning.loss=squared is for Q-values, network.atoms=51 learns distributions by their "
        "cross-entropy; remove one of them"
    )
    settings = ["learning.loss=squared", "network.atoms=null"]
    config = build_config("rainbow", "atari/pong", settings=settings)
    assert config.learning.loss == "squared"


@pytest.mark.parametrize(
    ("agent", "noise", "other"),
    [
        ("noisynet-a3c", "factorised", "noisynet-a3c-factorised"),
        ("noisynet-a3c-factorised", "independent", "noisynet-a3c"),
    ],
)
def test_the_noise_of_an_actor_critic_is_the_agents(agent: str, noise: str, other: str) -> None:
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
    assert error == f"noisy_lstm=true expects {missing}, got {agent} without"
    both = build_config("noisynet-a3c", "atari/pong", settings=["recurrent=true"])
    assert both.recurrent
    assert not both.noisy_lstm


@pytest.mark.parametrize("agent", ["a3c", "noisynet-a3c", "noisynet-a3c-factorised"])
def test_actor_critics_do_not_compile(agent: str) -> None:
    assert refusal(agent, "atari/pong", settings=["compute=compile"]) == [
        f"compute=compile is for value agents; {agent} expects compute=auto or compute=torch"
    ]
    for allowed in ("auto", "torch"):
        config = build_config(agent, "atari/pong", settings=[f"compute={allowed}"])
        assert config.compute == allowed


def test_noise_per_episode_is_refused_with_several_environments() -> None:
    settings = ["exploration.redraw=episode", "num_envs=3"]
    (error,) = refusal("noisynet-dqn", "deep_sea/10", settings=settings)
    assert error.startswith("exploration.redraw=episode expects num_envs=1, got 3: ")
    assert error.endswith("set num_envs=1, or exploration.redraw=action or update")
    for allowed in ("action", "update"):
        settings = [f"exploration.redraw={allowed}", "num_envs=3"]
        assert build_config("noisynet-dqn", "deep_sea/10", settings=settings).num_envs == 3


def test_noise_per_episode_that_is_not_acted_with_is_allowed() -> None:
    settings = ["exploration.redraw=episode", "exploration.used_in=learning", "num_envs=3"]
    assert build_config("noisynet-dqn", "deep_sea/5", settings=settings).num_envs == 3


def test_the_smallest_start_of_learning_is_allowed() -> None:
    settings = ["num_envs=8", "learning.n_step=4", "learning.starts_steps=32"]
    assert build_config("dqn", "deep_sea/10", settings=settings).learning.starts_steps == 32


@pytest.mark.parametrize(
    ("agent", "settings"),
    [
        ("noisynet-dqn", ["exploration.noise=independent"]),
        ("rainbow", ["exploration.noise=independent"]),
        ("noisynet-a3c", []),
    ],
    ids=str,
)
def test_f_shapes_factorised_noise_alone(agent: str, settings: list[str]) -> None:
    (error,) = refusal(agent, "atari/pong", settings=[*settings, "exploration.f=identity"])
    assert error == (
        "exploration.f=identity shapes factorised noise, exploration.noise=independent has no f; "
        "remove one of them"
    )
    uniform = [*settings, "exploration.distribution=uniform"]
    exploration = build_config(agent, "atari/pong", settings=uniform).exploration
    assert exploration.distribution == "uniform"  # type: ignore[union-attr]


def test_unknown_distributions_are_refused_with_the_known_ones() -> None:
    settings = ["exploration.distribution=normal", "exploration.f=sqrt"]
    errors = "\n".join(refusal("noisynet-dqn", "atari/pong", settings=settings))
    assert "'gaussian' or 'uniform' or 'rademacher'" in errors
    assert "'signed_sqrt' or 'identity'" in errors
