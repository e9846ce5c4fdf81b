"""The script in examples/cleanrl_dqn.md runs, learns and keeps the noise contract."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from noisynet import record_noise

pytest.importorskip("gymnasium", reason="pip install 'noisynet[gym]'")

DOCUMENT = Path(__file__).parents[2] / "examples" / "cleanrl_dqn.md"
LAYERS = 3


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", DOCUMENT.read_text(), re.M | re.S)


@pytest.fixture
def script() -> Iterator[ModuleType]:
    (source,) = blocks("python")
    module = ModuleType("cleanrl_dqn")
    sys.modules[module.__name__] = module  # dataclasses need it
    exec(compile(source, str(DOCUMENT), "exec"), module.__dict__)
    yield module
    del sys.modules[module.__name__]


def test_the_script_is_short_and_contains_the_lines_of_the_diff() -> None:
    (source,), (diff,) = blocks("python"), blocks("diff")
    assert len(source.splitlines()) < 120
    added = [line[1:] for line in diff.splitlines() if line.startswith("+")]
    for name in ("NoisyLinear(", "noise_off(", "resample_noise("):
        assert any(name in line for line in added)
        assert name in source
    assert "epsilon" not in source


def test_every_pass_of_training_has_fresh_noise_and_evaluation_has_none(
    script: ModuleType,
) -> None:
    args = script.Args(total_timesteps=300, learning_starts=200)
    updates = (args.total_timesteps - args.learning_starts) // args.train_frequency
    agent = script.Agent(args)
    with record_noise({"online": agent.q_network, "target": agent.target_network}) as log:
        script.train(agent)
        log.label = "evaluation"
        agent.evaluate(episodes=2)
    training = log.select("", "online", with_gradient=True)
    acting = log.select("", "online", with_gradient=False)
    assert len(acting) == LAYERS * args.total_timesteps
    assert len(training) == LAYERS * updates
    online = {"passes": LAYERS * (args.total_timesteps + updates)}
    assert log.counts("", "online") == online | dict.fromkeys(
        ("noisy", "distinct"), online["passes"]
    )
    target = LAYERS * updates
    assert log.counts("", "target") == {"passes": target, "noisy": target, "distinct": target}
    evaluation = log.counts("evaluation")
    assert evaluation["passes"] > 0
    assert evaluation["noisy"] == 0


def test_the_audit_of_the_script_passes(script: ModuleType) -> None:
    agent = script.Agent(script.Args(total_timesteps=64))
    script.train(agent)
    report = script.audit(agent)
    assert report.passed, str(report)


@pytest.mark.slow
def test_the_script_learns_cartpole(script: ModuleType) -> None:
    agent = script.Agent(script.Args())
    script.train(agent)
    assert agent.evaluate() > 150  # a random policy returns about 20
