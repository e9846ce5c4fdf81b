"""The gradient of one roll-out, worked out in NumPy: forward, returns and backward by hand.

The transcription below knows nothing of autograd: every derivative is written down. It takes each
environment and each step by itself, with weights μ + σ⊙ε of that environment's own noise.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from noisynet.agents import ActorCriticAgent, Rollout
from noisynet.config import ActorCriticConfig, build_config
from noisynet.envs import EnvironmentSpec
from noisynet.layers import NoisyLinear

SPEC = EnvironmentSpec("deep_sea/4", 3, (6,), "float32", 1, 1, 1.0)
DISCOUNT = 0.9
STEPS = 5
AGENTS = ("a3c", "noisynet-a3c", "noisynet-a3c-factorised")

Floats = NDArray[np.float64]


def make(name: str, *settings: str) -> ActorCriticAgent:
    fixed = [
        "network.hidden=[7]",
        "network.cells=4",
        "envs_per_worker=1",
        "learning.max_gradient_norm=null",
        f"learning.discount={DISCOUNT}",
    ]
    if name != "a3c":  # enough noise that a wrong sample shows
        fixed.append("exploration.sigma0=0.8")
    return agent_of(name, SPEC, *fixed, *settings)


def agent_of(name: str, spec: EnvironmentSpec, *settings: str) -> ActorCriticAgent:
    config = build_config(name, spec.name, settings=settings)
    assert isinstance(config, ActorCriticConfig)
    return ActorCriticAgent(config, spec)


def played(agent: ActorCriticAgent, seed: int = 0) -> Rollout:
    """A roll-out under way in every environment, acted by the agent itself."""
    rng, count = np.random.default_rng(seed), agent.num_envs
    shape = (STEPS + 1, count, 1, 6)
    observation = rng.standard_normal(shape, dtype=np.float32)
    begins = np.zeros((STEPS + 1, count), bool)
    agent.begin_rollout()
    action = np.stack([agent.act(observation[t], begins[t]) for t in range(STEPS)])
    return Rollout(
        observation=observation,
        action=action,
        reward=rng.standard_normal((STEPS, count), dtype=np.float32),
        discount=np.full((STEPS, count), DISCOUNT, np.float32),
        begins=begins,
        cut=np.zeros((STEPS, count), bool),
    )


# --- the transcription ---------------------------------------------------------------------------


class Affine:
    """y = Wx + b of a layer of the network, with the noise of one environment."""

    def __init__(self, layer: Any, env: int, suffix: str = "") -> None:
        def array(value: torch.Tensor) -> Floats:
            return value.detach().double().numpy()

        self.noisy = isinstance(layer, NoisyLinear)
        if not self.noisy:  # nn.Linear, or one of the two matrices of nn.LSTMCell
            self.w = array(getattr(layer, f"weight{suffix}"))
            self.b = array(getattr(layer, f"bias{suffix}"))
            self.names = (f"weight{suffix}", f"bias{suffix}")
        else:
            noise = {
                name: array(value[env] if layer.rows is not None else value)
                for name, value in layer.named_buffers()
            }
            if layer.noise == "factorised":
                self.epsilon_w = np.outer(noise["epsilon_out"], noise["epsilon_in"])
                self.epsilon_b = noise["epsilon_out"]
            else:
                self.epsilon_w, self.epsilon_b = noise["epsilon_weight"], noise["epsilon_bias"]
            self.w = array(layer.weight_mu) + array(layer.weight_sigma) * self.epsilon_w
            self.b = array(layer.bias_mu) + array(layer.bias_sigma) * self.epsilon_b
        self.dw, self.db = np.zeros_like(self.w), np.zeros_like(self.b)

    def __call__(self, x: Floats) -> Floats:
        return self.w @ x + self.b

    def backward(self, x: Floats, dy: Floats) -> Floats:
        """dx; the gradients of the weights are added up."""
        self.dw += np.outer(dy, x)
        self.db += dy
        return self.w.T @ dy

    def gradients(self) -> dict[str, Floats]:
        if not self.noisy:
            return dict(zip(self.names, (self.dw, self.db), strict=True))
        return {
            "weight_mu": self.dw,
            "bias_mu": self.db,
            "weight_sigma": self.dw * self.epsilon_w,
            "bias_sigma": self.db * self.epsilon_b,
        }


def sigmoid(x: Floats) -> Floats:
    return 1 / (1 + np.exp(-x))


class OneEnvironment:
    """The network with the noise of one environment, stepped forward and then backward."""

    def __init__(self, agent: ActorCriticAgent, env: int) -> None:
        network = agent.online
        self.layers = {
            "hidden.0": Affine(network.hidden[0], env),
            "policy": Affine(network.policy, env),
            "value": Affine(network.value, env),
        }
        self.cell = network.cell is not None
        if isinstance(network.cell, torch.nn.LSTMCell):
            self.layers["cell "] = Affine(network.cell, env, "_ih")
            self.layers["cell  "] = Affine(network.cell, env, "_hh")
        elif network.cell is not None:
            self.layers["cell.input_gates"] = Affine(network.cell.input_gates, env)
            self.layers["cell.hidden_gates"] = Affine(network.cell.hidden_gates, env)
        self.recurrent = list(self.layers.values())[3:]

    def forward(self, x: Floats, h: Floats, c: Floats) -> dict[str, Floats]:
        """Everything of one step that the way back needs."""
        z = self.layers["hidden.0"](x)
        found = {"x": x, "z": z, "y": np.maximum(z, 0), "h0": h, "c0": c}
        out = found["y"]
        if self.cell:
            inputs, hiddens = self.recurrent
            i, f, g, o = np.split(inputs(found["y"]) + hiddens(h), 4)
            i, f, g, o = sigmoid(i), sigmoid(f), np.tanh(g), sigmoid(o)
            c1 = f * c + i * g
            out = o * np.tanh(c1)
            found |= {"i": i, "f": f, "g": g, "o": o, "c": c1, "h": out}
        preference = self.layers["policy"](out)
        pi = np.exp(preference - preference.max())
        return found | {"out": out, "pi": pi / pi.sum(), "v": self.layers["value"](out)}

    def backward(
        self, step: dict[str, Floats], dpreference: Floats, dv: Floats, dh: Floats, dc: Floats
    ) -> tuple[Floats, Floats]:
        """One step back: dh and dc of the step before."""
        dout = self.layers["policy"].backward(step["out"], dpreference)
        dout = dout + self.layers["value"].backward(step["out"], dv)
        if self.cell:
            inputs, hiddens = self.recurrent
            dh = dout + dh
            tanh = np.tanh(step["c"])
            dc = dc + dh * step["o"] * (1 - tanh**2)
            i, f, g, o = (step[name] for name in "ifgo")
            dgates = np.concatenate(
                [
                    dc * g * i * (1 - i),
                    dc * step["c0"] * f * (1 - f),
                    dc * i * (1 - g**2),
                    dh * tanh * o * (1 - o),
                ]
            )
            dout = inputs.backward(step["y"], dgates)
            dh, dc = hiddens.backward(step["h0"], dgates), dc * f
        self.layers["hidden.0"].backward(step["x"], dout * (step["z"] > 0))
        return dh, dc

    def gradients(self) -> dict[str, Floats]:
        return {
            f"{name.strip()}.{parameter}": gradient
            for name, layer in self.layers.items()
            for parameter, gradient in layer.gradients().items()
        }


def by_hand(agent: ActorCriticAgent, rollout: Rollout) -> tuple[dict[str, Floats], float]:
    """The gradient of every parameter, and the loss."""
    exploration, learning = agent.config.exploration, agent.config.learning
    beta = getattr(exploration, "beta", 0.0)
    total: dict[str, Floats] = {}
    loss, count = 0.0, agent.num_envs
    for env in range(count):
        network = OneEnvironment(agent, env)
        blank = np.zeros(agent.config.network.cells)
        h, c = blank, blank
        if agent._memory_at_begin is not None:
            h, c = (part[env].double().numpy() for part in agent._memory_at_begin)
        steps, after = [], []  # what is remembered after each step
        for t in range(STEPS):
            if rollout.begins[t, env]:
                h, c = blank, blank
            steps.append(network.forward(rollout.observation[t, env].ravel() * 1.0, h, c))
            h, c = steps[-1].get("h", h), steps[-1].get("c", c)
            after.append((h, c))
        if rollout.begins[STEPS, env]:
            h, c = blank, blank
        q = network.forward(rollout.observation[STEPS, env].ravel() * 1.0, h, c)["v"]
        returns = []
        for t in reversed(range(STEPS)):
            if rollout.cut[t, env]:
                q = network.forward(rollout.final[t][env].ravel() * 1.0, *after[t])["v"]
            q = rollout.reward[t, env] + rollout.discount[t, env] * q
            returns.append(q)
        returns.reverse()
        dh, dc = np.zeros_like(blank), np.zeros_like(blank)
        for t in reversed(range(STEPS)):
            step, action = steps[t], rollout.action[t, env]
            pi, advantage = step["pi"], returns[t] - step["v"]
            entropy = -(pi * np.log(pi)).sum()
            loss += float(-np.log(pi[action]) * advantage[0]) / count
            loss += float(learning.value_weight * 0.5 * advantage[0] ** 2) / count
            loss -= beta * float(entropy) / count
            chosen = np.eye(len(pi))[action]
            dpreference = (pi - chosen) * advantage + beta * pi * (np.log(pi) + entropy)
            dv = -learning.value_weight * advantage
            dh, dc = network.backward(step, dpreference / count, dv / count, dh, dc)
            if rollout.begins[t, env]:
                dh, dc = np.zeros_like(blank), np.zeros_like(blank)
        for name, gradient in network.gradients().items():
            total[name] = total.get(name, 0) + gradient
    return total, loss


def check(agent: ActorCriticAgent, rollout: Rollout) -> None:
    expected, loss = by_hand(agent, rollout)
    learnt = agent.learn(rollout)
    views = dict(zip(dict(agent.online.named_parameters()), agent._gradients, strict=True))
    assert views.keys() == expected.keys()
    for name, gradient in views.items():
        largest = np.abs(expected[name]).max()
        assert largest > 1e-6, f"{name} learns nothing here"
        np.testing.assert_allclose(
            gradient.numpy(), expected[name], rtol=1e-3, atol=2e-5 * largest, err_msg=name
        )
    assert learnt.loss == pytest.approx(loss, rel=1e-4)
    norm = np.sqrt(sum((gradient**2).sum() for gradient in expected.values()))
    assert learnt.gradient_norm == pytest.approx(norm, rel=1e-4)
    assert learnt.finite


# --- roll-outs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("envs", [1, 3])
@pytest.mark.parametrize("agent", AGENTS)
def test_a_roll_out_under_way_is_bootstrapped(agent: str, envs: int) -> None:
    made = make(agent, f"envs_per_worker={envs}")
    check(made, played(made))


@pytest.mark.parametrize("t", [STEPS - 1, 2])
@pytest.mark.parametrize("agent", AGENTS)
def test_a_roll_out_with_a_terminal_state(agent: str, t: int) -> None:
    made = make(agent)
    rollout = played(made)
    rollout.discount[t] = 0
    rollout.begins[t + 1] = True
    check(made, rollout)


@pytest.mark.parametrize("t", [STEPS - 1, 2])
@pytest.mark.parametrize("agent", AGENTS)
def test_a_roll_out_with_an_episode_that_was_cut(agent: str, t: int) -> None:
    made = make(agent)
    rollout = played(made)
    rollout.cut[t] = rollout.begins[t + 1] = True
    final = np.random.default_rng(9).standard_normal((1, 1, 6), dtype=np.float32)
    check(made, dataclasses.replace(rollout, final={t: final}))


def eventful(rollout: Rollout) -> Rollout:
    """Environment 0 ends a game, 1 loses a life, 2 is cut in the midst and 0 at the end."""
    rollout.discount[1, 0] = 0
    rollout.begins[2, 0] = True
    rollout.discount[3, 1] = 0
    rollout.cut[2, 2] = rollout.begins[3, 2] = True
    rollout.cut[STEPS - 1, 0] = rollout.begins[STEPS, 0] = True
    rng = np.random.default_rng(9)
    final = {t: rng.standard_normal((3, 1, 6), dtype=np.float32) for t in (2, STEPS - 1)}
    return dataclasses.replace(rollout, final=final)


@pytest.mark.parametrize(
    "settings",
    [(), ("exploration.layers=heads",), ("recurrent=true",), ("recurrent=true", "noisy_lstm=true")],
    ids=str,
)
@pytest.mark.parametrize("agent", AGENTS)
def test_a_batch_of_eventful_roll_outs_each_with_noise_of_its_own(
    agent: str, settings: tuple[str, ...]
) -> None:
    if agent == "a3c":
        settings = tuple(s for s in settings if s == "recurrent=true")
    made = make(agent, "envs_per_worker=3", *settings)
    made.begin_rollout()
    for seed in range(3):  # the LSTM remembers something when the roll-out begins
        noise = np.random.default_rng(seed).standard_normal((3, 1, 6), dtype=np.float32)
        made.act(noise, np.zeros(3, bool))
    check(made, eventful(played(made)))


@pytest.mark.parametrize("settings", [(), ("noisy_lstm=true",)], ids=str)
@pytest.mark.parametrize("agent", AGENTS[1:])
def test_a_recurrent_roll_out_with_an_episode_that_begins_inside(
    agent: str, settings: tuple[str, ...]
) -> None:
    made = make(agent, "recurrent=true", *settings)
    first = played(made)
    made.learn(first)
    rollout = played(made, seed=1)  # goes on from what is remembered of the first
    assert made._memory_at_begin is not None
    assert bool(made._memory_at_begin[0].abs().max() > 0)
    rollout.discount[1] = 0
    rollout.begins[2] = True
    check(made, rollout)


@pytest.mark.parametrize("noise", ["independent", "factorised"])
def test_convolutions_and_layers_above_them_get_the_gradient_of_plain_torch(noise: str) -> None:
    """One step that ends the game, with every weight a tensor by itself in torch's own layout."""
    spec = EnvironmentSpec("atari/pong", 4, (36, 36), "uint8", 2, 1, 1 / 255)
    name = "noisynet-a3c" if noise == "independent" else "noisynet-a3c-factorised"
    fixed = ["network.hidden=[6, 5]", "learning.max_gradient_norm=null", "envs_per_worker=1"]
    agent = agent_of(name, spec, *fixed, "network.torso=a3c")
    observation = np.random.default_rng(0).integers(256, size=(2, 1, 2, 36, 36), dtype=np.uint8)
    rollout = Rollout(
        observation=observation,
        action=np.array([[2]]),
        reward=np.array([[3.0]], np.float32),
        discount=np.zeros((1, 1), np.float32),
        begins=np.array([[False], [True]]),
        cut=np.zeros((1, 1), bool),
    )
    agent.begin_rollout()
    first = agent.online.get_parameter("torso.layers.0.weight")
    assert first.is_contiguous(memory_format=torch.channels_last)
    leaves = {
        name: parameter.detach().clone(memory_format=torch.contiguous_format).requires_grad_()
        for name, parameter in agent.online.named_parameters()
    }

    def affine(name: str, x: torch.Tensor) -> torch.Tensor:
        layer = agent.online.get_submodule(name)
        assert isinstance(layer, NoisyLinear)
        noise = dict(layer.named_buffers())
        if layer.noise == "factorised":
            weight = torch.outer(noise["epsilon_out"], noise["epsilon_in"])
            bias = noise["epsilon_out"]
        else:
            weight, bias = noise["epsilon_weight"], noise["epsilon_bias"]
        return F.linear(
            x,
            leaves[f"{name}.weight_mu"] + leaves[f"{name}.weight_sigma"] * weight,
            leaves[f"{name}.bias_mu"] + leaves[f"{name}.bias_sigma"] * bias,
        )

    x = torch.from_numpy(observation[0]).float() / 255
    for layer, stride in (("torso.layers.0", 4), ("torso.layers.2", 2)):
        x = F.conv2d(x, leaves[f"{layer}.weight"], leaves[f"{layer}.bias"], stride).relu()
    x = affine("hidden.2", affine("hidden.0", x.flatten(1)).relu()).relu()
    advantage = 3.0 - affine("value", x)[0, 0]
    log_pi = F.log_softmax(affine("policy", x), dim=1)[0, 2]
    (-log_pi * advantage.detach() + 0.25 * advantage.square()).backward()
    agent.learn(rollout)
    views = dict(zip(leaves, agent._gradients, strict=True))
    for name, leaf in leaves.items():
        assert leaf.grad is not None
        torch.testing.assert_close(views[name], leaf.grad, rtol=1e-3, atol=1e-6, msg=name)


def test_a_long_gradient_is_clipped_to_the_longest_allowed() -> None:
    made = make("a3c")
    rollout = played(made)
    free = made.learn(rollout)
    whole = made.gradient.clone()
    clipped = make("a3c", "learning.max_gradient_norm=0.01")
    learnt = clipped.learn(played(clipped))
    assert learnt.gradient_norm == free.gradient_norm > 0.01
    torch.testing.assert_close(clipped.gradient, whole * (0.01 / free.gradient_norm))
    short = make("a3c", "learning.max_gradient_norm=1000")
    short.learn(played(short))
    assert torch.equal(short.gradient, whole)
