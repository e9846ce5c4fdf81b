"""The agents, those of the paper and others."""

from __future__ import annotations

from noisynet import config
from noisynet.config import build_config
from noisynet.reports.agents import AGENTS, BASELINE, FACTORISED_A3C, STYLES, make_contender
from noisynet.reports.analysis import BASELINES, OTHER_BASELINES
from noisynet.reports.published import published_scores


def test_every_agent_of_the_package_has_a_style() -> None:
    assert set(STYLES) == set(config.AGENTS)
    for agent, style in STYLES.items():
        built = build_config(agent, "deep_sea/4")
        assert style.noisy == (built.exploration.kind == "noisy-weights")
        assert (style.kind == "actor-critic") == (agent in config.ACTOR_CRITIC_AGENTS)


def test_every_noisy_agent_has_a_baseline_of_its_kind_without_noise() -> None:
    assert set(BASELINE) == {agent for agent, style in STYLES.items() if style.noisy}
    for noisy, baseline in BASELINE.items():
        assert STYLES[baseline].kind == STYLES[noisy].kind
        assert not STYLES[baseline].noisy
    assert FACTORISED_A3C in BASELINE


def test_the_agents_of_the_paper_come_first() -> None:
    in_paper = [style.in_paper for style in STYLES.values()]
    assert in_paper == sorted(in_paper, reverse=True)
    assert {agent for agent in AGENTS if STYLES[agent].in_paper} == {*published_scores()} | {
        FACTORISED_A3C
    }
    for noisy, baseline in BASELINE.items():
        assert STYLES[noisy].in_paper == STYLES[baseline].in_paper


def test_baselines_of_comparisons_are_those_of_the_agents() -> None:
    assert set(BASELINES.values()) | set(OTHER_BASELINES.values()) == set(BASELINE.values())
    assert all(STYLES[agent].in_paper for agent in BASELINES.values())
    assert not any(STYLES[agent].in_paper for agent in OTHER_BASELINES.values())


def test_a_variant_is_part_of_the_file_name() -> None:
    assert make_contender("rainbow").file_name == "rainbow"
    assert make_contender("rainbow", "network.atoms=null").file_name == "rainbow-network-atoms-null"


def test_contenders_are_ordered_as_in_the_paper_with_variants_after_their_agent() -> None:
    quiet = make_contender("noisynet-dqn", "exploration.sigma0=0.1")
    plain = [make_contender(agent) for agent in AGENTS]
    assert sorted([*reversed(plain), quiet]) == [*plain[:2], quiet, *plain[2:]]
    assert quiet.title == "NoisyNet-DQN [exploration.sigma0=0.1]"
    assert quiet.style is STYLES["noisynet-dqn"]
