"""The panel of distributions next to that of values."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from noisynet.watch.episode import ReplayedEpisode
from noisynet.watch.value_sampling import SampledValues

pytest.importorskip("PIL")

from noisynet.loops import load_agent
from noisynet.watch.distribution_panel import WIDTH, DistributionPanel
from noisynet.watch.episode import replay
from noisynet.watch.panel import CHOSEN, OTHER, PLOT, TEXT, Caption
from noisynet.watch.video import _caption

from .conftest import newest_traces

ATOMS = tuple(float(atom) for atom in range(-5, 6))  # 11
STEPS, ACTIONS = 3, 2


def caption(*, noisy: bool = False, actions: int = ACTIONS) -> Caption:
    return Caption(
        title="agent",
        episode="episode",
        weights="weights",
        weights_differ=False,
        actions=[f"action {action}" for action in range(actions)],
        sigma={"logits.0": (0.1, 0.1)} if noisy else {},
        samples=8,
        total_steps=STEPS,
        atoms=ATOMS,
    )


def point(value: float) -> NDArray[np.float64]:
    return np.array([float(atom == value) for atom in ATOMS])


def episode(distribution: NDArray[np.float64], mixture: NDArray[np.float64]) -> ReplayedEpisode:
    """Of states with these distributions [T, A, N]."""
    q = distribution @ np.array(ATOMS)
    values = SampledValues(
        q, np.repeat(q[..., None], 5, axis=2), q, distribution=distribution, mixture=mixture
    )
    returns = np.array([2.0, -1.0, 0.0])[: len(distribution)]
    rewards = np.zeros(len(returns))
    return ReplayedEpisode(rewards, returns, ended=True, values=values, actions=())


def panel_of(
    distribution: NDArray[np.float64], mixture: NDArray[np.float64] | None = None
) -> DistributionPanel:
    shown = episode(distribution, distribution if mixture is None else mixture)
    chosen = np.array([0, 1, 0], np.uint8)
    return DistributionPanel(caption(noisy=mixture is not None), shown, chosen, 640)


def pixels(picture: NDArray[np.uint8], colour: tuple[int, int, int]) -> NDArray[np.int64]:
    """The coordinates (y, x) of the pixels of a colour, inside the rows."""
    found = np.argwhere((picture == colour).all(axis=2))
    inside: NDArray[np.int64] = found[(found[:, 1] > 120) & (found[:, 0] > 84)]
    return inside


UNIFORM = np.full(11, 1 / 11)


def test_columns_stand_at_their_atoms_and_are_as_high_as_their_probability() -> None:
    first = np.stack([point(2) * 0.5 + point(4) * 0.5, UNIFORM])
    panel = panel_of(np.stack([first, first, first]))
    picture = np.asarray(panel.draw(0))
    assert picture.shape == (640, WIDTH, 3)
    orange = pixels(picture, CHOSEN)  # action 0 was chosen
    columns = {int(x) for x in orange[:, 1]}
    middles = {atom: panel._x(atom) for atom in (2, 4)}
    assert middles[4] in columns
    assert panel._x(3.0) not in columns
    assert not columns & set(range(panel._x(-5.0), panel._x(1.0)))
    blue = pixels(picture, OTHER)
    heights = [
        len({int(y) for y, x in found if abs(x - at) < 3})
        for found, at in ((orange, middles[4]), (blue, panel._x(-3.0)))
    ]
    assert heights[0] / heights[1] == pytest.approx(0.5 * 11, rel=0.15)


def test_the_chosen_action_has_its_colour() -> None:
    p = np.broadcast_to(UNIFORM, (STEPS, ACTIONS, 11)).copy()
    panel = panel_of(p)
    for step, chosen in ((0, 0), (1, 1)):
        orange = pixels(np.asarray(panel.draw(step)), CHOSEN)
        rows = {int(y - 84) // panel.row_height for y in orange[:, 0]}
        assert rows == {chosen}


def test_the_return_to_come_is_marked() -> None:
    panel = panel_of(np.broadcast_to(UNIFORM, (STEPS, ACTIONS, 11)).copy())
    for step, at in ((0, 2.0), (1, -1.0)):
        picture = np.asarray(panel.draw(step))
        column = picture[84 : panel.bottom, panel._x(at)]
        assert (column == TEXT).all(axis=1).mean() > 0.9


def test_the_range_of_the_episode_is_shown() -> None:
    narrow = np.broadcast_to(0.5 * point(1) + 0.5 * point(2), (STEPS, ACTIONS, 11)).copy()
    panel = panel_of(narrow)
    assert (ATOMS[panel.first], ATOMS[panel.last]) == (1.0, 2.0)
    assert panel.left < panel._x(1.0) < panel._x(2.0) < panel.right
    wide = narrow.copy()
    wide[1, 1] = point(5)  # one state is enough
    assert ATOMS[panel_of(wide).last] == 5.0
    everything = panel_of(np.broadcast_to(UNIFORM, (STEPS, ACTIONS, 11)).copy())
    assert (everything.first, everything.last) == (0, 10)
    single = panel_of(np.broadcast_to(point(-5), (STEPS, ACTIONS, 11)).copy())
    assert (single.first, single.last) == (0, 1)


def test_the_mean_over_noise_samples_is_a_line() -> None:
    p = np.broadcast_to(0.9 * point(2) + 0.1 * UNIFORM, (STEPS, ACTIONS, 11)).copy()
    mixture = np.broadcast_to(UNIFORM, (STEPS, ACTIONS, 11)).copy()
    panel = panel_of(p, mixture)
    base = 84 + panel.row_height - 1
    height = panel._top(1 / 11, base)
    assert tuple(np.asarray(panel.draw(2))[height, panel._x(-3.0)]) == TEXT
    assert tuple(np.asarray(panel_of(p).draw(2))[height, panel._x(-3.0)]) == PLOT


def test_eighteen_actions_fit() -> None:
    p = np.broadcast_to(UNIFORM, (STEPS, 18, 11)).copy()
    shown = episode(p, p)
    panel = DistributionPanel(caption(actions=18), shown, np.zeros(3, np.uint8), 640)
    assert panel.rows == list(range(18))
    assert panel.bottom <= 640 - 60
    assert panel.draw(0).size == (WIDTH, 640)


def test_a_replayed_episode_is_drawn(distributional_run: Path) -> None:
    agent, frames = load_agent(distributional_run)
    trace = newest_traces(distributional_run, "on")[0]
    replayed = replay(trace, agent, steps=4, samples=8)
    fixed = _caption(trace, agent, frames, 8)
    assert len(fixed.atoms) == 11
    assert fixed.atoms[0] == agent.config.network.v_min  # type: ignore[union-attr]
    panel = DistributionPanel(fixed, replayed, trace.actions, 640)
    pictures = [np.asarray(panel.draw(step)) for step in range(4)]
    assert all(len(pixels(picture, CHOSEN)) for picture in pictures)
    assert not np.array_equal(pictures[0], pictures[1])
    without = replace(replayed, values=replace(replayed.values, distribution=None))
    with pytest.raises(AssertionError):
        DistributionPanel(fixed, without, trace.actions, 640)
