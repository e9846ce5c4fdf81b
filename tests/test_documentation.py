"""The pages of docs/: their code runs, their commands exist, they make a site without warnings."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from noisynet.cli import app

ROOT = Path(__file__).parents[1]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"]
ELSEWHERE = {  # in tests/test_python_documentation.py, test_audit_documentation.py, test_export.py
    *("python.md", "README.md", "audit.md", "export.md"),
}
SHORTER = {  # so that a test takes seconds
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
NAMES = {  # what a snippet takes for granted
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
"""
}


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def with_code(language: str) -> list[Path]:
    return [page for page in PAGES if blocks(page, language) and page.name not in ELSEWHERE]


@pytest.mark.filterwarnings("ignore")  # those of the libraries
@pytest.mark.parametrize("page", with_code("python"), ids=lambda page: page.name)
def test_the_code_of_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(NAMES.get(page.name, ""), names)
    for number, snippet in enumerate(blocks(page, "python")):
        for long, short in SHORTER.items():
            snippet = snippet.replace(long, short)
        if file := re.match(r"# (\w+\.py)\n", snippet):
            (tmp_path / file[1]).write_text(snippet)
        exec(compile(snippet, f"{page.name} {number}", "exec"), names)


def commands() -> list[str]:
    """Every `noisynet …` of a page, without its comment."""
    found: dict[str, None] = {}
    for page in PAGES:
        for line in page.read_text().splitlines():
            if match := re.match(r"(?: {4})?(noisynet [^#]*?)(?:  +.*|\s+#.*)?$", line):
                found[match[1]] = None
    return list(found)


@pytest.mark.parametrize("command", commands())
def test_a_command_of_a_page_is_understood(command: str) -> None:
    group: Any = typer.main.get_command(app)
    name, *arguments = shlex.split(command)[1:]
    subcommand = group.commands[name]
    arguments = arguments[: arguments.index(">")] if ">" in arguments else arguments
    subcommand.make_context(name, arguments)  # raises for unknown options and missing arguments


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
