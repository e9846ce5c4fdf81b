"""Plans: which runs they ask for, and everything that can be wrong with them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from noisynet.config import AGENTS, build_config
from noisynet.envs import ATARI_57, MINATAR_GAMES
from noisynet.experiments import PLANS, PlanError, RunSpec, build_plan

OUT = Path("runs")

WITH_VARIANTS = """
agents = ["noisynet-dqn", "dqn", "a3c"]
environments = ["deep_sea/10", "gym/CartPole-v1"]
seeds = [3, 5]
settings.learning.discount = 0.9
settings.max_episode_frames = "null"

[[where]]
environments = ["deep_sea/*"]
frames = "8k"
settings = { "environment_options.randomise_actions" = false, "learning.discount" = 0.95 }

[[variant]]
name = "held"
agents = ["noisynet-*"]
environments = ["deep_sea/*"]
preset = "classic"
settings.exploration.redraw = "episode"

[[variant]]
name = "long"
agents = ["dqn"]
frames = 90_000
"""


def plan_of(tmp_path: Path, text: str, **options: str) -> tuple[RunSpec, ...]:
    path = tmp_path / "plan.toml"
    path.write_text(text)
    return build_plan(str(path), out=OUT, **options).specs


# --- the plans of the package ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plan", "environments", "agents", "runs"),
    [
        ("atari57", [f"atari/{game}" for game in ATARI_57], AGENTS, 1197),
        ("atari5", ["atari/battle_zone", "atari/double_dunk", "atari/name_this_game"], AGENTS, 105),
        ("minatar5", [f"minatar/{game}" for game in MINATAR_GAMES], AGENTS, 105),
        ("classic", ["gym/CartPole-v1", "deep_sea/10"], ("dqn", "noisynet-dqn"), 12),
    ],
)
def test_the_plans_of_the_package(
    plan: str, environments: list[str], agents: tuple[str, ...], runs: int
) -> None:
    specs = build_plan(plan, out=OUT).specs
    assert len(specs) == runs
    assert list(dict.fromkeys(spec.environment for spec in specs))[: len(environments)] == (
        environments
    )
    assert {spec.agent for spec in specs} == set(agents)
    assert [spec.seed for spec in specs] == sorted([0, 1, 2] * (runs // 3))
    assert plan in PLANS


def test_the_study_of_the_paper_has_its_budgets() -> None:
    specs = build_plan("atari57", out=OUT).specs
    budgets = {spec.agent: spec.frames for spec in specs}
    assert budgets == {agent: 320_000_000 if "a3c" in agent else 200_000_000 for agent in AGENTS}
    assert {spec.config.evaluation.period_frames for spec in specs} == {1_000_000}


# --- plans of one's own ---------------------------------------------------------------------------


def test_agents_times_environments_times_seeds_times_variants(tmp_path: Path) -> None:
    specs = plan_of(tmp_path, WITH_VARIANTS)
    assert [(spec.name, spec.frames) for spec in specs[:9]] == [
        ("deep_sea/10/noisynet-dqn/seed-3", 8_000),
        ("deep_sea/10/noisynet-dqn+held/seed-3", 8_000),
        ("deep_sea/10/dqn/seed-3", 8_000),
        ("deep_sea/10/dqn+long/seed-3", 90_000),
        ("deep_sea/10/a3c/seed-3", 8_000),
        ("gym/CartPole-v1/noisynet-dqn/seed-3", 50_000),
        ("gym/CartPole-v1/dqn/seed-3", 50_000),
        ("gym/CartPole-v1/dqn+long/seed-3", 90_000),
        ("gym/CartPole-v1/a3c/seed-3", 200_000),
    ]
    assert [spec.name for spec in specs[9:]] == [
        spec.name.replace("seed-3", "seed-5") for spec in specs[:9]
    ]


def test_the_command_of_a_run(tmp_path: Path) -> None:
    held = plan_of(tmp_path, WITH_VARIANTS)[1]
    assert held.arguments() == [
        *("train", "noisynet-dqn", "deep_sea/10", "--frames", "8000", "--seed", "3"),
        *("--preset", "classic", "--set", "learning.discount=0.9"),
        *("--set", "max_episode_frames=null"),
        *("--set", "environment_options.randomise_actions=false"),
        *("--set", "learning.discount=0.95", "--set", "exploration.redraw=episode"),
        *("--out", "runs", "--name", "deep_sea/10/noisynet-dqn+held/seed-3"),
    ]
    assert held.folder == OUT / "deep_sea/10/noisynet-dqn+held/seed-3"
    assert held.log == OUT / "deep_sea/10/noisynet-dqn+held/seed-3.log"
    assert held.config.learning.discount == 0.95  # the particular over the general


@pytest.mark.parametrize("number", [0, 1, 3, 4])
def test_a_run_is_what_its_command_makes_of_it(tmp_path: Path, number: int) -> None:
    spec = plan_of(tmp_path, WITH_VARIANTS)[number]
    said = spec.arguments()
    settings = [said[i + 1] for i, word in enumerate(said) if word == "--set"]
    made = build_config(
        said[1],
        said[2],
        frames=int(said[4]),
        seed=int(said[6]),
        preset=said[8] if said[7] == "--preset" else None,
        settings=settings,
    )
    assert made == spec.config


def test_a_run_survives_the_journey_to_another_machine(tmp_path: Path) -> None:
    for spec in plan_of(tmp_path, WITH_VARIANTS):
        assert RunSpec.from_json(spec.to_json()) == spec


def test_the_plan_of_the_documentation_is_one(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "experiments.md").read_text()
    (example,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    specs = plan_of(tmp_path, example)
    assert {spec.label for spec in specs} == {
        "dueling",
        "dqn",
        "noisynet-dqn",
        "noisynet-dqn+frozen-sigma",
    }
    assert len(specs) == 4 * 2 * 5


def test_a_run_without_variant_has_the_folder_of_a_single_run() -> None:
    spec = build_plan("classic", out=OUT).specs[0]
    assert spec.folder == OUT / f"{spec.environment}/{spec.agent}/seed-{spec.seed}"


def test_only_the_variants_of_a_plan(tmp_path: Path) -> None:
    specs = plan_of(tmp_path, "variants_only = true\n" + WITH_VARIANTS)
    assert {spec.label for spec in specs} == {"noisynet-dqn+held", "dqn+long"}


def test_what_the_command_says_takes_the_place_of_the_plans_lists(tmp_path: Path) -> None:
    specs = plan_of(
        tmp_path,
        WITH_VARIANTS,
        agents="*dueling,a3c",
        environments="deep_sea/4",
        seeds="1,4-5",
        frames="1k",
    )
    assert [spec.name for spec in specs[:4]] == [
        "deep_sea/4/dueling/seed-1",
        "deep_sea/4/noisynet-dueling/seed-1",
        "deep_sea/4/noisynet-dueling+held/seed-1",
        "deep_sea/4/a3c/seed-1",
    ]
    assert [spec.seed for spec in specs] == [1] * 4 + [4] * 4 + [5] * 4
    assert {spec.frames for spec in specs} == {1000}


@pytest.mark.parametrize(
    ("seeds", "expected"),
    [(2, (0, 1)), ("2", (0, 1)), ([7], (7,)), ("7,", (7,)), ("0, 3-5", (0, 3, 4, 5))],
)
def test_seeds_are_counted_or_listed(
    seeds: int | str | list[int], expected: tuple[int, ...]
) -> None:
    plan = build_plan("classic", out=OUT, seeds=seeds, agents="dqn", environments="deep_sea/4")
    assert tuple(spec.seed for spec in plan.specs) == expected


# --- what is wrong --------------------------------------------------------------------------------

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


def test_all_errors_of_a_plan_are_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(PlanError) as caught:
        plan_of(tmp_path, EVERYTHING_WRONG + "\n", agents="noisynet-dq,dqn")
    said = str(caught.value).splitlines()
    for expected in [
        "plan.toml: agents: unknown agent 'noisynet-dqnn'.*did you mean 'noisynet-dqn'",
        "plan.toml: agents: 'dqn' more than once",
        "plan.toml: --agents: unknown agent 'noisynet-dq'.*did you mean 'noisynet-dqn'",
        "plan.toml: environments: expected names, got 7 among them",
        "plan.toml: seeds: expected how many .* got -3",
        "plan.toml: frames: expected a positive whole number.*'many'",
        "plan.toml: unknown preset 'clasic'.*did you mean 'classic'",
        "plan.toml: unknown key 'colour', expected one of agents, environments",
        "plan.toml: settings: 'seed' belongs in the plan",
        "plan.toml: settings: evaluation.frames expected a number.* got a date",
        "plan.toml: where 1: none of the agents is 'duelling'",
        "plan.toml: where 1: unknown preset '7'",
        "plan.toml: variant 1: name: expected letters.*got None",
        "plan.toml: variant 2: name: expected letters.*got 'a/b'",
        "plan.toml: variant 3: environments: expected a list of names, got 'deep_sea/4'",
        "plan.toml: variant: the name 'x' more than once",
    ]:
        assert any(re.search(expected, line) for line in said), (expected, said)


def test_errors_of_single_runs_are_named_once_with_the_first_of_them(tmp_path: Path) -> None:
    with pytest.raises(PlanError) as caught:
        plan_of(
            tmp_path,
            """
            agents = ["dqn", "noisynet-dqn"]
            environments = ["atari/pongg", "deep_sea/4"]
            seeds = 2
            settings = { learning.discont = 0.5, exploration.final = 0.1 }
            """,
        )
    assert sorted(str(caught.value).splitlines()) == [
        "atari has no game 'pongg'. Did you mean 'atari/pong'? "
        "(in dqn on atari/pongg, seed 0 and 3 more)",
        "unknown key 'exploration.final', which belongs to exploration.kind=epsilon-greedy; "
        "did you mean 'exploration.kind'? "
        "(in noisynet-dqn on atari/pongg, seed 0 and 3 more)",
        "unknown key 'learning.discont'; did you mean 'learning.discount'? "
        "(in dqn on atari/pongg, seed 0 and 7 more)",
    ]


def test_a_variant_that_changes_nothing_is_refused(tmp_path: Path) -> None:
    text = """
    agents = ["dqn"]
    environments = ["deep_sea/4"]
    [[variant]]
    name = "same"
    settings.learning.discount = 0.99
    """
    with pytest.raises(PlanError, match=r"dqn\+same/seed-0 is the same run as .*dqn/seed-0"):
        plan_of(tmp_path, text)


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        ("atari-57", "one of atari57, .* got 'atari-57'; did you mean 'atari57'"),
        ("missing.toml", "got 'missing.toml'"),
    ],
)
def test_a_plan_that_there_is_not(plan: str, expected: str) -> None:
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
            "variants_only: there is no \\[\\[variant]]",
        ),
        (
            "agents = ['dqn']\nenvironments = ['deep_sea/4']\nwhere = 3",
            "where: expected tables headed \\[\\[where]], got 3",
        ),
        (
            "agents = ['dqn']\nenvironments = ['deep_sea/4']\nseeds = [1, 1]",
            "seeds: 1 more than once",
        ),
        ("agents = ['dqn']\nenvironments = ['deep_sea/4']\nseeds = [-1]", "seed: .* got -1"),
        ("agents = ['dqn']\nenvironments = ['deep_sea/4']\nsettings = 3", "settings: expected"),
    ],
)
def test_plans_that_cannot_be(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(PlanError, match=expected):
        plan_of(tmp_path, text)


def test_planning_imports_no_torch() -> None:
    code = (
        "import sys; from pathlib import Path; from noisynet.experiments import run_sweep; "
        "run_sweep('atari57', out=Path('nowhere'), dry_run=True); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
