"""The pages of docs/: their code runs, their commands exist, they make a site without warnings."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import typer
from typer.testing import CliRunner

from noisynet.cli import app

ROOT = Path(__file__).parents[1]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"]
# Pages whose blocks another test runs, and checks what they print.
ELSEWHERE = {
    ("README.md", "python"): "test_python_documentation.py",
    ("python.md", "python"): "test_python_documentation.py",
    ("README.md", "sh"): "test_first_hour.py",
}
NOT_RUN = {  # commands, and why
    "pip install ": "needs an index; test_package.py installs the wheel",
    "make demo": "takes three minutes; test_examples.py runs a shorter one",
    "make test": "is this suite",
    "noisynet dashboard ": "serves until it is stopped; tests/dashboard starts it",
    "NOISYNET_TOKEN=": "the same",
}
SHORTER = {  # so that a page takes seconds
    "50_000": "300",
    "2_000": "300",
    "epoch_num_steps=10_000": "epoch_num_steps=100",
    "max_epochs=4": "max_epochs=1",
    'build_plan("classic", out=Path("runs"), seeds=1)': (
        'build_plan("classic", out=Path("runs"), seeds=1, frames=200, environments=["deep_sea/4"],'
        ' agents="noisynet-dqn")'
    ),
    "check_noise(loss)": "check_noise(loss, updates=20)",
    "check_noise(algorithm)": "check_noise(algorithm, updates=20)",
    "test_step_num_episodes=10": "test_step_num_episodes=4",
}
SHORTER_COMMANDS = {  # the first that matches: more arguments
    "noisynet train a3c ": "--frames 100 --workers 1",
    "noisynet train ": "--frames 300 --set network.hidden=[16]",
    "noisynet sweep ": "--dry-run",  # tests/experiments runs them
    "noisynet push ": "--no-video",
    "noisynet watch ": "--max-steps 20",
}
BEFORE = {  # what a page takes for granted
    "audit.md": """
from stable_baselines3 import DQN
from noisynet.integrations.sb3 import NoisyDQNPolicy
model = DQN(NoisyDQNPolicy, "CartPole-v1")
model.save("model.zip")
""",
    "environments.md": """
open("my_game.py", "w").write('''
import gymnasium, numpy
class MyGame(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 255, (48, 48, 3), numpy.uint8)
    action_space = gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return numpy.zeros((48, 48, 3), numpy.uint8), {}
    def step(self, action):
        return numpy.zeros((48, 48, 3), numpy.uint8), 1.0, False, False, {}
gymnasium.register("MyGame-v0", MyGame, max_episode_steps=50)
''')
""",
    "export.md": """
from noisynet import Agent
folder = "runs/atari/pong/noisynet-dqn/seed-0"
Agent("noisynet-dqn", "atari/pong", folder=folder, hidden=[16]).learn(20)
""",
    "integrations.md": """
from torchrl.envs import GymEnv
from torch import nn
from noisynet import NoisyLinear, resample_noise
import torch
env = GymEnv("CartPole-v1")
def make():
    return nn.Sequential(NoisyLinear(3, 4), nn.ReLU(), NoisyLinear(4, 2))
q_network, target_network = make(), make()
selector = None
def act():
    resample_noise(q_network)
    q_network(torch.ones(1, 3))
def learn():
    resample_noise(q_network)
    resample_noise(target_network)
    with torch.no_grad():
        target = target_network(torch.ones(2, 3))
    (q_network(torch.ones(2, 3)) - target).square().sum().backward()
def evaluate():
    return None
def sync_target():
    return None
""",
    "reports.md": """
import pathlib
from noisynet import Agent
Agent("noisynet-dqn", "minatar/breakout", folder="runs/mine").learn(300)
pathlib.Path("RUN").symlink_to("runs/mine")
""",
}
AFTER = {  # files that a page leaves
    "environments.md": ["game.mp4", "runs/corridor/config.json"],
}


def blocks(page: Path) -> list[tuple[str, str]]:
    """The language and the text of every fenced block of a page."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)


def commands(text: str) -> list[str]:
    """The commands of a block, without comments."""
    lines = (re.sub(r"(^|\s)#.*", "", line).strip() for line in text.splitlines())
    return [line for line in lines if line]


def with_code() -> list[Path]:
    here = ((page, language) for page in PAGES for language, _ in blocks(page))
    found = (p for p, language in here if language and (p.name, language) not in ELSEWHERE)
    return list(dict.fromkeys(found))


