"""Watching an actor-critic agent: π of each action and V, under many draws of the noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from noisynet.agents import ActorCriticAgent
from noisynet.config import ActorCriticConfig, build_config
from noisynet.envs import make_environment
from noisynet.evaluation import evaluate
from noisynet.layers import noise_off, resample_noise
from noisynet.networks import view_with_own_noise
from noisynet.runs import Trace
from noisynet.watch.episode import play

pytest.importorskip("av")

from noisynet.watch.panel import CHOSEN, MARGIN, Panel
from noisynet.watch.value_sampling import PolicyMeter
from noisynet.watch.video import _caption

TRACE = Trace("deep_sea/4", 0, np.zeros(4, np.uint8), 0.0, 0, 0, "on")
NOISY = ("noisynet-a3c", "noisynet-a3c-factorised")


def make(name: str, *settings: str) -> ActorCriticAgent:
    fixed = ["network.hidden=[16]", "network.cells=8"]
    fixed += [] if name == "a3c" else ["exploration.sigma0=0.5"]
    config = build_config(name, "deep_sea/4", settings=[*fixed, *settings])
    assert isinstance(config, ActorCriticConfig)
    with make_environment("deep_sea/4") as environment:
        return ActorCriticAgent(config, environment.spec)


def states(count: int) -> NDArray[np.float32]:
    return np.eye(16, dtype=np.float32)[:count, None]  # [T, 1, 16]


def measured(agent: ActorCriticAgent, count: int, samples: int, at_once: int = 1) -> PolicyMeter:
    meter = PolicyMeter(agent, TRACE, samples)
    for first in range(0, count, at_once):
        meter.add(states(count)[first : first + at_once])
    return meter


@pytest.mark.parametrize("recurrent", [False, True], ids=["feed-forward", "recurrent"])
@pytest.mark.parametrize("name", NOISY)
def test_the_spread_is_that_of_as_many_draws_of_the_network(name: str, recurrent: bool) -> None:
    """Against drawing one network after the other and leading it through the episode."""
    settings = ("recurrent=true", "noisy_lstm=true") if recurrent else ()
    agent = make(name, *settings)
    values = measured(agent, 3, 400).values()
    network, stream = view_with_own_noise(agent.online), torch.Generator().manual_seed(1)

    def through() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        found, memory = [], None
        for state in torch.from_numpy(states(3)):
            preference, value, memory = network(state[None], memory)
            found.append((preference.softmax(1)[0].numpy(), value[0].numpy()))
        return np.stack([pi for pi, _ in found]), np.stack([v for _, v in found])

    drawn = []
    with torch.no_grad():
        for _ in range(800):
            resample_noise(network, stream)
            drawn.append(through())
        with noise_off(network):
            mean_pi, mean_v = through()
    pi, v = (np.stack(part) for part in zip(*drawn, strict=True))  # [800, 3, 2] and [800, 3]
    assert values.state_value is not None
    assert values.mean_state_value is not None
    np.testing.assert_allclose(values.mean_weights, mean_pi, rtol=1e-4)
    np.testing.assert_allclose(values.mean_state_value, mean_v, rtol=1e-4, atol=1e-6)
    for found, one in ((values.draws, pi), (values.state_value, v)):
        spread = one.std(axis=0).max()
        lower, upper = np.quantile(one, (0.25, 0.75), axis=0)
        for column, expected in ((1, lower), (2, one.mean(axis=0)), (3, upper)):
            assert np.abs(found[..., column] - expected).max() < 0.25 * spread
        assert (np.diff(found[..., [0, 1, 3, 4]], axis=-1) > 0).all()
    np.testing.assert_allclose(values.draws[..., 2].sum(axis=1), 1, rtol=1e-6)


@pytest.mark.parametrize("settings", [(), ("recurrent=true",)], ids=str)
@pytest.mark.parametrize("name", ["a3c", *NOISY])
def test_states_are_measured_alike_one_by_one_and_together(
    name: str, settings: tuple[str, ...]
) -> None:
    agent = make(name, *settings)
    one, together = (measured(agent, 6, 5, at_once).values() for at_once in (1, 4))
    np.testing.assert_allclose(one.draws, together.draws, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(one.state_value, together.state_value, rtol=1e-4, atol=1e-6)  # type: ignore[arg-type]


def test_a_plain_policy_is_its_own_spread() -> None:
    values = measured(make("a3c"), 3, 32).values()
    assert (values.draws == values.mean_weights[..., None]).all()
    assert values.state_value is not None
    assert values.mean_state_value is not None
    assert (values.state_value == values.mean_state_value[:, None]).all()


def test_measuring_leaves_the_agent_as_it_is() -> None:
    agent = make("noisynet-a3c")
    agent.begin_rollout()
    before = {name: value.clone() for name, value in agent.online.named_buffers()}
    state = agent.streams["rollout"].get_state()
    measured(agent, 3, 8)
    assert torch.equal(agent.streams["rollout"].get_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in agent.online.named_buffers())


@pytest.mark.parametrize("name", ["a3c", *NOISY])
def test_an_evaluated_episode_is_played_again_and_drawn(name: str) -> None:
    agent = make(name, "recurrent=true")
    with make_environment("deep_sea/4") as environment:
        result = evaluate(
            agent, environment, frames=8, training_frames=30, noise="on" if agent.noisy else "off"
        )
    trace = result.traces[1]
    played = play(trace, agent, steps=4, samples=8)
    assert played.ended
    caption = _caption(trace, agent, 30, 8)
    assert caption.weights.startswith("π, V and σ of" if agent.noisy else "π and V of")
    assert ("policy" in caption.sigma) == bool(agent.noisy)
    panel = Panel(caption, played, trace.actions, 640)
    for step in range(4):
        picture = np.asarray(panel.draw(step))
        assert picture.shape == (640, 480, 3)
        middles = [panel.plot_top + panel.row_height * row + 12 for row in (0, 1)]
        marked = [tuple(picture[y, MARGIN + 2]) == CHOSEN for y in middles]
        assert marked == [action == trace.actions[step] for action in (0, 1)]
    assert panel.draw(3, "game over").size == (480, 640)


def test_probabilities_stand_on_a_scale_from_nought_to_one() -> None:
    agent = make("noisynet-a3c")
    played = play(replace(TRACE, score=sum_of_zeros(agent)), agent, steps=4, samples=8)
    panel = Panel(_caption(TRACE, agent, 0, 8), played, TRACE.actions, 640)
    across = [panel._across(0, pi) for pi in (0.0, 0.5, 1.0)]
    assert across[1] - across[0] == across[2] - across[1] > 90
    assert panel.plot_left < across[0]
    assert across[2] < panel.plot_right


def sum_of_zeros(agent: ActorCriticAgent) -> float:
    """The score of always playing action 0."""
    with make_environment("deep_sea/4") as environment:
        environment.start([0])
        score = 0.0
        for _ in range(4):
            score += float(environment.step(np.zeros(1, np.int64)).reward[0])
    return score
