"""The panel beside the game, drawn with Pillow: values under noise, who disagrees, how much σ."""

from __future__ import annotations

import importlib.util
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from noisynet.watch.episode import Played

WIDTH = 480
MARGIN = 18
MAX_ROWS = 18
"""How many actions are shown; Atari has at most as many."""

Colour: TypeAlias = tuple[int, int, int]
Font: TypeAlias = ImageFont.FreeTypeFont | ImageFont.ImageFont

# Blue and orange of Okabe and Ito, which colour-blind people tell apart; the chosen action has a
# marker of its own besides.
BACKGROUND: Colour = (22, 24, 30)
PLOT: Colour = (34, 37, 46)
GRID: Colour = (62, 66, 80)
TEXT: Colour = (236, 236, 240)
QUIET: Colour = (166, 170, 184)
OTHER: Colour = (86, 180, 233)
CHOSEN: Colour = (230, 159, 0)
NOTICE: Colour = (240, 228, 66)

_NAMES_WIDTH, _SHARES_WIDTH = 132, 62
_STRIP_HEIGHT = 64


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


class Panel:
    """Draws the panel of one step after the other.

    Args:
        caption: what stays.
        played: what changes.
        chosen: the episode's actions [T].
    """

    def __init__(self, caption: Caption, played: Played, chosen: NDArray[np.uint8]) -> None:
        self.caption, self.played, self.chosen = caption, played, chosen
        self.noisy = bool(caption.sigma)
        self.score = np.concatenate([[0.0], np.cumsum(played.rewards)])
        self.rows = _shown_actions(chosen, len(caption.actions))
        self.row_height = 24 if len(self.rows) <= 10 else 20
        self.plot_left, self.plot_right = MARGIN + _NAMES_WIDTH, WIDTH - MARGIN - _SHARES_WIDTH
        low, high = played.values.draws[..., 0].min(1), played.values.draws[..., 4].max(1)
        self.centre = (low + high) / 2
        # One scale for the whole episode, so that spreads of different states can be compared; a
        # few extreme states may reach over the edge.
        self.span = max(1e-6, 1.1 * float(np.quantile(high - low, 0.98)))
        self._lay_out()

    def _lay_out(self) -> None:
        """Place the sections one below the other."""
        self.counters_top = 100
        self.q_top = self.counters_top + 64
        self.plot_top = self.q_top + 28
        self.plot_bottom = self.plot_top + len(self.rows) * self.row_height
        self.strip_title = self.plot_bottom + 58
        self.strip_top = self.strip_title + 26
        self.sigma_top = self.strip_top + _STRIP_HEIGHT + 34
        lines = math.ceil(len(self.caption.sigma) / 2) if self.noisy else 0
        self.height = self.sigma_top + (26 + 22 * lines if self.noisy else 0) + 10

    def draw(self, step: int, verdict: str | None = None) -> Image.Image:
        """The panel at one step.

        Args:
            step: which state, from 0.
            verdict: how the episode ended; then the score is the one after the step's action.
        """
        image = self._still.copy()
        pen = ImageDraw.Draw(image)
        self._draw_counters(pen, step, verdict)
        self._draw_values(pen, step)
        self._draw_strip(pen, step)
        return image

    # --- what stays ------------------------------------------------------------------------------

    @cached_property
    def _still(self) -> Image.Image:
        image = Image.new("RGB", (WIDTH, self.height), BACKGROUND)
        pen, caption = ImageDraw.Draw(image), self.caption
        pen.text((MARGIN, 12), caption.title, TEXT, _font(18, bold=True))
        pen.text((MARGIN, 42), caption.episode, QUIET, _font(14))
        pen.text(
            (MARGIN, 64), caption.weights, NOTICE if caption.weights_differ else QUIET, _font(14)
        )
        title = (
            f"Q of each action, {caption.samples} noise draws" if self.noisy else "Q of each action"
        )
        pen.text((MARGIN, self.q_top), title, TEXT, _font(15, bold=True))
        right = "greedy in" if self.noisy else "Q"
        pen.text((WIDTH - MARGIN, self.q_top + 1), right, QUIET, _font(14), anchor="ra")
        box = (self.plot_left, self.plot_top, self.plot_right, self.plot_bottom)
        pen.rectangle(box, PLOT)
        legend = "line: range   box: quartiles   bar: mean   ◇: mean weights"
        if not self.noisy:
            legend = ""
        if len(self.rows) < len(caption.actions):
            legend = f"the {len(self.rows)} most played of {len(caption.actions)} actions"
        pen.text((MARGIN, self.plot_bottom + 26), legend, QUIET, _font(14))
        pen.rectangle(
            (MARGIN, self.strip_top, WIDTH - MARGIN, self.strip_top + _STRIP_HEIGHT), PLOT
        )
        if self.noisy:
            self._draw_sigma(pen)
        return image

    def _draw_sigma(self, pen: ImageDraw.ImageDraw) -> None:
        pen.text(
            (MARGIN, self.sigma_top), "Σ̄, mean |σ| of each layer now", TEXT, _font(15, bold=True)
        )
        column = (WIDTH - 2 * MARGIN) // 2
        for index, (name, (now, initial)) in enumerate(self.caption.sigma.items()):
            place = (MARGIN + column * (index % 2), self.sigma_top + 26 + 22 * (index // 2))
            change = f" ({now / initial:.0%})" if initial > 0 else ""
            pen.text(place, f"{name}  {now:.3g}{change}", QUIET, _font(14))

    # --- what changes ----------------------------------------------------------------------------

    def _draw_counters(self, pen: ImageDraw.ImageDraw, step: int, verdict: str | None) -> None:
        after = step + 1 if verdict is not None else step
        counters = [
            (verdict or "step", f"{after:,} / {self.caption.total_steps:,}"),
            ("score so far" if verdict is None else "score", _number(self.score[after])),
            ("return from here", "0" if verdict else _number(self.played.returns[step])),
        ]
        for index, (name, value) in enumerate(counters):
            left = MARGIN + index * 156
            pen.text((left, self.counters_top), name, QUIET, _font(14))
            pen.text((left, self.counters_top + 19), value, TEXT, _font(22, bold=True))

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
                (MARGIN + 15, middle), name, CHOSEN if chosen else TEXT, _font(14), anchor="lm"
            )
            q = values.mean_weights[step, action]
            if self.noisy:
                self._draw_spread(pen, step, middle, values.draws[step, action], colour)
                self._draw_diamond(pen, self._across(step, q), middle)
                share = values.greedy_share[step, action]
                text = f"{share:.0%}"
                quiet = share == 0
            else:
                x = self._across(step, q)
                pen.line((self.plot_left, middle, x, middle), colour, 2)
                pen.ellipse((x - 5, middle - 5, x + 5, middle + 5), colour)
                text, quiet = _number(q), False
            place = (WIDTH - MARGIN, middle)
            pen.text(place, text, QUIET if quiet else TEXT, _font(14), anchor="rm")

    def _draw_axis(self, pen: ImageDraw.ImageDraw, step: int) -> None:
        unit = _round_unit(self.span / 3)
        left = self.centre[step] - self.span / 2
        for multiple in range(math.ceil(left / unit), math.floor((left + self.span) / unit) + 1):
            x = self._across(step, multiple * unit)
            pen.line((x, self.plot_top, x, self.plot_bottom), GRID)
            text = _tick(multiple * unit, unit)
            pen.text((x, self.plot_bottom + 4), text, QUIET, _font(14), anchor="ma")

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

    def _draw_strip(self, pen: ImageDraw.ImageDraw, step: int) -> None:
        """A chart of the steps up to now; long episodes scroll."""
        name, series, low, high, text = self._strip
        pen.text((MARGIN, self.strip_title), name, TEXT, _font(15, bold=True))
        place = (WIDTH - MARGIN, self.strip_title)
        pen.text(place, text[step], TEXT, _font(15, bold=True), anchor="ra")
        width = WIDTH - 2 * MARGIN
        pixels = max(2, min(48, width // len(series)))
        room = width // pixels
        first = max(0, step + 1 - room)
        floor, scale = self.strip_top + _STRIP_HEIGHT, (_STRIP_HEIGHT - 4) / max(1e-9, high - low)
        for number in range(first, step + 1):
            left = MARGIN + (number - first) * pixels
            top = floor - round((series[number] - low) * scale)
            if top < floor:
                gap = 1 if pixels > 4 else 0
                pen.rectangle((left, top, left + pixels - 1 - gap, floor), OTHER)
            reward = self.played.rewards[number] if number < step else 0.0
            if reward:
                self._draw_reward(pen, left + pixels, reward)
        now = MARGIN + (step + 1 - first) * pixels
        pen.line((now, self.strip_top, now, floor), CHOSEN, 2)
        legend = f"steps {first:,} to {step:,}    ▲ reward   ▼ penalty"
        pen.text((MARGIN, floor + 6), legend, QUIET, _font(14))

    def _draw_reward(self, pen: ImageDraw.ImageDraw, x: int, reward: float) -> None:
        y, sign = self.strip_top + 6, 1 if reward > 0 else -1
        pen.polygon([(x - 5, y + 5 * sign), (x + 5, y + 5 * sign), (x, y - 5 * sign)], TEXT)

    @cached_property
    def _strip(self) -> tuple[str, NDArray[np.float64], float, float, list[str]]:
        """Title, series, its range, and its values as text."""
        if self.noisy:
            series = self.played.values.disagreement
            name = "Draws that disagree with the mean weights"
            return name, series, 0.0, 1.0, [f"{value:.0%}" for value in series]
        series = self.played.values.mean_weights.max(axis=1)
        low, high = min(0.0, float(series.min())), max(0.0, float(series.max()))
        return "Q of the greedy action", series, low, high, [_number(value) for value in series]

    def _across(self, step: int, q: float) -> int:
        """Where a value stands on the Q axis, at its edge if beyond."""
        width = self.plot_right - self.plot_left
        share = (q - self.centre[step]) / self.span + 0.5
        return self.plot_left + round(min(1.0, max(0.0, share)) * width)


def _shown_actions(chosen: NDArray[np.uint8], num_actions: int) -> list[int]:
    """All actions, or the most played if there are too many."""
    counts = np.bincount(chosen, minlength=num_actions)
    return sorted(np.argsort(-counts, kind="stable")[:MAX_ROWS].tolist())


def _round_unit(roughly: float) -> float:
    """1, 2 or 5 times a power of ten, at least `roughly`."""
    power = 10.0 ** math.floor(math.log10(roughly))
    return next(unit * power for unit in (1, 2, 5, 10) if unit * power >= roughly)


def _tick(value: float, unit: float) -> str:
    decimals = max(0, -math.floor(math.log10(unit) + 1e-9))
    return f"{value:.{decimals}f}".replace("-", "−")


def _number(value: float) -> str:
    whole = float(value).is_integer()
    text = f"{value:,.0f}" if whole or abs(value) >= 1000 else f"{value:.3g}"
    return text.replace("-", "−")


_fonts: dict[tuple[int, bool], Font] = {}


def _font(size: int, *, bold: bool = False) -> Font:
    """DejaVu Sans, which comes with matplotlib and has the Greek letters; else Pillow's own."""
    if (size, bold) not in _fonts:
        name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
        spec = importlib.util.find_spec("matplotlib")
        folder = Path(spec.origin).parent if spec and spec.origin else Path()
        path = folder / "mpl-data" / "fonts" / "ttf" / name
        found = path.exists()
        _fonts[size, bold] = (
            ImageFont.truetype(path, size) if found else ImageFont.load_default(size)
        )
    return _fonts[size, bold]
