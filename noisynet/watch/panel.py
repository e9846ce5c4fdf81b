"""The panel beside the game, drawn with Pillow: values under noise, who disagrees, how much σ."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from noisynet.watch.episode import Played
from noisynet.watch.text import fitting, font_of, number_text, round_unit, tick

WIDTH = 480
MARGIN = 18
MAX_ROWS = 18
"""How many actions are shown; Atari has at most as many."""

Colour: TypeAlias = tuple[int, int, int]

# Blue and orange of Okabe and Ito, which colour-blind people tell apart; the chosen action has a
# marker of its own besides.
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
_STRIP_HEIGHTS = (64, 200)  # at least and at most


@dataclass(frozen=True)
class Caption:
    """What the panel says once for the whole episode.

    Attributes:
        title: what plays what.
        episode: which episode it is.
        weights: whose values are shown.
        weights_differ: whether these are not the weights that played.
        actions: the actions' names.
        sigma: Σ̄ of each noisy layer, and its initial value; empty without noise.
        samples: how many noise draws the spreads are over.
        total_steps: how long the episode is.
    """

    title: str
    episode: str
    weights: str
    weights_differ: bool
    actions: list[str]
    sigma: dict[str, tuple[float, float]]
    samples: int
    total_steps: int


@dataclass(frozen=True)
class _Strip:
    """A chart over time: its title, its values as numbers and texts, and the range it shows.

    A share fills its column; a value has no natural floor and is a mark, perhaps with a band of
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
    """Draws the panel of one step after the other.

    Args:
        caption: what stays.
        played: what changes.
        chosen: the episode's actions [T].
        height: how high the game beside it is; the panel is at least as high.
    """

    def __init__(
        self, caption: Caption, played: Played, chosen: NDArray[np.uint8], height: int
    ) -> None:
        self.caption, self.played, self.chosen = caption, played, chosen
        self.noisy = bool(caption.sigma)
        self.policy = played.values.state_value is not None
        self.score = np.concatenate([[0.0], np.cumsum(played.rewards)])
        self.rows = _shown_actions(chosen, len(caption.actions))
        self.row_height = 24 if len(self.rows) <= 10 else 20
        self.plot_left, self.plot_right = MARGIN + _NAMES_WIDTH, WIDTH - MARGIN - _SHARES_WIDTH
        low, high = played.values.draws[..., 0].min(1), played.values.draws[..., 4].max(1)
        if self.policy:  # probabilities have a scale of their own
            low, high = np.zeros_like(low), np.ones_like(high)
        self.centre = (low + high) / 2
        # One scale for the whole episode, so that spreads of different states can be compared; a
        # few extreme states may reach over the edge.
        self.span = max(1e-6, 1.1 * float(np.quantile(high - low, 0.98)))
        self.unit = 0.2 if self.policy else round_unit(self.span / 4)
        self._lay_out(height)

    def _lay_out(self, height: int) -> None:
        """Place the sections one below the other; the chart over time takes what is left."""
        self.counters_top = 100
        self.q_top = self.counters_top + 64
        self.plot_top = self.q_top + 28
        self.plot_bottom = self.plot_top + len(self.rows) * self.row_height
        self.strip_title = self.plot_bottom + 58
        self.strip_top = self.strip_title + 26
        lines = math.ceil(len(self.caption.sigma) / 2)
        below = 40 + (32 + 22 * lines if self.noisy else 0)
        least, most = _STRIP_HEIGHTS
        strip_height = min(most, max(least, height - self.strip_top - below))
        self.strip_bottom = self.strip_top + strip_height
        self.sigma_top = self.strip_bottom + 36
        self.height = max(height, self.strip_bottom + below)

    def draw(self, step: int, verdict: str | None = None) -> Image.Image:
        """The panel at one step.

        Args:
            step: which state, from 0.
            verdict: how the episode ended; then the counters are those after the step's action.
        """
        image = self._still.copy()
        pen = ImageDraw.Draw(image)
        after = step if verdict is None else step + 1
        self._draw_counters(pen, after, verdict or "step")
        self._draw_values(pen, step)
        self._draw_strip(pen, step, after)
        return image

    # --- what stays ------------------------------------------------------------------------------

    @cached_property
    def _still(self) -> Image.Image:
        image = Image.new("RGB", (WIDTH, self.height), BACKGROUND)
        pen, caption = ImageDraw.Draw(image), self.caption
        pen.line((0, 0, 0, self.height), GRID, 2)
        room = WIDTH - 2 * MARGIN
        pen.text((MARGIN, 12), caption.title, TEXT, fitting(caption.title, 18, room, bold=True))
        weights = NOTICE if caption.weights_differ else QUIET
        pen.text((MARGIN, 42), caption.episode, QUIET, font_of(14))
        pen.text((MARGIN, 64), caption.weights, weights, font_of(14))
        title, right = ("π of each action", "π") if self.policy else ("Q of each action", "Q")
        if self.noisy:
            title = f"{title}, {caption.samples} draws of the noise"
            right = "mean π" if self.policy else "greedy in"
        pen.text((MARGIN, self.q_top), title, TEXT, font_of(15, bold=True))
        pen.text((WIDTH - MARGIN, self.q_top + 1), right, QUIET, font_of(14), anchor="ra")
        pen.rectangle((self.plot_left, self.plot_top, self.plot_right, self.plot_bottom), PLOT)
        legend = "line: range   box: quartiles   bar: mean   ◇: mean weights"
        if len(self.rows) < len(caption.actions):
            legend = f"the {len(self.rows)} most played of {len(caption.actions)} actions"
        if self.noisy or len(self.rows) < len(caption.actions):
            pen.text((MARGIN, self.plot_bottom + 26), legend, QUIET, font_of(14))
        self._draw_strip_background(pen)
        if self.noisy:
            self._draw_sigma(pen)
        return image

    def _draw_strip_background(self, pen: ImageDraw.ImageDraw) -> None:
        pen.text((MARGIN, self.strip_title), self._strip.title, TEXT, font_of(15, bold=True))
        pen.rectangle((MARGIN, self.strip_top, WIDTH - MARGIN, self.strip_bottom), PLOT)
        for share in (0.25, 0.5, 0.75) if self._strip.filled else ():
            y = self._up(share)
            pen.line((MARGIN, y, WIDTH - MARGIN, y), GRID)

    def _draw_sigma(self, pen: ImageDraw.ImageDraw) -> None:
        title = "Σ, the mean |σ| of each layer (of its initial value)"
        pen.text((MARGIN, self.sigma_top), title, TEXT, font_of(15, bold=True))
        # Pillow leaves the combining bar of Σ̄ out.
        left, top, right, _ = pen.textbbox((MARGIN, self.sigma_top), "Σ", font_of(15, bold=True))
        pen.line((left, top - 3, right - 1, top - 3), TEXT, 2)
        column = (WIDTH - 2 * MARGIN) // 2
        for index, (name, (now, initial)) in enumerate(self.caption.sigma.items()):
            place = (MARGIN + column * (index % 2), self.sigma_top + 26 + 22 * (index // 2))
            change = f" ({now / initial:.0%})" if initial > 0 else ""
            pen.text(place, f"{name}  {now:.3g}{change}", QUIET, font_of(14))

    # --- what changes ----------------------------------------------------------------------------

    def _draw_counters(self, pen: ImageDraw.ImageDraw, after: int, state: str) -> None:
        returns = self.played.returns
        counters = [
            (state, f"{after:,} / {self.caption.total_steps:,}"),
            ("score so far", number_text(self.score[after])),
            ("return to come", number_text(returns[after]) if after < len(returns) else "–"),
        ]
        for index, (name, value) in enumerate(counters):
            left = MARGIN + index * 160
            pen.text((left, self.counters_top), name, QUIET, font_of(14))
            font = fitting(value, 22, 150, bold=True)
            pen.text((left, self.counters_top + 19), value, TEXT, font)

    def _draw_values(self, pen: ImageDraw.ImageDraw, step: int) -> None:
        self._draw_axis(pen, step)
        values = self.played.values
        for row, action in enumerate(self.rows):
            middle = self.plot_top + row * self.row_height + self.row_height // 2
            chosen = action == self.chosen[step]
            colour = CHOSEN if chosen else OTHER
            if chosen:
                tip = MARGIN + 9
                pen.polygon([(MARGIN, middle - 6), (MARGIN, middle + 6), (tip, middle)], CHOSEN)
            name = self.caption.actions[action]
            pen.text(
                (MARGIN + 15, middle), name, CHOSEN if chosen else TEXT, font_of(14), anchor="lm"
            )
            q = values.mean_weights[step, action]
            if self.noisy:
                self._draw_spread(pen, step, middle, values.draws[step, action], colour)
                self._draw_diamond(pen, self._across(step, q), middle)
                mean = values.draws[step, action, 2]
                share = mean if self.policy else values.greedy_share[step, action]
                text = f"{share:.0%}"
            else:
                x = self._across(step, q)
                pen.ellipse((x - 6, middle - 6, x + 6, middle + 6), colour)
                text = f"{q:.0%}" if self.policy else tick(q, self.unit / 10)
            quiet = text == "0%"
            place = (WIDTH - MARGIN, middle)
            pen.text(place, text, QUIET if quiet else TEXT, font_of(14), anchor="rm")

    def _draw_axis(self, pen: ImageDraw.ImageDraw, step: int) -> None:
        left = self.centre[step] - self.span / 2
        first, last = math.ceil(left / self.unit), math.floor((left + self.span) / self.unit)
        for multiple in range(first, last + 1):
            x = self._across(step, multiple * self.unit)
            pen.line((x, self.plot_top, x, self.plot_bottom), GRID)
            text = tick(multiple * self.unit, self.unit)
            pen.text((x, self.plot_bottom + 4), text, QUIET, font_of(14), anchor="ma")

    def _draw_spread(
        self,
        pen: ImageDraw.ImageDraw,
        step: int,
        middle: int,
        spread: NDArray[np.float64],
        colour: Colour,
    ) -> None:
        low, lower, mean, upper, high = (self._across(step, q) for q in spread)
        half = self.row_height // 2 - 5
        pen.line((low, middle, high, middle), colour, 2)
        for end in (low, high):
            pen.line((end, middle - 3, end, middle + 3), colour, 2)
        pen.rectangle((lower, middle - half, upper, middle + half), colour)
        pen.line((mean, middle - half - 2, mean, middle + half + 2), BACKGROUND, 3)

    def _draw_diamond(self, pen: ImageDraw.ImageDraw, x: int, middle: int) -> None:
        corners = [(x, middle - 5), (x + 5, middle), (x, middle + 5), (x - 5, middle)]
        pen.polygon(corners, (255, 255, 255), BACKGROUND)

    def _draw_strip(self, pen: ImageDraw.ImageDraw, step: int, after: int) -> None:
        """A chart of the steps up to now; long episodes scroll."""
        strip, width = self._strip, WIDTH - 2 * MARGIN
        place = (WIDTH - MARGIN, self.strip_title)
        pen.text(place, strip.texts[step], TEXT, font_of(15, bold=True), anchor="ra")
        pixels = max(2.0, width / len(strip.series))
        first = max(0, step + 1 - int(width / pixels))
        gap = 1 if pixels > 4 else 0

        def left(number: int) -> int:
            return MARGIN + round((number - first) * pixels)

        for number in range(first, step + 1):
            right = left(number + 1) - 1 - gap
            if strip.band is not None:
                upper, lower = (self._up(value) for value in strip.band[number, ::-1])
                pen.rectangle((left(number), upper, right, lower), BAND)
            top = self._up(strip.series[number])
            if not strip.filled:
                top = min(top, self.strip_bottom - 3)
            bottom = self.strip_bottom if strip.filled else top + 3
            pen.rectangle((left(number), top, right, bottom), OTHER)
        now = left(step + 1)
        pen.line((now, self.strip_top, now, self.strip_bottom), CHOSEN, 2)
        for number in range(first, after):
            if self.played.rewards[number]:
                self._draw_reward(pen, left(number + 1), self.played.rewards[number])
        legend = f"steps {first:,} to {step:,}   ▲ reward   ▼ penalty"
        pen.text((MARGIN, self.strip_bottom + 6), legend, QUIET, font_of(14))
        place = (WIDTH - MARGIN, self.strip_bottom + 6)
        pen.text(place, strip.range_text, QUIET, font_of(14), anchor="ra")

    def _draw_reward(self, pen: ImageDraw.ImageDraw, x: int, reward: float) -> None:
        x, y = min(x, WIDTH - MARGIN - 6), self.strip_top + 8
        reach = 6 if reward > 0 else -6
        corners = [(x - 6, y + reach), (x + 6, y + reach), (x, y - reach)]
        pen.polygon(corners, TEXT, BACKGROUND)

    @cached_property
    def _strip(self) -> _Strip:
        values = self.played.values
        if values.state_value is not None:
            return self._strip_of_state_values(values.state_value)
        if self.noisy:
            series = values.disagreement
            texts = [f"{share:.0%}" for share in series]
            title = "Draws that disagree with the mean weights"
            return _Strip(title, series, 0.0, 1.0, texts, "0–100%", filled=True)
        series = values.mean_weights.max(axis=1)
        low, high = float(series.min()), float(series.max())
        texts = [number_text(q) for q in series]
        return _Strip(
            "Q of the greedy action",
            series,
            low,
            high,
            texts,
            f"{number_text(low)} to {number_text(high)}",
        )

    def _strip_of_state_values(self, spread: NDArray[np.float64]) -> _Strip:
        series = self.played.values.mean_state_value
        assert series is not None
        band = spread[:, [1, 3]]  # the quartiles
        shown = np.concatenate([series[:, None], band], axis=1)
        low, high = float(shown.min()), float(shown.max())
        title, texts = "V of the state", [number_text(v) for v in series]
        if self.noisy:
            title = "V, and the quartiles of its draws"
        span = f"{number_text(low)} to {number_text(high)}"
        return _Strip(title, series, low, high, texts, span, band=band if self.noisy else None)

    def _up(self, value: float) -> int:
        """Where a value stands on the chart over time."""
        low, high = self._strip.low, self._strip.high
        share = (value - low) / max(1e-9, high - low)
        return self.strip_bottom - round(share * (self.strip_bottom - self.strip_top - 4))

    def _across(self, step: int, q: float) -> int:
        """Where a value stands on the axis of Q or π, at its edge if beyond."""
        width = self.plot_right - self.plot_left
        share = float(q - self.centre[step]) / self.span + 0.5
        return self.plot_left + round(min(1.0, max(0.0, share)) * width)


def _shown_actions(chosen: NDArray[np.uint8], num_actions: int) -> list[int]:
    """All actions, or the most played if there are too many."""
    counts = np.bincount(chosen, minlength=num_actions)
    return sorted(np.argsort(-counts, kind="stable")[:MAX_ROWS].tolist())
