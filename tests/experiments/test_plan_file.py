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


RUNS = "agents = ['dqn']\nenvironments = ['deep_sea/4']\n"
SEARCH = RUNS + "[search]\ntrials = 3\n"


def test_a_space_has_ranges_and_choices_in_tables_or_dotted_keys(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(
        f"""{SEARCH}
        [search.space]
        optimiser.learning_rate = {{ low = 1e-4, high = 1e-2, log = true }}
        "learning.n_step" = {{ low = 1, high = 5 }}
        network.hidden = [[16], [32, 32]]
        learning = {{ double_q = [false, true] }}
        """
    )
    search = build_plan(str(path), out=OUT).search
    assert search is not None
    assert {key: values.describe() for key, values in search.space.items()} == {
        "optimiser.learning_rate": "0.0001 to 0.01 (log)",
        "learning.n_step": "1 to 5",
        "network.hidden": "[16], [32, 32]",
        "learning.double_q": "false, true",
    }
    assert search.space["learning.n_step"].ends == (1, 5)
    assert search.space["network.hidden"].ends == ([16], [32, 32])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("search = 3", "search: .*, got 3"),
        ("[search.space]\nx = [1, 2]", "search: trials: Field required"),
        ("[search]\ntrails = 3", "search: unknown key 'trails'.*did you mean 'trials'"),
        ("[search]\ntrials = 0\nspace.x = [1, 2]", "search: trials: .* greater than 0, got 0"),
        ("[search]\ntrials = 3\nobjective = 'best'", "search: objective: .*'mean', got 'best'"),
        ("[search]\ntrials = 3\nspace = {}", "search: space: "),
        ("[search]\ntrials = 3\nspace = 3", "search: space: "),
    ],
)
def test_an_invalid_search_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(PlanError, match=expected):
        plan_of(tmp_path, RUNS + text)


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        ("learning.discount = [0.9]", "learning.discount: expected at least two different values"),
        ("network.hidden = [[8], [8]]", "network.hidden: expected at least two different values"),
        ("optimiser.epsilon = {low = 2, high = 1}", "optimiser.epsilon: expected low < high"),
        ("optimiser.epsilon = {low = 0, high = 1, log = true}", "0 < low with log = true"),
        ("optimiser.epsilon = {low = 1, hihg = 2}", "unknown key 'hihg'.*did you mean 'high'"),
        ("learning.discount = 0.9", "space: learning: unknown key 'discount', expected one of low"),
        ("seed = [1, 2]", "search: space: 'seed' is set by the plan"),
        ("learning.discount = [0.9, 1.5]", "search: learning.discount: .* less than 1, got 1.5"),
        ("learning.discont = [0.9, 0.8]", "unknown key 'learning.discont'.*'learning.discount'"),
    ],
)
def test_an_invalid_space_is_refused(tmp_path: Path, space: str, expected: str) -> None:
    with pytest.raises(PlanError, match=expected):
        plan_of(tmp_path, f"{SEARCH}space.{space}")


def test_a_search_has_no_variants(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="search: expected a plan without"):
        plan_of(tmp_path, f"{SEARCH}space.learning.n_step = [1, 2]\n[[variant]]\nname = 'x'")
