"""`noisynet.check_noise` for networks and agents, and `noisynet audit` for files."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch import nn
from typer.testing import CliRunner

import noisynet
from noisynet import NoisyLinear, check_noise
from noisynet.audit import checks
from noisynet.cli import app
from noisynet.integrations import LIBRARIES, load_agent


def test_a_network_is_audited_as_such() -> None:
    report = check_noise(nn.Sequential(NoisyLinear(4, 3)), updates=15)
    assert report.passed, str(report)
    assert report[checks.ACTING].passed is None


def test_options_are_passed_on() -> None:
    network = NoisyLinear(4, 3)
    report = check_noise(network, selector=NoisyLinear(4, 3), act=lambda: None, updates=1)
    assert report[checks.ACTING].evidence == "no pass went through a noisy layer"
    with pytest.raises(TypeError, match="unexpected keyword argument 'selectors'"):
        check_noise(network, selectors=None)


def test_a_library_network_is_audited_as_a_network() -> None:
    models = pytest.importorskip("stable_baselines3")
    pytest.importorskip("noisynet.integrations.sb3")
    model = models.DQN("NoisyMlpPolicy", "CartPole-v1", device="cpu")
    assert check_noise(model.q_net, updates=1)[checks.ACTING].evidence == "no act given"
    assert check_noise(model, updates=1)[checks.ACTING].evidence == "12 of 12 passes noisy"


def test_an_unknown_library_raises() -> None:
    with pytest.raises(ValueError, match=r"expected one of sb3, torchrl, tianshou .* got 'rllib'"):
        load_agent("rllib", Path("agent"))


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_library_has_the_same_interface(library: str) -> None:
    pytest.importorskip({"sb3": "stable_baselines3"}.get(library, library))
    integration = pytest.importorskip(f"noisynet.integrations.{library}")
    assert {"AGENTS", "audit", "load"} <= set(integration.__all__)
    assert all(isinstance(agent, type) for agent in integration.AGENTS)


def test_check_noise_is_one_function() -> None:
    assert noisynet.check_noise is noisynet.integrations.check_noise


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("sb3:nowhere.zip", "expected a file after sb3:, got nowhere.zip"),
        ("rllib:{file}", "expected one of sb3, torchrl, tianshou before the colon, got 'rllib'"),
    ],
)
def test_the_command_line_rejects_unknown_files_and_libraries(
    argument: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "text.txt").write_text("no model")
    named = argument.format(file=tmp_path / "text.txt")
    result = CliRunner().invoke(app, ["audit", named, "--trust"])
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
