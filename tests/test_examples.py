"""The single-file example stays short, needs only the layers, and learns; the demo works."""

from __future__ import annotations

import ast
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


def test_the_demo_trains_compares_renders_and_reports(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its own settings, for a few steps on the smallest seas."""
    demo = load(EXAMPLES / "demo.py")
    # The video is of a short run: a whole one of CartPole takes half a minute.
    first = demo.make_jobs(tmp_path, [2], 1, 500)[1]
    monkeypatch.setattr(demo, "video_run", lambda _: first.folder)
    monkeypatch.setattr(
        demo, "train_on_all_cores", lambda *given: demo.train(demo.make_jobs(*given)[1:])
    )
    demo.main(tmp_path, [2, 3], 1, 500)
    said = capsys.readouterr().out
    head, *rows = said[said.index("solved runs") :].splitlines()[:4]
    assert head.split() == ["solved", "runs", "size", "2", "size", "3"]
    assert all(row.count("of 1") == 2 for row in rows)
    assert [row.split("  ")[0] for row in rows] == [one.title for one in demo.CONTENDERS]
    for name in ("deep-sea.png", "cartpole.mp4", "report/index.html"):
        assert (tmp_path / name).stat().st_size > 10_000
        assert str(tmp_path / name) in said


def test_every_run_of_the_demo_is_valid_and_differs_by_what_it_says(tmp_path: Path) -> None:
    demo = load(EXAMPLES / "demo.py")
    jobs = demo.make_jobs(tmp_path)
    assert len(jobs) == 1 + len(demo.CONTENDERS) * len(demo.SIZES) * demo.SEEDS
    assert len({job.folder for job in jobs}) == len(jobs)
    plain, noisy, held = (
        build_config(
            one.agent, "deep_sea/5", frames=demo.FRAMES, settings=(*demo.SETTINGS, *one.settings)
        )
        for one in demo.CONTENDERS
    )
    assert noisy.model_dump(exclude={"exploration"}) == held.model_dump(exclude={"exploration"})
    assert plain.model_dump(exclude={"exploration", "agent"}) == noisy.model_dump(
        exclude={"exploration", "agent"}
    )
    assert plain.evaluation.period_frames < plain.frames


def test_the_demo_names_the_largest_size_that_most_seeds_solve() -> None:
    demo = load(EXAMPLES / "demo.py")
    assert demo.deepest([5, 3, 2], [5, 10, 15], 5) == "size 10"
    assert demo.deepest([0, 2], [5, 10], 5) == "no size"
