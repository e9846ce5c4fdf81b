"""The gradient of a roll-out against an implementation in NumPy without automatic differentiation.

The reference computes every environment and every step separately, with weights μ + σ⊙ε of that
environment's own sample.
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
from noisynet.config import ACTOR_CRITIC_AGENTS
from noisynet.layers import NoisyLinear

from .synthetic import NOISY_A3C_AGENTS, Spec, make_actor_critic_agent, observations
from .synthetic import ROLLOUT_STEPS as STEPS

DISCOUNT = 0.9

Floats = NDArray[np.float64]


def make(name: str, *settings: str) -> ActorCriticAgent:
    fixed = [
        "network.hidden=[7]",
        "learning.max_gradient_norm=null",
        f"learning.discount={DISCOUNT}",
    ]
    if name != "a3c":  # enough noise that a wrong sample shows
        fixed.append("exploration.sigma0=0.8")
    return make_actor_critic_agent(name, *fixed, *settings)


def act_rollout(agent: ActorCriticAgent, seed: int = 0) -> Rollout:
    """A roll-out without the end of an episode, with the agent's own actions."""
    rng, count = np.random.default_rng(seed), agent.num_envs
    observation = observations(STEPS + 1, count, seed=seed)
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


# --- the reference in NumPy ----------------------------------------------------------------------


class Affine:
    """y = Wx + b of a layer with the noise of one environment."""

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
        """dx; weight gradients are accumulated."""
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
    """The network with the noise of one environment."""

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
        """Everything of one step that the backward pass needs."""
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
        logits = self.layers["policy"](out)
        pi = np.exp(logits - logits.max())
        return found | {"out": out, "pi": pi / pi.sum(), "v": self.layers["value"](out)}

    def backward(
        self, step: dict[str, Floats], dlogits: Floats, dv: Floats, dh: Floats, dc: Floats
    ) -> tuple[Floats, Floats]:
        """dh and dc of the previous step."""
        dout = self.layers["policy"].backward(step["out"], dlogits)
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


def reference(agent: ActorCriticAgent, rollout: Rollout) -> tuple[dict[str, Floats], float]:
    """The gradient of every parameter, summed over N environments and divided by √N; the loss."""
    exploration, learning = agent.config.exploration, agent.config.learning
    beta = getattr(exploration, "beta", 0.0)
    total: dict[str, Floats] = {}
    loss, count = 0.0, agent.num_envs
    for env in range(count):
        network = OneEnvironment(agent, env)
        zeros = np.zeros(agent.config.network.cells)
        h, c = zeros, zeros
        if agent._lstm_state_at_begin is not None:
            h, c = (state[env].double().numpy() for state in agent._lstm_state_at_begin)
        steps, after = [], []  # of the forward pass, and the LSTM state after each step
        for t in range(STEPS):
            if rollout.begins[t, env]:
                h, c = zeros, zeros
            steps.append(network.forward(rollout.observation[t, env].ravel() * 1.0, h, c))
            h, c = steps[-1].get("h", h), steps[-1].get("c", c)
            after.append((h, c))
        if rollout.begins[STEPS, env]:
            h, c = zeros, zeros
        q = network.forward(rollout.observation[STEPS, env].ravel() * 1.0, h, c)["v"]
        returns = []
        for t in reversed(range(STEPS)):
            if rollout.cut[t, env]:
                q = network.forward(rollout.final[t][env].ravel() * 1.0, *after[t])["v"]
            q = rollout.reward[t, env] + rollout.discount[t, env] * q
            returns.append(q)
        returns.reverse()
        dh, dc = np.zeros_like(zeros), np.zeros_like(zeros)
        for t in reversed(range(STEPS)):
            step, action = steps[t], rollout.action[t, env]
            pi, advantage = step["pi"], returns[t] - step["v"]
            entropy = -(pi * np.log(pi)).sum()
            loss += float(-np.log(pi[action]) * advantage[0]) / count
            loss += float(learning.value_weight * 0.5 * advantage[0] ** 2) / count
            loss -= beta * float(entropy) / count
            chosen = np.eye(len(pi))[action]
            dlogits = (pi - chosen) * advantage + beta * pi * (np.log(pi) + entropy)
            dv = -learning.value_weight * advantage
            root = np.sqrt(count)
            dh, dc = network.backward(step, dlogits / root, dv / root, dh, dc)
            if rollout.begins[t, env]:
                dh, dc = np.zeros_like(zeros), np.zeros_like(zeros)
        for name, gradient in network.gradients().items():
            total[name] = total.get(name, 0) + gradient
    return total, loss


