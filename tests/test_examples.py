"""The single-file example stays short, needs only the layers, and learns."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLE = Path(__file__).parent.parent / "examples" / "single_file_dqn.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    specification = importlib.util.spec_from_file_location("single_file_dqn", EXAMPLE)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["single_file_dqn"] = module  # dataclasses look their module up
    specification.loader.exec_module(module)
    return module


def test_the_example_has_at_most_250_lines_and_uses_only_the_layers() -> None:
    source = EXAMPLE.read_text()
    assert len(source.splitlines()) <= 250
    imported = {
        alias.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("noisynet")
        for alias in node.names
    }
    assert imported == {"NoisyLinear", "noise_off", "resample_noise"}


def test_the_treasure_is_reached_by_going_right_only(example: ModuleType) -> None:
    sea = example.DeepSea(size=3, seed=0)
    x, rewards = sea.reset(), []
    assert x.tolist() == [1, 0, 0, 0, 0, 0, 0, 0, 0]
    for step in range(3):
        x, reward, over = sea.step(int(sea.right[sea.row, sea.column]))
        rewards.append(reward)
        assert over == (step == 2)
    assert rewards == pytest.approx([-0.01 / 3, -0.01 / 3, 1 - 0.01 / 3])
    sea.reset()
    for _ in range(3):
        _, reward, _ = sea.step(1 - int(sea.right[sea.row, sea.column]))
        assert reward == 0


def test_both_agents_learn_a_shallow_sea(example: ModuleType) -> None:
    for agent in ("dqn", "noisynet-dqn"):
        result = example.train(example.Settings(agent=agent, size=3, episodes=200))
        assert result.greedy_return == pytest.approx(0.99), agent


def test_the_script_prints_a_comparison() -> None:
    command = [sys.executable, str(EXAMPLE), "--size", "2", "--seeds", "1", "--episodes", "20"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "dqn: solved in" in done.stdout
    assert "noisynet-dqn: solved in" in done.stdout


def test_the_readmes_lines_of_use_run() -> None:
    readme = (EXAMPLE.parent.parent / "README.md").read_text()
    code = readme.split("```python\n")[1].split("```")[0]
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "The noise contract is kept" in done.stdout
