"""The agents of the paper."""

from __future__ import annotations

from noisynet import config
from noisynet.config import build_config
from noisynet.reports.agents import AGENTS, BASELINE, FACTORISED_A3C, STYLES, make_contender


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


def test_contenders_are_ordered_as_in_the_paper_with_variants_after_their_agent() -> None:
    quiet = make_contender("noisynet-dqn", "exploration.sigma0=0.1")
    plain = [make_contender(agent) for agent in AGENTS]
    assert sorted([*reversed(plain), quiet]) == [*plain[:2], quiet, *plain[2:]]
    assert quiet.title == "NoisyNet-DQN [exploration.sigma0=0.1]"
    assert quiet.style is STYLES["noisynet-dqn"]