def check(agent: ActorCriticAgent, rollout: Rollout) -> None:
    expected, loss = reference(agent, rollout)
    learnt = agent.learn(rollout)
    views = dict(zip(dict(agent.online.named_parameters()), agent._gradients, strict=True))
    assert views.keys() == expected.keys()
    for name, gradient in views.items():
        largest = np.abs(expected[name]).max()
        assert largest > 1e-6, f"{name} has no gradient here"
        np.testing.assert_allclose(
            gradient.numpy(), expected[name], rtol=1e-3, atol=2e-5 * largest, err_msg=name
        )
    assert learnt.loss == pytest.approx(loss, rel=1e-4)
    norm = np.sqrt(sum((gradient**2).sum() for gradient in expected.values()))
    assert learnt.gradient_norm == pytest.approx(norm, rel=1e-4)
    assert learnt.finite


# --- roll-outs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("envs", [1, 3])
@pytest.mark.parametrize("agent", ACTOR_CRITIC_AGENTS)
def test_an_unfinished_episode_is_bootstrapped(agent: str, envs: int) -> None:
    made = make(agent, f"envs_per_worker={envs}")
    check(made, act_rollout(made))


@pytest.mark.parametrize("t", [STEPS - 1, 2])
@pytest.mark.parametrize("agent", ACTOR_CRITIC_AGENTS)
def test_a_terminal_state_is_not_bootstrapped(agent: str, t: int) -> None:
    made = make(agent)
    rollout = act_rollout(made)
    rollout.discount[t] = 0
    rollout.begins[t + 1] = True
    check(made, rollout)


@pytest.mark.parametrize("t", [STEPS - 1, 2])
@pytest.mark.parametrize("agent", ACTOR_CRITIC_AGENTS)
def test_a_truncated_episode_is_bootstrapped_from_its_final_observation(agent: str, t: int) -> None:
    made = make(agent)
    rollout = act_rollout(made)
    rollout.cut[t] = rollout.begins[t + 1] = True
    final = np.random.default_rng(9).standard_normal((1, 1, 6), dtype=np.float32)
    check(made, dataclasses.replace(rollout, final={t: final}))


def with_episode_ends(rollout: Rollout) -> Rollout:
    """Environment 0 terminates, 1 loses a life, 2 is truncated, and 0 is truncated at the end."""
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
@pytest.mark.parametrize("agent", ACTOR_CRITIC_AGENTS)
def test_environments_with_episode_ends_and_their_own_samples(
    agent: str, settings: tuple[str, ...]
) -> None:
    if agent == "a3c":
        settings = tuple(s for s in settings if s == "recurrent=true")
    made = make(agent, "envs_per_worker=3", *settings)
    made.begin_rollout()
    for seed in range(3):  # the LSTM state is not zero when the roll-out begins
        made.act(observations(3, seed=seed), np.zeros(3, bool))
    check(made, with_episode_ends(act_rollout(made)))


@pytest.mark.parametrize("settings", [(), ("noisy_lstm=true",)], ids=str)
@pytest.mark.parametrize("agent", NOISY_A3C_AGENTS)
def test_the_lstm_state_is_reset_within_a_roll_out(agent: str, settings: tuple[str, ...]) -> None:
    made = make(agent, "recurrent=true", *settings)
    first = act_rollout(made)
    made.learn(first)
    rollout = act_rollout(made, seed=1)  # begins with the LSTM state of the first
    assert made._lstm_state_at_begin is not None
    assert bool(made._lstm_state_at_begin[0].abs().max() > 0)
    rollout.discount[1] = 0
    rollout.begins[2] = True
    check(made, rollout)


@pytest.mark.parametrize("noise", ["independent", "factorised"])
def test_convolutional_networks_have_the_gradient_of_autograd_on_contiguous_weights(
    noise: str,
) -> None:
    """Every weight is a separate contiguous tensor there, not a view of one vector."""
    spec = Spec("atari/pong", 4, (36, 36), "uint8", 2, 1 / 255)
    name = "noisynet-a3c" if noise == "independent" else "noisynet-a3c-factorised"
    settings = ["network.torso=a3c", "network.hidden=[6, 5]", "learning.max_gradient_norm=null"]
    agent = make_actor_critic_agent(name, *settings, spec=spec)
    observation = observations(2, 1, spec=spec)
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


def test_the_gradient_is_clipped_by_its_norm() -> None:
    made = make("a3c")
    rollout = act_rollout(made)
    free = made.learn(rollout)
    whole = made.gradient.clone()
    clipped = make("a3c", "learning.max_gradient_norm=0.01")
    learnt = clipped.learn(act_rollout(clipped))
    assert learnt.gradient_norm == free.gradient_norm > 0.01
    torch.testing.assert_close(clipped.gradient, whole * (0.01 / free.gradient_norm))
    short = make("a3c", "learning.max_gradient_norm=1000")
    short.learn(act_rollout(short))
    assert torch.equal(short.gradient, whole)
