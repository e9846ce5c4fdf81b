"""Exported files compute what the agent does, without noisynet."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from noisynet import Agent
from noisynet.envs import make_environment
from noisynet.export import Exported, export_agent, export_network, plain_network, random_play
from noisynet.layers import noise_off, noisy_layers

WITHOUT_NOISYNET = """
import sys
import numpy, onnxruntime
sys.modules["noisynet"] = sys.modules["torch"] = None
session = onnxruntime.InferenceSession(sys.argv[1])
actions, values = session.run(None, {"observation": numpy.load(sys.argv[2])})
numpy.save(sys.argv[3], actions)
"""


def onnx_actions(model: Path, observations: Any) -> Any:
    """Run a model in a process without noisynet and torch."""
    pytest.importorskip("onnxruntime")
    given, found = model.with_name("given.npy"), model.with_name("found.npy")
    np.save(given, observations)
    code = [sys.executable, "-c", WITHOUT_NOISYNET, str(model), str(given), str(found)]
    subprocess.run(code, check=True, cwd=model.parent)
    return np.load(found)


@pytest.mark.parametrize(
    ("name", "environment", "extra", "inputs"),
    [
        ("noisynet-dqn", "gym/CartPole-v1", "gymnasium", "float32 [batch, 4]"),
        pytest.param(
            *("noisynet-dueling", "minatar/breakout", "minatar", "uint8 [batch, 4, 10, 10]"),
            marks=pytest.mark.slow,
        ),
        ("noisynet-dqn", "atari/pong", "ale_py", "uint8 [batch, 4, 84, 84]"),
    ],
)
def test_the_actions_of_onnxruntime_are_those_of_the_agent(
    name: str, environment: str, extra: str, inputs: str, tmp_path: Path
) -> None:
    pytest.importorskip("onnxscript")
    pytest.importorskip(extra)
    agent = Agent(name, environment, device="cpu", hidden=[32])
    with make_environment(environment, 1) as game:
        played = random_play(game, 200)
    observations = played if played.shape[1] > 1 else played[:, 0]
    last = list(noisy_layers(agent.network).values())[-1]
    assert last.bias_mu is not None
    with torch.no_grad():  # so that no action is the best of all observations
        last.bias_mu.sub_(torch.from_numpy(agent.q_values(observations).mean(axis=0)))
    exported = agent.export(tmp_path / "agent.onnx")
    assert exported.inputs == (f"observation: {inputs}",)
    assert exported.outputs == ("action", "q_values")
    assert exported.observations == 1_000
    actions = agent.predict(observations)
    assert len(np.unique(actions)) > 1
    np.testing.assert_array_equal(onnx_actions(exported.path, observations), actions)


@pytest.mark.parametrize("suffix", [".pt2", ".onnx"])
def test_one_fixed_noise_sample_can_be_exported(suffix: str, tmp_path: Path) -> None:
    if suffix == ".onnx":
        pytest.importorskip("onnxscript")
    agent = Agent("noisynet-dqn", "deep_sea/5", device="cpu")
    with make_environment("deep_sea/5", 1) as game:
        observations = random_play(game, 50)[:, 0]
    path = agent.export(tmp_path / f"agent{suffix}", noise_seed=3).path
    q = torch.from_numpy(agent.q_values(observations))
    if suffix == ".pt2":
        _, values = torch.export.load(path).module()(observation=torch.from_numpy(observations))
        sample = plain_network(agent.network, 3)(torch.from_numpy(observations).unsqueeze(1))
        torch.testing.assert_close(values, sample)
        assert not torch.allclose(values, q)
        assert not torch.allclose(
            sample, plain_network(agent.network, 4)(torch.from_numpy(observations))
        )
    else:
        import onnx

        notes = {prop.key: prop.value for prop in onnx.load(path).metadata_props}
        assert json.loads(notes["noisynet"])["weights"] == "noise sample 3"


def test_discrete_observations_are_encoded_inside(tmp_path: Path) -> None:
    pytest.importorskip("gymnasium")
    agent = Agent("noisynet-dqn", "FrozenLake-v1", device="cpu")
    exported = agent.export(tmp_path / "agent.pt2")
    assert exported.inputs == ("observation: int64 [batch]",)
    states = np.arange(16)
    _, q = torch.export.load(exported.path).module()(observation=torch.from_numpy(states))
    np.testing.assert_allclose(q.numpy(), agent.q_values(states), rtol=1e-5, atol=1e-6)


def test_images_are_transposed_and_scaled_inside(tmp_path: Path) -> None:
    gymnasium: Any = pytest.importorskip("gymnasium")

    class Colours(gymnasium.Env[Any, Any]):  # type: ignore[misc]
        observation_space = gymnasium.spaces.Box(0, 255, (12, 10, 3), np.uint8)
        action_space = gymnasium.spaces.Discrete(2, start=5)

        def reset(self, *, seed: Any = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            return self._image(), {}

        def step(self, action: Any) -> Any:
            return self._image(), 0.0, bool(self.np_random.random() < 0.1), False, {}

        def _image(self) -> Any:
            return self.np_random.integers(256, size=(12, 10, 3), dtype=np.uint8)

    agent = Agent("noisynet-dqn", Colours, device="cpu")
    exported = agent.export(tmp_path / "agent.pt2")
    assert exported.inputs == ("observation: uint8 [batch, 12, 10, 3]",)
    images = np.random.default_rng(0).integers(256, size=(20, 12, 10, 3), dtype=np.uint8)
    actions, q = torch.export.load(exported.path).module()(observation=torch.from_numpy(images))
    np.testing.assert_allclose(q.numpy(), agent.q_values(images), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(actions.numpy(), agent.predict(images))
    assert set(actions.tolist()) <= {5, 6}


def test_a_recurrent_agent_has_its_memory_as_input_and_output(tmp_path: Path) -> None:
    pytest.importorskip("gymnasium")
    agent = Agent("noisynet-a3c", "CartPole-v1", device="cpu", recurrent=True)
    exported = agent.export(tmp_path / "agent.pt2")
    assert [line.partition(":")[0] for line in exported.inputs] == ["observation", "hidden", "cell"]
    assert exported.outputs == ("action", "probabilities", "next_hidden", "next_cell")
    run: Any = torch.export.load(exported.path).module()
    memory: Any = (torch.zeros(1, 64), torch.zeros(1, 64))
    state: Any = None
    for observation in torch.randn(3, 1, 4):
        _, probabilities, *memory = run(observation=observation, hidden=memory[0], cell=memory[1])
        with torch.no_grad(), noise_off(agent.network):
            logits, _, state = agent.network(observation.unsqueeze(1), state)
        torch.testing.assert_close(probabilities, logits.softmax(dim=1))


def test_a_file_that_computes_something_else_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Agent("noisynet-dqn", "deep_sea/4", device="cpu")

    def damaged(network: nn.Module, noise_seed: int | None = None) -> nn.Module:
        plain = plain_network(network, noise_seed)
        for parameter in plain.parameters():
            parameter.add_(0.01)
        return plain

    monkeypatch.setattr("noisynet.export.plain_network", damaged)
    with pytest.raises(ValueError, match=r"outputs that differ by .*: nothing was written"):
        agent.export(tmp_path / "agent.pt2")
    assert not list(tmp_path.iterdir())


def test_wrong_endings_and_noise_of_agents_without_any_are_refused(tmp_path: Path) -> None:
    agent = Agent("dqn", "deep_sea/4", device="cpu")
    with pytest.raises(ValueError, match=r"ending in \.onnx or \.pt2, got .*agent\.tflite"):
        agent.export(tmp_path / "agent.tflite")
    with pytest.raises(ValueError, match="has no noise: expected no noise seed"):
        agent.export(tmp_path / "agent.pt2", noise_seed=1)
    with pytest.raises(ValueError, match=r"ending in \.safetensors"):
        export_network(agent.network, tmp_path / "network.pt")
    assert not list(tmp_path.iterdir())


def test_the_network_is_written_in_plain_layers(tmp_path: Path) -> None:
    from safetensors import safe_open
    from safetensors.torch import load_file

    agent = Agent("noisynet-dqn", "deep_sea/4", device="cpu", hidden=[8])
    path = tmp_path / "network.safetensors"
    made = export_network(agent.network, path)
    assert not noisy_layers(made)
    own = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 2))  # a reader's own code
    weights = {key.removeprefix("head.q."): value for key, value in load_file(path).items()}
    own.load_state_dict(weights)
    x = torch.randn(7, 16)
    with torch.no_grad(), noise_off(agent.network):
        torch.testing.assert_close(own(x), agent.network(x.unsqueeze(1)))
    with safe_open(path, "pt") as file:
        assert (
            "Linear(in_features=16, out_features=8, bias=True)" in file.metadata()["architecture"]
        )


def test_export_agent_describes_what_it_wrote(tmp_path: Path) -> None:
    agent = Agent("noisynet-dqn", "deep_sea/4", device="cpu")
    with make_environment("deep_sea/4", 1) as game:
        made = export_agent(agent._agent, game, tmp_path / "new" / "agent.pt2")
    assert isinstance(made, Exported)
    assert made.path.exists()
    assert made.difference < 1e-5
