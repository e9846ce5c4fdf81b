"""Plan files: their lists, and every error in them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from noisynet.experiments import PlanError, RunSpec, build_plan
from noisynet.experiments.plan_file import PlanReader, Rule

OUT = Path("runs")


def plan_of(tmp_path: Path, text: str, **options: str) -> tuple[RunSpec, ...]:
    path = tmp_path / "plan.toml"
    path.write_text(text)
    return build_plan(str(path), out=OUT, **options).specs


def test_a_rule_matches_patterns_of_agents_and_environments() -> None:
    rule = Rule(agents=("noisynet-*",), environments=("deep_sea/*", "gym/CartPole-v1"))
    assert rule.matches("noisynet-dqn", "deep_sea/10")
    assert rule.matches("noisynet-dqn", "gym/CartPole-v1")
    assert not rule.matches("dqn", "deep_sea/10")
    assert not rule.matches("noisynet-dqn", "gym/Acrobot-v1")


def test_settings_may_be_dotted_keys_or_tables() -> None:
    reader = PlanReader(
        {
            "agents": ["dqn"],
            "environments": ["deep_sea/4"],
            "settings": {
                "learning": {"discount": 0.9, "n_step": 3},
                "network.hidden": [16],
                "x": {},
            },
        }
    )
    assert reader.errors == []
    assert reader.rules[0].settings == (
        "learning.discount=0.9",
        "learning.n_step=3",
        "network.hidden=[16]",
    )


@pytest.mark.parametrize(
    ("seeds", "expected"),
    [(2, (0, 1)), ("2", (0, 1)), ([7], (7,)), ("7,", (7,)), ("0, 3-5", (0, 3, 4, 5))],
)
def test_seeds_are_a_number_or_a_list(
    seeds: int | str | list[int], expected: tuple[int, ...]
) -> None:
    plan = build_plan("classic", out=OUT, seeds=seeds, agents="dqn", environments="deep_sea/4")
    assert tuple(spec.seed for spec in plan.specs) == expected


EVERYTHING_WRONG = """
agents = ["noisynet-dqnn", "dqn", "dqn"]
environments = ["atari/pongg", "deep_sea/4", 7]
seeds = -3
frames = "many"
preset = "clasic"
colour = "red"
settings = { learning.discont = 0.5, seed = 3, evaluation.frames = 1979-05-27 }

[[where]]
agents = ["duelling"]
preset = 7

[[variant]]
settings.learning.discount = 1.5

[[variant]]
name = "a/b"

[[variant]]
name = "x"
environments = "deep_sea/4"
[[variant]]
name = "x"
"""


def test_all_errors_of_a_plan_are_listed_at_once(tmp_path: Path) -> None:
    with pytest.raises(PlanError) as caught:
        plan_of(tmp_path, EVERYTHING_WRONG + "\n", agents="noisynet-dq,dqn")
    errors = str(caught.value).splitlines()
    for expected in [
        "plan.toml: agents: unknown agent 'noisynet-dqnn'.*did you mean 'noisynet-dqn'",
        "plan.toml: agents: 'dqn' listed more than once",
        "plan.toml: --agents: unknown agent 'noisynet-dq'.*did you mean 'noisynet-dqn'",
        "plan.toml: environments: expected names, got 7",
        "plan.toml: seeds: expected how many .* got -3",
        "plan.toml: frames: expected a positive whole number.*'many'",
        "plan.toml: unknown preset 'clasic'.*did you mean 'classic'",
        "plan.toml: unknown key 'colour', expected one of agents, environments",
        "plan.toml: settings: 'seed' is set by the plan",
        "plan.toml: settings: evaluation.frames expected a number.* got a date",
        "plan.toml: where 1: no agent of the plan matches 'duelling'",
        "plan.toml: where 1: unknown preset '7'",
        "plan.toml: variant 1: name: expected letters.*got None",
        "plan.toml: variant 2: name: expected letters.*got 'a/b'",
        "plan.toml: variant 3: environments: expected a list of names, got 'deep_sea/4'",
        "plan.toml: variant: the name 'x' is used more than once",
    ]:
        assert any(re.search(expected, line) for line in errors), (expected, errors)


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        ("atari-57", "one of atari57, .* got 'atari-57'; did you mean 'atari57'"),
        ("missing.toml", "got 'missing.toml'"),
    ],
)
def test_an_unknown_plan_is_refused(plan: str, expected: str) -> None:
    with pytest.raises(PlanError, match=expected):
        build_plan(plan, out=OUT)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("agents = [", "is not TOML: "),
        ("agents = ['dqn']\nenvironments = []", "environments: expected a list of names, got \\[]"),
        ("environments = ['deep_sea/4']", "agents: expected a list of names, got nothing"),
        (
            "agents = ['dqn']\nenvironments = ['deep_sea/4']\nvariants_only = true",
            "variants_only: the plan has no \\[\\[variant]]",
        ),
        (
            "agents = ['dqn']\nenvironments = ['deep_sea/4']\nwhere = 3",
            "where: expected tables headed \\[\\[where]], got 3",
        ),
        (
            "agents = ['dqn']\nenvironments = ['deep_sea/4']\nseeds = [1, 1]",
            "seeds: 1 listed more than once",
        ),
        ("agents = ['dqn']\nenvironments = ['deep_sea/4']\nseeds = [-1]", "seed: .* got -1"),
        ("agents = ['dqn']\nenvironments = ['deep_sea/4']\nsettings = 3", "settings: expected"),
    ],
)
def test_invalid_plans_are_refused(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(PlanError, match=expected):
        plan_of(tmp_path, text)
