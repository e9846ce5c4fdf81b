"""The panel next to the game."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from noisynet.envs import make_environment
from noisynet.evaluation import evaluate
from noisynet.loops import load_agent
from noisynet.runs import Trace
from noisynet.watch.episode import replay

pytest.importorskip("PIL")

from noisynet.watch.panel import CHOSEN, MARGIN, NOTICE, Panel
from noisynet.watch.video import _caption

from .conftest import NOISY_ACTOR_CRITICS, make_actor_critic, newest_traces

TRACE = Trace("deep_sea/4", 0, np.zeros(4, np.uint8), 0.0, 0, 0, "on")


def marked_actions(panel: Panel, picture: NDArray[np.uint8]) -> list[int]:
    """The actions with a marker."""
    middles = [panel.plot_top + panel.row_height * row + 12 for row in (0, 1)]
    return [row for row, y in enumerate(middles) if tuple(picture[y, MARGIN + 2]) == CHOSEN]


def test_the_panel_marks_the_chosen_action_and_warns_of_other_weights(noisy_run: Path) -> None:
    agent, frames = load_agent(noisy_run)
    trace = newest_traces(noisy_run, "on")[0]
    episode = replay(trace, agent, steps=4, samples=8)
    for shift in (0, 30):
        caption = _caption(trace, agent, frames + shift, 8)
        panel = Panel(caption, episode, trace.actions, 640)
        for step in range(4):
            picture = np.asarray(panel.draw(step))
            assert picture.shape == (640, 480, 3)
            assert marked_actions(panel, picture) == [trace.actions[step]]
            warned = (picture[60:90] == NOTICE).all(axis=2).any()
            assert bool(warned) == (shift > 0)
            assert str(frames + shift) in caption.weights


def test_a_panel_of_many_actions_shows_the_most_frequent(plain_run: Path) -> None:
    agent, frames = load_agent(plain_run)
    trace = newest_traces(plain_run, "off")[0]
    episode = replay(trace, agent, steps=2, samples=1)
    wide = replace(
        episode,
        values=replace(
            episode.values,
            mean_weights=np.zeros((2, 40)),
            spread=np.zeros((2, 40, 5)),
            greedy_share=np.zeros((2, 40)),
        ),
    )
    caption = replace(_caption(trace, agent, frames, 1), actions=[f"action {a}" for a in range(40)])
    chosen = np.full(len(trace.actions), 39, np.uint8)
    panel = Panel(caption, wide, chosen, 100)
    assert panel.rows == [*range(17), 39]
    assert panel.draw(1, "game over").size == (480, panel.height)


@pytest.mark.parametrize("name", ["a3c", *NOISY_ACTOR_CRITICS])
def test_the_panel_of_an_actor_critic_agent(name: str) -> None:
    agent = make_actor_critic(name, "recurrent=true")
    with make_environment("deep_sea/4") as environment:
        result = evaluate(
            agent, environment, frames=8, training_frames=30, noise="on" if agent.noisy else "off"
        )
    trace = result.traces[1]
    episode = replay(trace, agent, steps=4, samples=8)
    assert episode.ended
    caption = _caption(trace, agent, 30, 8)
    assert caption.weights.startswith("π, V and σ of" if agent.noisy else "π and V of")
    assert ("policy" in caption.sigma) == bool(agent.noisy)
    panel = Panel(caption, episode, trace.actions, 640)
    for step in range(4):
        picture = np.asarray(panel.draw(step))
        assert picture.shape == (640, 480, 3)
        assert marked_actions(panel, picture) == [trace.actions[step]]
    assert panel.draw(3, "game over").size == (480, 640)


def test_the_axis_of_probabilities_is_from_0_to_1() -> None:
    agent = make_actor_critic("noisynet-a3c")
    episode = replay(replace(TRACE, score=score_of_action_0()), agent, steps=4, samples=8)
    panel = Panel(_caption(TRACE, agent, 0, 8), episode, TRACE.actions, 640)
    across = [panel._value_x(0, pi) for pi in (0.0, 0.5, 1.0)]
    assert across[1] - across[0] == across[2] - across[1] > 90
    assert panel.plot_left < across[0]
    assert across[2] < panel.plot_right


def score_of_action_0() -> float:
    """The score of always playing action 0."""
    with make_environment("deep_sea/4") as environment:
        environment.start([0])
        score = 0.0
        for _ in range(4):
            score += float(environment.step(np.zeros(1, np.int64)).reward[0])
    return score
