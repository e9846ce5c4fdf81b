"""Figures 1, 2 and 5: what they show."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.colors import to_hex

from noisynet.reports.agents import STYLES, make_contender
from noisynet.reports.analysis import Analysis

from .conftest import draw, texts


def test_bars_are_truncated_at_250_per_cent_with_their_value_above(analysis: Analysis) -> None:
    figure = draw(analysis, "figure-1a")
    patches: list[Any] = list(figure.axes[0].patches)
    bars = {round(bar.get_height(), 1): to_hex(bar.get_facecolor()) for bar in patches}
    assert max(bars) == 250.0
    assert bars[250.0].upper() == STYLES["noisynet-dqn"].colour
    assert bars[min(bars)].upper() == STYLES["dqn"].colour
    assert "510" in texts(figure)  # 180 points of the 35.3 from random to human
    labels = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert labels == ["pong", "enduro", "boxing"]  # the best first
    assert "published" in texts(figure)


def test_the_median_curve_is_drawn_over_frames(analysis: Analysis) -> None:
    (axes,) = draw(analysis, "figure-2").axes
    assert axes.get_xlabel() == "training frames"
    assert axes.get_ylabel() == "median human-normalised score (%)"
    x, y = (np.asarray(data, float) for data in axes.lines[0].get_data())
    np.testing.assert_array_equal(x, [100.0, 200.0])
    tasks = analysis.tasks(*analysis.study.contenders)
    np.testing.assert_allclose(y, analysis.median_curve(make_contender("dqn"), tasks))
