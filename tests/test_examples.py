"""The single-file example stays short, needs only the layers, and learns; the demo works."""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from noisynet.config import build_config

EXAMPLES = Path(__file__).parent.parent / "examples"
EXAMPLE = EXAMPLES / "single_file_dqn.py"


def load(path: Path) -> ModuleType:
    specification = importlib.util.spec_from_file_location(path.stem, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[path.stem] = module  # dataclasses look their module up
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def example() -> ModuleType:
    return load(EXAMPLE)


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


def test_the_demo_trains_compares_renders_and_reports(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With its own settings, for a few steps on the smallest sea."""
    demo = load(EXAMPLES / "demo.py")
    settings = ("evaluation.period_frames=250", "evaluation.frames=6")
    part = dataclasses.replace(
        demo.PARTS[0], environment="deep_sea/3", seeds=1, frames=500, settings=settings
    )
    demo.main(tmp_path, [part])
    said = capsys.readouterr().out
    table = said[said.index("environment") :].splitlines()[1:3]
    assert [line.split()[1] for line in table] == ["dqn", "noisynet-dqn"]
    assert all(line.endswith("of 1") for line in table)
    for path in (tmp_path / "noisynet-dqn.mp4", tmp_path / "report" / "index.html"):
        assert path.stat().st_size > 10_000
        assert str(path) in said


def test_every_setting_of_the_demo_is_valid() -> None:
    demo = load(EXAMPLES / "demo.py")
    for part in demo.PARTS:
        for agent in demo.AGENTS:
            config = build_config(
                agent, part.environment, frames=part.frames, settings=demo.settings(part, agent)
            )
            assert config.evaluation.period_frames < part.frames