def run_code(snippet: str, name: str, names: dict[str, Any]) -> None:
    for long, short in SHORTER.items():
        snippet = snippet.replace(long, short)
    if file := re.match(r"# (\w+\.py)\n", snippet):
        Path(file[1]).write_text(snippet)
    exec(compile(snippet, name, "exec"), names)


def run_command(command: str) -> None:
    skipped = any(command.startswith(beginning) for beginning in NOT_RUN)
    shorter = (more for start, more in SHORTER_COMMANDS.items() if command.startswith(start))
    words = shlex.split(f"{command.partition(' > ')[0]} {next(shorter, '')}")
    program, *arguments = words[1:] if "=" in words[0] else words
    if program == "noisynet" and skipped:
        group: Any = typer.main.get_command(app)
        group.commands[arguments[0]].make_context(arguments[0], arguments[1:])  # is understood
    elif not skipped:
        assert program == "noisynet", f"NOT_RUN has no reason why this is not run: {command}"
        ended = CliRunner().invoke(app, arguments)
        assert ended.exit_code == 0, f"{command}\n{ended.output}"


@pytest.mark.filterwarnings("ignore")  # those of the libraries
@pytest.mark.parametrize("page", with_code(), ids=lambda page: page.name)
def test_the_code_of_a_page_runs(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    if page.name == "export.md":
        request.getfixturevalue("hub")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "models").symlink_to(ROOT / "models")  # as in a checkout
    registry, modules = dict(gymnasium.registry), set(sys.modules)
    monkeypatch.setattr(gymnasium.envs.registration, "registry", registry)
    monkeypatch.setattr(gymnasium, "registry", registry)
    for name, value in {"WANDB_MODE": "offline", "TRACKIO_DIR": str(tmp_path / "trackio")}.items():
        monkeypatch.setenv(name, value)
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(BEFORE.get(page.name, ""), names)
    plans = iter(("my-plan.toml", "my-search.toml"))
    found = [one for one in blocks(page) if (page.name, one[0]) not in ELSEWHERE]
    # The plans are shown after the commands that name them.
    for number, (language, text) in enumerate(sorted(found, key=lambda one: one[0] != "toml")):
        if language == "toml":
            Path(next(plans)).write_text(text)
        elif language == "python":
            run_code(text, f"{page.name} {number}", names)
        elif language == "sh":
            for command in commands(text):
                run_command(command)
    assert [file for file in AFTER.get(page.name, []) if not Path(file).exists()] == []
    for name in set(sys.modules) - modules:  # its own modules
        if Path(getattr(sys.modules[name], "__file__", None) or "/").is_relative_to(tmp_path):
            del sys.modules[name]


def test_every_block_is_run_or_has_a_reason_why_not() -> None:
    unknown, run = [], []
    for page in PAGES:
        text, found = page.read_text(), blocks(page)
        assert text.count("```") == 2 * len(found), f"{page.name} has an indented block"
        unknown += re.findall(r"^(?: {4}|\$ )(?:noisynet|pip|python|make) .*", text, re.M)
        for language, block in found:
            if language == "sh":
                run += commands(block)
            elif language not in ("python", "toml"):  # output, which has no language
                unknown += [language, *re.findall(r"^noisynet .*", block, re.M)]
    assert set(unknown) == {""}
    assert [one for one in run if not one.startswith(("noisynet ", *NOT_RUN))] == []
    assert [key for key in NOT_RUN if not any(one.startswith(key) for one in run)] == []


def test_the_site_is_built_without_warnings(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    listed = set(re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in PAGES[:-1]}
    assert listed == pages  # every page is in the navigation


def test_the_page_of_settings_is_that_of_the_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    from make_settings import PAGE, settings_page

    assert PAGE.read_text(encoding="utf-8") == settings_page(), "run: python docs/make_settings.py"


def test_links_lead_to_files_that_exist() -> None:
    missing = []
    for page in [*PAGES, *ROOT.glob("*.md"), *(ROOT / "results").glob("*.md")]:
        for path in re.findall(r"\]\(([^)#:\s]+)(?:#[^)\s]*)?\)", page.read_text()):
            if not (page.parent / path).exists():
                missing.append(f"{page.relative_to(ROOT)}: {path}")
    assert missing == []
