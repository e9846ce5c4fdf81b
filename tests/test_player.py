"""What an agent can do with its weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from noisynet import Agent, noise_off
from noisynet.evaluation import evaluation_modes

SHORT: dict[str, Any] = {"starts_steps": 30, "hidden": [16], "batch_size": 8}
A3C: dict[str, Any] = {"workers": 1, "hidden": [16]}


def agent(name: str = "noisynet-dqn", environment: Any = "CartPole-v1", **more: Any) -> Agent:
    return Agent(name, environment, **{**(A3C if "a3c" in name else SHORT), **more})


def learnt(made: Agent, steps: int) -> Agent:
    return made.learn(steps, progress=False)


def observations(count: int = 3) -> Any:
    game = gymnasium.make("CartPole-v1")
    return np.stack([game.reset(seed=seed)[0] for seed in range(count)])


def test_predictions_are_greedy_in_the_mean_weights() -> None:
    made, batch = learnt(agent(), 60), observations()
    q = made.q_values(batch)
    with torch.no_grad(), noise_off(made.network):
        expected = made.network(torch.from_numpy(batch[:, None])).numpy()
    assert np.array_equal(q, expected)
    actions = made.predict(batch)
    assert isinstance(actions, np.ndarray)
    assert np.array_equal(actions, q.argmax(axis=1))
    one = made.predict(batch[0])
    assert isinstance(one, int)
    assert one == actions[0]
    assert made.q_values(batch[0]).shape == (2,)
    assert np.array_equal(made.q_values(batch), q)


def test_noise_is_sampled_at_each_call_and_for_each_row() -> None:
    made, one = learnt(agent(), 60), observations(1)
    first, second = (made.q_values(np.repeat(one, 2, axis=0), noise=True) for _ in range(2))
    assert len({row.tobytes() for row in (*first, *second)}) == 4
    with pytest.raises(ValueError, match="dqn has no noise: expected noise=False"):
        agent("dqn").predict(one, noise=True)


def test_actions_have_the_numbers_of_the_environment() -> None:
    class Shifted(gymnasium.Wrapper[Any, Any, Any, Any]):
        def __init__(self, game: Any) -> None:
            super().__init__(game)
            self.action_space = gymnasium.spaces.Discrete(2, start=5)

        def step(self, action: Any) -> Any:
            return self.env.step(action - 5)

    made = learnt(agent(environment=Shifted(gymnasium.make("CartPole-v1"))), 60)
    actions = made.predict(observations())
    assert np.array_equal(np.asarray(actions) - 5, made.q_values(observations()).argmax(axis=1))


def test_evaluation_has_both_modes_and_is_that_of_a_run() -> None:
    made = learnt(agent(), 60)
    for noise, result in evaluation_modes(made._agent, 60, episodes=4):
        found = made.evaluate(4, noise=noise == "on")
        assert found.noise == (noise == "on")
        assert found.mean == result.score == pytest.approx(found.returns.mean())
        assert found.standard_deviation == pytest.approx(found.returns.std(ddof=1))
        assert found.returns.shape == (4,)
    assert made.evaluate(2).noise
    assert "2 episodes with noise" in str(made.evaluate(2))
    assert not agent(**{"exploration.evaluation": "off"}).evaluate(1).noise
    assert not agent("dqn").evaluate(1).noise
    with pytest.raises(ValueError, match="expected episodes to be at least 1"):
        made.evaluate(0)


def test_a_video_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("av")
    monkeypatch.chdir(tmp_path)
    made = learnt(agent(), 60)
    assert made.watch("game.mp4", max_steps=2) == Path("game.mp4")
    assert (tmp_path / "game.mp4").stat().st_size > 1_000
    assert [path.name for path in tmp_path.iterdir()] == ["game.mp4"]
    with pytest.raises(ValueError, match=r"expected an output that ends in \.mp4"):
        made.watch("game.avi")


def test_a_recurrent_agent_plays_episodes_only() -> None:
    made = agent("a3c", recurrent=True)
    with pytest.raises(TypeError, match="needs every observation of an episode"):
        made.predict(observations())
    assert made.evaluate(1).returns.shape == (1,)


def test_value_agents_have_no_probabilities() -> None:
    with pytest.raises(TypeError, match="noisynet-dqn has no action probabilities; use q_values"):
        agent().action_probabilities(observations())
