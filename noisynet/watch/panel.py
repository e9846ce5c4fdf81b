"""Draws the panel next to the game: values under noise, disagreement, and Σ̄."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from noisynet.watch.episode import ReplayedEpisode
from noisynet.watch.text import fitting_font, load_font, number_text, round_unit, tick_text

WIDTH = 480
MARGIN = 18
MAX_ROWS = 18
"""The maximum number of actions shown, that of Atari."""

Colour: TypeAlias = tuple[int, int, int]

# Blue and orange of Okabe and Ito, safe for colour-blind viewers. The chosen action also has a
# marker.
BACKGROUND: Colour = (22, 24, 30)
PLOT: Colour = (34, 37, 46)
GRID: Colour = (62, 66, 80)
TEXT: Colour = (236, 236, 240)
QUIET: Colour = (166, 170, 184)
OTHER: Colour = (86, 180, 233)
BAND: Colour = (52, 86, 112)
CHOSEN: Colour = (230, 159, 0)
NOTICE: Colour = (240, 228, 66)

_NAMES_WIDTH, _SHARES_WIDTH = 132, 74
_CHART_HEIGHTS = (64, 200)  # at least and at most


@dataclass(frozen=True)
class Caption:
    """The texts of the panel that do not change during the episode.

    `sigma` is Σ̄ of each noisy layer and its initial value; `atoms` the support of the distributions
    over returns. Both are empty for agents without them.
    """

    title: str
    episode: str
    weights: str
    weights_differ: bool
    actions: list[str]
    sigma: dict[str, tuple[float, float]]
    samples: int
    total_steps: int
    atoms: tuple[float, ...] = ()


@dataclass(frozen=True)
class _TimeChart:
    """A chart over time: its title, its values as numbers and texts, and its range.

    A fraction fills its column. A value has no natural zero and is a mark, with an optional band of
    quartiles [T, 2].
    """

    title: str
    series: NDArray[np.float64]
    low: float
    high: float
    texts: list[str]
    range_text: str
    filled: bool = False
    band: NDArray[np.float64] | None = None


class Panel:
    """Draws the panel of each step, at least as high as the game next to it."""

    def __init__(
        self, caption: Caption, episode: ReplayedEpisode, chosen: NDArray[Any], height: int
    ) -> None:
        self.caption, self.episode, self.chosen = caption, episode, chosen
        self.noisy = bool(caption.sigma)
        self.policy = episode.values.state_value is not None
        self.score = np.concatenate([[0.0], np.cumsum(episode.rewards)])
        self.rows = shown_actions(chosen, len(caption.actions))
        self.row_height = 24 if len(self.rows) <= 10 else 20
        self.plot_left, self.plot_right = MARGIN + _NAMES_WIDTH, WIDTH - MARGIN - _SHARES_WIDTH
        low, high = episode.values.spread[..., 0].min(1), episode.values.spread[..., 4].max(1)
        if self.policy:  # probabilities
            low, high = np.zeros_like(low), np.ones_like(high)
        self.centre = (low + high) / 2
        # One scale for the whole episode, so that the spreads of its states can be compared. A few
        # extreme states are clipped.
        self.span = max(1e-6, 1.1 * float(np.quantile(high - low, 0.98)))
        self.unit = 0.2 if self.policy else round_unit(self.span / 4)
        self._lay_out(height)

    def _lay_out(self, height: int) -> None:
        """Place the sections below each other; the chart over time takes the remaining height."""
        self.counters_top = 100
        self.q_top = self.counters_top + 64
        self.plot_top = self.q_top + 28
        self.plot_bottom = self.plot_top + len(self.rows) * self.row_height
        self.chart_title = self.plot_bottom + 58
        self.chart_top = self.chart_title + 26
        lines = math.ceil(len(self.caption.sigma) / 2)
        below = 40 + (32 + 22 * lines if self.noisy else 0)
        least, most = _CHART_HEIGHTS
        chart_height = min(most, max(least, height - self.chart_top - below))
        self.chart_bottom = self.chart_top + chart_height
        self.sigma_top = self.chart_bottom + 36
        self.height = max(height, self.chart_bottom + below)

    def draw(self, step: int, outcome: str | None = None) -> Image.Image:
        """The panel at one state; with an `outcome`, the counters are those after its action."""
        image = self._background.copy()
        pen = ImageDraw.Draw(image)
        after = step if outcome is None else step + 1
        self._draw_counters(pen, after, outcome or "step")
        self._draw_values(pen, step)
        self._draw_chart(pen, step, after)
        return image

    # --- fixed content --------------------------------------------------------------------------

    @cached_property
    def _background(self) -> Image.Image:
        image = Image.new("RGB", (WIDTH, self.height), BACKGROUND)
        pen, caption = ImageDraw.Draw(image), self.caption
        pen.line((0, 0, 0, self.height), GRID, 2)
        room = WIDTH - 2 * MARGIN
        pen.text(
            (MARGIN, 12), caption.title, TEXT, fitting_font(caption.title, 18, room, bold=True)
        )
        weights = NOTICE if caption.weights_differ else QUIET
        pen.text((MARGIN, 42), caption.episode, QUIET, load_font(14))
        pen.text((MARGIN, 64), caption.weights, weights, load_font(14))
        title, right = ("π of each action", "π") if self.policy else ("Q of each action", "Q")
        if self.noisy:
            title = f"{title}, {caption.samples} noise samples"
            right = "mean π" if self.policy else "greedy in"
        pen.text((MARGIN, self.q_top), title, TEXT, load_font(15, bold=True))
        pen.text((WIDTH - MARGIN, self.q_top + 1), right, QUIET, load_font(14), anchor="ra")
        pen.rectangle((self.plot_left, self.plot_top, self.plot_right, self.plot_bottom), PLOT)
        legend = "line: range   box: quartiles   bar: mean   ◇: mean weights"
        if len(self.rows) < len(caption.actions):
            legend = f"the {len(self.rows)} most frequent of {len(caption.actions)} actions"
        if self.noisy or len(self.rows) < len(caption.actions):
            pen.text((MARGIN, self.plot_bottom + 26), legend, QUIET, load_font(14))
        self._draw_chart_background(pen)
        if self.noisy:
            self._draw_sigma(pen)
        return image

    def _draw_chart_background(self, pen: ImageDraw.ImageDraw) -> None:
        pen.text((MARGIN, self.chart_title), self._chart.title, TEXT, load_font(15, bold=True))
        pen.rectangle((MARGIN, self.chart_top, WIDTH - MARGIN, self.chart_bottom), PLOT)
        for share in (0.25, 0.5, 0.75) if self._chart.filled else ():
            y = self._chart_y(share)
            pen.line((MARGIN, y, WIDTH - MARGIN, y), GRID)

    def _draw_sigma(self, pen: ImageDraw.ImageDraw) -> None:
        title = "Σ, the mean |σ| of each layer (of its initial value)"
        pen.text((MARGIN, self.sigma_top), title, TEXT, load_font(15, bold=True))
        # Pillow does not draw the combining bar of Σ̄.
        left, top, right, _ = pen.textbbox((MARGIN, self.sigma_top), "Σ", load_font(15, bold=True))
        pen.line((left, top - 3, right - 1, top - 3), TEXT, 2)
        column = (WIDTH - 2 * MARGIN) // 2
        for index, (name, (now, initial)) in enumerate(self.caption.sigma.items()):
            position = (MARGIN + column * (index % 2), self.sigma_top + 26 + 22 * (index // 2))
            change = f" ({now / initial:.0%})" if initial > 0 else ""
            pen.text(position, f"{name}  {now:.3g}{change}", QUIET, load_font(14))

    # --- changing content ------------------------------------------------------------------------

    def _draw_counters(self, pen: ImageDraw.ImageDraw, after: int, state: str) -> None:
        returns = self.episode.returns
        counters = [
            (state, f"{after:,} / {self.caption.total_steps:,}"),
            ("score so far", number_text(self.score[after])),
            ("return to come", number_text(returns[after]) if after < len(returns) else "–"),
        ]
        for index, (name, value) in enumerate(counters):
            left = MARGIN + index * 160
            pen.text((left, self.counters_top), name, QUIET, load_font(14))
            font = fitting_font(value, 22, 150, bold=True)
            pen.text((left, self.counters_top + 19), value, TEXT, font)

    def _draw_values(self, pen: ImageDraw.ImageDraw, step: int) -> None:
        self._draw_axis(pen, step)
        values = self.episode.values
        for row, action in enumerate(self.rows):
            middle = self.plot_top + row * self.row_height + self.row_height // 2
            chosen = action == self.chosen[step]
            colour = CHOSEN if chosen else OTHER
            if chosen:
                tip = MARGIN + 9
                pen.polygon([(MARGIN, middle - 6), (MARGIN, middle + 6), (tip, middle)], CHOSEN)
            name = self.caption.actions[action]
            pen.text(
                (MARGIN + 15, middle), name, CHOSEN if chosen else TEXT, load_font(14), anchor="lm"
            )
            q = values.mean_weights[step, action]
            if self.noisy:
                self._draw_spread(pen, step, middle, values.spread[step, action], colour)
                self._draw_diamond(pen, self._value_x(step, q), middle)
                mean = values.spread[step, action, 2]
                share = mean if self.policy else values.greedy_share[step, action]
                text = f"{share:.0%}"
            else:
                x = self._value_x(step, q)
                pen.ellipse((x - 6, middle - 6, x + 6, middle + 6), colour)
                text = f"{q:.0%}" if self.policy else tick_text(q, self.unit / 10)
            quiet = text == "0%"
            pen.text(
                (WIDTH - MARGIN, middle), text, QUIET if quiet else TEXT, load_font(14), anchor="rm"
            )

    def _draw_axis(self, pen: ImageDraw.ImageDraw, step: int) -> None:
        left = self.centre[step] - self.span / 2
        first, last = math.ceil(left / self.unit), math.floor((left + self.span) / self.unit)
        for multiple in range(first, last + 1):
            x = self._value_x(step, multiple * self.unit)
            pen.line((x, self.plot_top, x, self.plot_bottom), GRID)
            text = tick_text(multiple * self.unit, self.unit)
            pen.text((x, self.plot_bottom + 4), text, QUIET, load_font(14), anchor="ma")

    def _draw_spread(
        self,
        pen: ImageDraw.ImageDraw,
        step: int,
        middle: int,
        spread: NDArray[np.float64],
        colour: Colour,
    ) -> None:
        low, lower, mean, upper, high = (self._value_x(step, q) for q in spread)
        half = self.row_height // 2 - 5
        pen.line((low, middle, high, middle), colour, 2)
        for end in (low, high):
            pen.line((end, middle - 3, end, middle + 3), colour, 2)
        pen.rectangle((lower, middle - half, upper, middle + half), colour)
        pen.line((mean, middle - half - 2, mean, middle + half + 2), BACKGROUND, 3)

    def _draw_diamond(self, pen: ImageDraw.ImageDraw, x: int, middle: int) -> None:
        corners = [(x, middle - 5), (x + 5, middle), (x, middle + 5), (x - 5, middle)]
        pen.polygon(corners, (255, 255, 255), BACKGROUND)

    def _draw_chart(self, pen: ImageDraw.ImageDraw, step: int, after: int) -> None:
        """Draw the chart up to the current step; long episodes scroll."""
        chart, width = self._chart, WIDTH - 2 * MARGIN
        position = (WIDTH - MARGIN, self.chart_title)
        pen.text(position, chart.texts[step], TEXT, load_font(15, bold=True), anchor="ra")
        pixels = max(2.0, width / len(chart.series))
        first = max(0, step + 1 - int(width / pixels))
        gap = 1 if pixels > 4 else 0

        def left(number: int) -> int:
            return MARGIN + round((number - first) * pixels)

        for number in range(first, step + 1):
            right = left(number + 1) - 1 - gap
            if chart.band is not None:
                upper, lower = (self._chart_y(value) for value in chart.band[number, ::-1])
                pen.rectangle((left(number), upper, right, lower), BAND)
            top = self._chart_y(chart.series[number])
            if not chart.filled:
                top = min(top, self.chart_bottom - 3)
            bottom = self.chart_bottom if chart.filled else top + 3
            pen.rectangle((left(number), top, right, bottom), OTHER)
        now = left(step + 1)
        pen.line((now, self.chart_top, now, self.chart_bottom), CHOSEN, 2)
        for number in range(first, after):
            if self.episode.rewards[number]:
                self._draw_reward(pen, left(number + 1), self.episode.rewards[number])
        legend = f"steps {first:,} to {step:,}   ▲ reward   ▼ penalty"
        pen.text((MARGIN, self.chart_bottom + 6), legend, QUIET, load_font(14))
        position = (WIDTH - MARGIN, self.chart_bottom + 6)
        pen.text(position, chart.range_text, QUIET, load_font(14), anchor="ra")

    def _draw_reward(self, pen: ImageDraw.ImageDraw, x: int, reward: float) -> None:
        x, y = min(x, WIDTH - MARGIN - 6), self.chart_top + 8
        reach = 6 if reward > 0 else -6
        corners = [(x - 6, y + reach), (x + 6, y + reach), (x, y - reach)]
        pen.polygon(corners, TEXT, BACKGROUND)

    @cached_property
    def _chart(self) -> _TimeChart:
        values = self.episode.values
        if values.state_value is not None:
            return self._state_value_chart(values.state_value)
        if self.noisy:
            series = values.disagreement
            texts = [f"{share:.0%}" for share in series]
            title = "Samples that disagree with the mean weights"
            return _TimeChart(title, series, 0.0, 1.0, texts, "0–100%", filled=True)
        series = values.mean_weights.max(axis=1)
        low, high = float(series.min()), float(series.max())
        texts = [number_text(q) for q in series]
        return _TimeChart(
            "Q of the greedy action",
            series,
            low,
            high,
            texts,
            f"{number_text(low)} to {number_text(high)}",
        )

    def _state_value_chart(self, spread: NDArray[np.float64]) -> _TimeChart:
        series = self.episode.values.mean_state_value
        assert series is not None
        band = spread[:, [1, 3]]  # the quartiles
        shown = np.concatenate([series[:, None], band], axis=1)
        low, high = float(shown.min()), float(shown.max())
        title, texts = "V of the state", [number_text(v) for v in series]
        if self.noisy:
            title = "V, and its quartiles over samples"
        span = f"{number_text(low)} to {number_text(high)}"
        return _TimeChart(title, series, low, high, texts, span, band=band if self.noisy else None)

    def _chart_y(self, value: float) -> int:
        """The y coordinate of a value on the chart over time."""
        low, high = self._chart.low, self._chart.high
        share = (value - low) / max(1e-9, high - low)
        return self.chart_bottom - round(share * (self.chart_bottom - self.chart_top - 4))

    def _value_x(self, step: int, q: float) -> int:
        """The x coordinate of a value on the axis of Q or π, clipped to its ends."""
        width = self.plot_right - self.plot_left
        share = float(q - self.centre[step]) / self.span + 0.5
        return self.plot_left + round(min(1.0, max(0.0, share)) * width)


def shown_actions(chosen: NDArray[Any], num_actions: int) -> list[int]:
    """All actions, or the most frequent if there are too many."""
    counts = np.bincount(chosen, minlength=num_actions)
    return sorted(np.argsort(-counts, kind="stable")[:MAX_ROWS].tolist())
