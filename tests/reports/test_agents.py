"""The agents, those of the paper and others."""

from __future__ import annotations

from noisynet import config
from noisynet.config import build_config
from noisynet.reports.agents import (
    AGENTS,
    FACTORISED_A3C,
    STYLES,
    Contender,
    settings_difference,
)
from noisynet.reports.curve_figures import COMPARISONS
from noisynet.reports.published import published_scores


def test_every_agent_of_the_package_has_a_style() -> None:
    assert set(STYLES) == set(config.AGENTS)
    for agent, style in STYLES.items():
        built = build_config(agent, "deep_sea/4")
        assert style.noisy == (built.exploration.kind == "noisy-weights")
        assert (style.kind == "actor-critic") == (agent in config.ACTOR_CRITIC_AGENTS)


def test_every_noisy_agent_has_a_baseline_of_its_kind_without_noise() -> None:
    for style in STYLES.values():
        if style.noisy:
            assert STYLES[style.baseline].kind == style.kind
            assert not STYLES[style.baseline].noisy
    assert STYLES[FACTORISED_A3C].noisy


def test_the_agents_of_the_paper_come_first() -> None:
    in_paper = [style.in_paper for style in STYLES.values()]
    assert in_paper == sorted(in_paper, reverse=True)
    assert {agent for agent in AGENTS if STYLES[agent].in_paper} == {*published_scores()} | {
        FACTORISED_A3C
    }
    for style in STYLES.values():
        assert not style.noisy or style.in_paper == STYLES[style.baseline].in_paper


def test_every_baseline_has_a_figure_of_its_curves() -> None:
    assert set(COMPARISONS) == {style.baseline for style in STYLES.values() if style.noisy}
    numbered = {agent for agent, (_, name, _) in COMPARISONS.items() if name.startswith("figure-")}
    assert numbered == {agent for agent in COMPARISONS if STYLES[agent].in_paper}


def test_a_variant_is_part_of_the_file_name() -> None:
    assert Contender("rainbow").file_name == "rainbow"
    assert Contender("rainbow", "network.atoms=null").file_name == "rainbow-network-atoms-null"


def test_contenders_are_ordered_as_in_the_paper_with_variants_after_their_agent() -> None:
    quiet = Contender("noisynet-dqn", "exploration.sigma0=0.1")
    plain = [Contender(agent) for agent in AGENTS]
    assert sorted([*reversed(plain), quiet]) == [*plain[:2], quiet, *plain[2:]]
    assert quiet.title == "NoisyNet-DQN [exploration.sigma0=0.1]"
    assert quiet.style is STYLES["noisynet-dqn"]


def test_settings_are_named_where_they_differ_from_the_common_ones() -> None:
    common = {"a": "1", "b": '"x"', "c": "3"}
    assert settings_difference(common, common) == ""
    other = {"a": "1", "b": '"y"', "d": "4"}
    assert settings_difference(other, common) == "b=y, c=nothing, d=4"
