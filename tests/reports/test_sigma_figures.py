"""Figure 3: what it shows."""

from __future__ import annotations

from noisynet.reports.analysis import Analysis
from noisynet.reports.sigma_figures import choose_games

from .conftest import draw


def test_sigma_has_error_bars_over_seeds(analysis: Analysis) -> None:
    figure = draw(analysis, "figure-3-noisynet-dqn")
    assert [axes.get_title() for axes in figure.axes] == ["head.q.0", "head.q.2"]
    assert all(len(axes.containers) == 3 for axes in figure.axes)  # one for each game


def test_five_of_many_games_are_chosen_with_pong_and_beam_rider() -> None:
    tasks = [f"atari/{name}" for name in ("a", "b", "beam_rider", "c", "d", "e", "pong", "q", "z")]
    chosen = choose_games(tasks)
    assert len(chosen) == 5
    assert {"atari/beam_rider", "atari/pong", "atari/a", "atari/z"} <= set(chosen)
    assert choose_games(tasks[:3]) == tasks[:3]
