"""The snippets of docs/python.md run as they stand, and its numbers are counted."""

from __future__ import annotations

import io
import re
import tokenize
from pathlib import Path
from typing import Any

import pytest

import noisynet

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "python.md").read_text()
SNIPPETS: list[str] = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
SB3, OURS = SNIPPETS[-2:]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_snippets_run_one_after_the_other(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, Any] = {}
    for number, snippet in enumerate(SNIPPETS[:-2]):
        exec(compile(snippet, f"snippet {number}", "exec"), names)
        agent = names["agent"]
        if number == 2:
            assert (agent.folder, agent.steps) == (Path("runs/mine"), 1_500)
        elif number == 3:
            assert 0 < agent.steps < 5_000  # stopped at the score
            assert agent.steps % 500 == 0
    shown = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"[\d.]+ ± [\d.]+ \(10 episodes with noise\)", shown[0])
    assert shown[1] == re.findall(r"print\(error\)  # (.*)", TEXT)[0]
    assert [line.split()[0] for line in shown[2:4]] == ["500", "1000"]
    assert shown[4].endswith("(2, 6)")
    assert sorted(path.name for path in folder.iterdir()) == ["agent.safetensors", "runs"]


@pytest.mark.parametrize("snippet", [SB3, OURS], ids=["sb3", "ours"])
def test_both_sides_of_the_comparison_run(snippet: str, folder: Path) -> None:
    pytest.importorskip("stable_baselines3")
    names: dict[str, Any] = {}
    exec(compile(snippet, "snippet", "exec"), names)
    assert int(names["action"]) in (0, 1)


@pytest.mark.parametrize(("name", "snippet"), [("Stable-Baselines3", SB3), ("noisynet", OURS)])
def test_lines_and_words_are_counted(name: str, snippet: str) -> None:
    tokens = tokenize.generate_tokens(io.StringIO(snippet).readline)
    words = sum(token.type in (tokenize.NAME, tokenize.NUMBER) for token in tokens)
    lines = sum(bool(line.strip()) for line in snippet.splitlines())
    assert f"| {name} | {lines} | {words} |" in TEXT


def test_every_public_method_of_an_agent_is_in_the_text() -> None:
    for name in dir(noisynet.Agent):
        if not name.startswith("_") and name != "steps":
            assert f"{name}(" in TEXT or f"`{name}`" in TEXT, name


def test_the_snippets_of_the_readme_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "README.md").read_text()
    snippets = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(snippets) == 2
    assert "Agent(" in snippets[1]
    for number, snippet in enumerate(snippets):
        exec(compile(snippet.replace("50_000", "500"), f"README {number}", "exec"), {})
    assert "The noise contract is kept" in capsys.readouterr().out
    assert (folder / "agent.safetensors").exists()
