"""Plans: which runs they have, and the errors of those."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from noisynet.config import ConfigError, build_config
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


PAPER_AGENTS = (
    *("dqn", "noisynet-dqn", "dueling", "noisynet-dueling"),
    *("a3c", "noisynet-a3c", "noisynet-a3c-factorised"),
)

# --- shipped plans ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plan", "environments", "agents", "runs"),
    [
        ("atari57", [f"atari/{game}" for game in ATARI_57], PAPER_AGENTS, 1197),
        (
            "atari5",
            ["atari/battle_zone", "atari/double_dunk", "atari/name_this_game"],
            PAPER_AGENTS,
            105,
        ),
        ("minatar5", [f"minatar/{game}" for game in MINATAR_GAMES], PAPER_AGENTS, 105),
        ("classic", ["gym/CartPole-v1", "deep_sea/10"], ("dqn", "noisynet-dqn"), 12),
        (
            "controls",
            ["minatar/breakout", "minatar/space_invaders"],
            ("dqn", "noisynet-dqn", "a3c", "noisynet-a3c"),
            72,
        ),
    ],
)
def test_shipped_plans(
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


def test_atari57_has_the_papers_budgets() -> None:
    specs = build_plan("atari57", out=OUT).specs
    budgets = {spec.agent: spec.frames for spec in specs}
    expected = {name: 320_000_000 if "a3c" in name else 200_000_000 for name in PAPER_AGENTS}
    assert budgets == expected
    assert {spec.config.evaluation.period_frames for spec in specs} == {1_000_000}


CONTROLS: dict[str, dict[str, Any]] = {
    "dqn": {},
    "dqn+epsilon-0": {"initial": 0.0, "final": 0.0, "evaluation": 0.0},
    "noisynet-dqn": {"used_in": "acting and learning", "learn_sigma": True, "evaluation": "on"},
    "noisynet-dqn+acting-only": {"used_in": "acting", "evaluation": "on"},
    "noisynet-dqn+learning-only": {"used_in": "learning", "evaluation": "off"},
    "noisynet-dqn+frozen-sigma": {"used_in": "acting and learning", "learn_sigma": False},
    "a3c": {"beta": 0.01},
    "a3c+no-entropy-bonus": {"beta": 0.0},
    "noisynet-a3c": {"used_in": "acting and learning", "learn_sigma": True, "evaluation": "on"},
    "noisynet-a3c+acting-only": {"used_in": "acting", "evaluation": "on"},
    "noisynet-a3c+learning-only": {"used_in": "learning", "evaluation": "off"},
    "noisynet-a3c+frozen-sigma": {"used_in": "acting and learning", "learn_sigma": False},
}


def test_the_controls_change_where_noise_is_used_and_nothing_else() -> None:
    """The paper leaves open whether noise helps by exploration or in optimisation."""
    specs = build_plan("controls", out=OUT).specs
    assert {spec.frames for spec in specs} == {1_000_000}
    for game in ("breakout", "space_invaders"):
        found = {
            s.label: s.config for s in specs if (s.environment, s.seed) == (f"minatar/{game}", 0)
        }
        assert set(found) == set(CONTROLS)
        for label, expected in CONTROLS.items():
            explored = found[label].exploration
            assert {key: getattr(explored, key) for key in expected} == expected
            whole = found[label.partition("+")[0]]
            same = found[label].model_copy(update={"exploration": whole.exploration})
            assert same == whole


# --- plan files ---------------------------------------------------------------------------


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
    assert held.config.learning.discount == 0.95  # a rule overrides the plan


@pytest.mark.parametrize("number", [0, 1, 3, 4])
def test_the_command_of_a_run_builds_its_configuration(tmp_path: Path, number: int) -> None:
    spec = plan_of(tmp_path, WITH_VARIANTS)[number]
    arguments = spec.arguments()
    settings = [arguments[i + 1] for i, word in enumerate(arguments) if word == "--set"]
    made = build_config(
        arguments[1],
        arguments[2],
        frames=int(arguments[4]),
        seed=int(arguments[6]),
        preset=arguments[8] if arguments[7] == "--preset" else None,
        settings=settings,
    )
    assert made == spec.config


def test_a_run_can_be_sent_to_another_machine(tmp_path: Path) -> None:
    for spec in plan_of(tmp_path, WITH_VARIANTS):
        assert pickle.loads(pickle.dumps(spec)) == spec


def test_the_plans_of_the_documentation_are_valid(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "experiments.md").read_text()
    example, search = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    assert {spec.label for spec in plan_of(tmp_path, search)} == {"noisynet-dqn"}
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


def test_options_override_the_lists_of_the_plan(tmp_path: Path) -> None:
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


def test_errors_of_runs_are_listed_once_with_the_first_run(tmp_path: Path) -> None:
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
        "did you mean 'exploration.f'? "
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


def test_planning_imports_no_torch() -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from noisynet.experiments import build_plan, run_sweep\n"
        "run_sweep(build_plan('atari57', out=Path('nowhere')), dry_run=True)\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_run_with_other_settings_is_a_variant_of_it() -> None:
    spec = build_plan("classic", out=OUT, agents="dqn", environments="deep_sea/4").specs[0]
    changed = spec.with_settings("x", {"learning.discount": 0.9, "network.hidden": "[8]"})
    assert changed.name == "deep_sea/4/dqn+x/seed-0"
    assert (changed.config.learning.discount, changed.config.network.hidden) == (0.9, (8,))
    assert changed.settings == (*spec.settings, "learning.discount=0.9", "network.hidden=[8]")
    assert (changed.frames, changed.seed, changed.out) == (spec.frames, spec.seed, spec.out)
    with pytest.raises(ConfigError, match=r"learning\.discount"):
        spec.with_settings("x", {"learning.discount": 2})
