"""`noisynet.check_noise` for networks and agents, and `noisynet audit` for files."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import noisynet
from noisynet import NoisyLinear, check_noise
from noisynet.audit import checks
from noisynet.cli import app
from noisynet.integrations import LIBRARIES, load_agent
from noisynet.integrations.dispatch import audit_arguments, load_saved


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


def test_an_object_that_is_neither_network_nor_agent_raises() -> None:
    with pytest.raises(TypeError, match=r"expected an nn\.Module, .* got a dict"):
        check_noise({"module": NoisyLinear(4, 3)})


def test_a_function_may_return_a_module_a_tuple_or_a_mapping() -> None:
    network = NoisyLinear(4, 3)
    assert audit_arguments(network) == (network, {})
    assert audit_arguments((network, print)) == (network, {"act": print})
    steps = {"act": print, "learn": None, "evaluate": print}
    assert audit_arguments((network, print, None, print)) == (network, steps)
    options = {"target": NoisyLinear(4, 3), "contract": "update"}
    assert audit_arguments({"module": network, **options}) == (network, options)
    for wrong in ((), (network, print, print, print, print), {"act": print}, "agent"):
        with pytest.raises(TypeError, match=r"expected an nn\.Module"):
            audit_arguments(wrong)


def test_the_options_of_a_library_agent_are_those_of_its_own_audit() -> None:
    models = pytest.importorskip("stable_baselines3")
    pytest.importorskip("noisynet.integrations.sb3")
    model = models.DQN("NoisyMlpPolicy", "CartPole-v1", device="cpu")
    assert audit_arguments({"module": model, "updates": 1}) == (model, {"updates": 1})
    with pytest.raises(TypeError, match="expected the options updates, got act"):
        audit_arguments((model, print))


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


def test_an_object_of_the_expected_class_is_loaded(tmp_path: Path) -> None:
    saved = nn.Linear(3, 2)
    torch.save(saved, tmp_path / "layer.pt")
    loaded = load_saved(tmp_path / "layer.pt", (nn.Linear, nn.ReLU), "a layer", "layer")
    assert torch.equal(loaded.weight, saved.weight)


def test_another_class_raises_with_the_line_that_saves_one(tmp_path: Path) -> None:
    path = tmp_path / "layer.pt"
    torch.save(nn.ReLU(), path)
    message = r"expected a layer, saved whole, in .*layer\.pt, got a ReLU; .*torch\.save\(net, path"
    with pytest.raises(ValueError, match=message):
        load_saved(path, (nn.Linear,), "a layer", "net")
    torch.save(nn.ReLU().state_dict(), path)
    with pytest.raises(ValueError, match=r"got a OrderedDict \(a state_dict\?\)"):
        load_saved(path, (nn.Linear,), "a layer", "net")


@pytest.mark.parametrize("content", [b"", b"no pickle"])
def test_an_unreadable_file_raises(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "layer.pt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"got a file that cannot be read: .*; save it with"):
        load_saved(path, (nn.Linear,), "a layer", "net")
