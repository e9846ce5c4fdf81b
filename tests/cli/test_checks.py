"""`noisynet audit` and `noisynet doctor`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from noisynet import agents, doctor
from noisynet.audit import checks

from .calling import invoke

# A module of a user, with an agent whose layers resample before every pass.
OWN = """
import torch
from torch import nn
from noisynet import NoisyLinear, resample_noise

network = nn.Sequential(NoisyLinear(5, 8), nn.ReLU(), NoisyLinear(8, 3))
optimiser = torch.optim.SGD(network.parameters(), 1e-3)

def act():
    resample_noise(network)
    network(torch.randn(1, 5))

def learn():
    optimiser.zero_grad()
    resample_noise(network)
    network(torch.randn(4, 5)).square().mean().backward()
    optimiser.step()

def forgets():
    network(torch.randn(1, 5))

def only_module(): return network
def whole(): return network, act, learn
def named(): return {"module": network, "act": act, "learn": learn, "updates": 15}
def forgetful(): return {"module": network, "act": forgets, "learn": learn, "updates": 15}
def nothing(): return None
def misspelt(): return {"module": network, "acts": act}
def not_callable(): return network, act, 3
def without_noise(): return nn.Linear(2, 2)
def raising(): return {"module": network, "act": lambda: 1 / 0}
class Agents: make = staticmethod(named)
constant = 3
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Audits a function of a module in the current folder."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "audited_module.py").write_text(OWN)
    monkeypatch.delitem(sys.modules, "audited_module", raising=False)
    return lambda function, *options: invoke("audit", f"audited_module:{function}", *options)


@pytest.mark.parametrize("function", ["only_module", "whole", "named", "Agents.make"])
def test_a_function_of_yours_is_audited(own: Callable[..., Any], function: str) -> None:
    ended = own(function)
    assert ended.exit_code == 0, ended.output
    answered = {line[6:59].strip(): line[:4] for line in ended.output.splitlines()[:-1]}
    assert answered[checks.MODE] == "pass"
    expected = "-   " if function == "only_module" else "pass"
    assert answered[checks.ACTING] == answered[checks.GRADIENT] == expected


def test_a_failed_question_exits_1_and_json_is_for_programs(own: Callable[..., Any]) -> None:
    ended = own("forgetful", "--json")
    assert ended.exit_code == 1
    report = json.loads(ended.stdout)
    assert report["passed"] is False
    failed = [check["question"] for check in report["checks"] if check["passed"] is False]
    assert checks.FRESH in failed
    assert json.loads(own("named", "--json").stdout)["passed"] is True


@pytest.mark.parametrize(
    ("function", "told"),
    [
        ("make_it", "of audited_module after the colon, got 'make_it'; it has act, forgetful,"),
        ("", "after the colon, got ''"),
        ("constant", "expected a function, got audited_module:constant, a int"),
        ("nothing", "expected an nn.Module, a Stable-Baselines3 model"),
        ("misspelt", "updates, got acts"),
        ("not_callable", "expected a function without arguments for learn, got a int"),
        ("without_noise", "the audit expected a module with noisy layers"),
        ("raising", "audited_module:raising cannot be audited: it raised ZeroDivisionError"),
    ],
)
def test_what_cannot_be_audited_exits_2(own: Callable[..., Any], function: str, told: str) -> None:
    ended = own(function)
    assert ended.exit_code == 2
    assert told in ended.output


def test_a_module_that_does_not_exist_or_fails_exits_2(
    own: Callable[..., Any], tmp_path: Path
) -> None:
    missing = invoke("audit", "not_there:make")
    assert missing.exit_code == 2
    assert f"<module>:<function> with a module in {tmp_path} or installed" in missing.output
    (tmp_path / "audited_module.py").write_text("1 / 0")
    broken = own("make")
    assert broken.exit_code == 2
    assert "the module of audited_module:make cannot be imported: ZeroDiv" in broken.output


def test_settings_are_refused_for_agents_of_others(own: Callable[..., Any]) -> None:
    ended = own("whole", "--set", "compute=torch")
    assert ended.exit_code == 2
    assert "--set is for agents of noisynet, got audited_module:whole" in ended.output


def test_audit_of_a_noisy_agent_passes() -> None:
    ended = invoke("audit", "noisynet-dqn", "deep_sea/4")
    assert ended.exit_code == 0, ended.output
    assert "FAIL" not in ended.output


def test_audit_of_a_plain_agent_is_refused() -> None:
    ended = invoke("audit", "dqn", "deep_sea/4")
    assert ended.exit_code == 2
    assert "expected a noisy agent, got dqn, which explores by epsilon-greedy" in ended.output


@pytest.mark.parametrize("compute", ["auto", "torch"])
def test_audit_examines_the_configured_compute(
    compute: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []

    def make(config: Any, *arguments: Any) -> Any:
        made.append(config)
        return real(config, *arguments)

    real = agents.make_agent
    monkeypatch.setattr(agents, "make_agent", make)
    ended = invoke("audit", "noisynet-dqn", "deep_sea/4", "--set", f"compute={compute}")
    assert ended.exit_code == 0, ended.output
    assert [config.compute for config in made] == [compute]


@pytest.mark.parametrize(("trust", "told"), [(False, "add --trust"), (True, "not a zip file")])
def test_a_file_of_another_library_is_loaded_only_if_trusted(
    trust: bool, told: str, tmp_path: Path
) -> None:
    (tmp_path / "model.zip").write_bytes(b"nothing")
    ended = invoke("audit", f"sb3:{tmp_path / 'model.zip'}", *(["--trust"] if trust else []))
    assert ended.exit_code == 2
    assert told in ended.output
    missing = invoke("audit", f"sb3:{tmp_path / 'other.zip'}")
    assert missing.exit_code == 2
    assert "other.zip, which does not exist" in missing.output


def test_doctor_exits_1_if_anything_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    findings = [doctor.Finding("python", True, "3.14"), doctor.Finding("games", False, "broken")]
    monkeypatch.setattr(doctor, "examine", lambda: iter(findings))
    ended = invoke("doctor")
    assert ended.exit_code == 1
    assert ended.output.splitlines() == [
        "ok    python           3.14",
        "FAIL  games            broken",
    ]
    monkeypatch.setattr(doctor, "examine", lambda: iter(findings[:1]))
    assert invoke("doctor").exit_code == 0
