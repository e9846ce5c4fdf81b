"""Draws the distribution over returns of each action, for agents that learn distributions."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from noisynet.watch.episode import ReplayedEpisode
from noisynet.watch.panel import (
    BACKGROUND,
    CHOSEN,
    GRID,
    MARGIN,
    OTHER,
    PLOT,
    QUIET,
    TEXT,
    Caption,
    Colour,
    shown_actions,
)
from noisynet.watch.text import load_font, number_text, round_unit, tick_text

WIDTH = 440

_NAMES_WIDTH = 96
_TOP, _BELOW = 84, 74  # of the rows: title and legend, axis and range
_MAX_ROW_HEIGHT = 160
_HIDDEN_MASS = 0.01  # on either side of the range that is shown


class DistributionPanel:
    """Draws the distributions of each step, a row for each action."""

    def __init__(
        self, caption: Caption, episode: ReplayedEpisode, chosen: NDArray[Any], height: int
    ) -> None:
        values = episode.values
        assert values.distribution is not None
        assert values.mixture is not None
        self.caption, self.chosen, self.height = caption, chosen, height
        self.returns, self.q = episode.returns, values.mean_weights
        self.noisy = bool(caption.sigma)
        self.distribution, self.mixture = values.distribution, values.mixture
        self.rows = shown_actions(chosen, len(caption.actions))
        self.row_height = min(_MAX_ROW_HEIGHT, (height - _TOP - _BELOW) // len(self.rows))
        self.bottom = _TOP + self.row_height * len(self.rows)
        self.left, self.right = MARGIN + _NAMES_WIDTH, WIDTH - MARGIN
        # One range and one scale for the whole episode, so that its states can be compared.
        self.first, self.last = _range_with_mass(self.distribution, self.mixture)
        shown = np.maximum(self.distribution, self.mixture)
        # A few very narrow distributions are clipped.
        self.highest = float(np.quantile(shown.max(axis=(1, 2)), 0.95))

    def draw(self, step: int) -> Image.Image:
        """The panel at one step: the state, from 0."""
        image = self._background.copy()
        pen = ImageDraw.Draw(image)
        for row, action in enumerate(self.rows):
            self._draw_row(pen, step, row, action)
        if step < len(self.returns):
            x = self._x(self.returns[step])
            pen.line((x, _TOP, x, self.bottom), TEXT)
            corners = [(x - 6, self.bottom + 8), (x + 6, self.bottom + 8), (x, self.bottom - 1)]
            pen.polygon(corners, TEXT, BACKGROUND)
        return image

    @cached_property
    def _background(self) -> Image.Image:
        image = Image.new("RGB", (WIDTH, self.height), BACKGROUND)
        pen = ImageDraw.Draw(image)
        pen.line((0, 0, 0, self.height), GRID, 2)
        title = "Distribution of each action's return"
        pen.text((MARGIN, 12), title, TEXT, load_font(18, bold=True))
        filled = "filled: mean weights" if self.noisy else "filled: probability"
        line = f"   line: mean of {self.caption.samples} noise samples" if self.noisy else ""
        pen.text((MARGIN, 42), filled + line, QUIET, load_font(14))
        pen.text((MARGIN, 62), "◇: Q   ▲: return to come", QUIET, load_font(14))
        pen.rectangle((self.left, _TOP, self.right, self.bottom), PLOT)
        self._draw_axis(pen)
        atoms = self.caption.atoms
        text = (
            f"{len(atoms)} atoms from {number_text(atoms[0])} to {number_text(atoms[-1])}, "
            f"shown from {number_text(atoms[self.first])} to {number_text(atoms[self.last])}"
        )
        pen.text((MARGIN, self.bottom + 46), text, QUIET, load_font(14))
        return image

    def _draw_axis(self, pen: ImageDraw.ImageDraw) -> None:
        low, high = self.caption.atoms[self.first], self.caption.atoms[self.last]
        unit = round_unit((high - low) / 6)
        for multiple in range(math.ceil(low / unit), math.floor(high / unit) + 1):
            x = self._x(multiple * unit)
            pen.line((x, _TOP, x, self.bottom), GRID)
            text = tick_text(multiple * unit, unit)
            pen.text((x, self.bottom + 12), text, QUIET, load_font(14), anchor="ma")

    def _draw_row(self, pen: ImageDraw.ImageDraw, step: int, row: int, action: int) -> None:
        base = _TOP + (row + 1) * self.row_height - 1
        middle = base - self.row_height // 2
        chosen = action == self.chosen[step]
        colour = CHOSEN if chosen else OTHER
        name, q = self.caption.actions[action], number_text(self.q[step, action])
        two_lines = self.row_height >= 40
        pen.text(
            (MARGIN, middle - (9 if two_lines else 0)),
            name,
            CHOSEN if chosen else TEXT,
            load_font(14),
            anchor="lm",
        )
        if two_lines:
            pen.text((MARGIN, middle + 10), f"Q {q}", QUIET, load_font(14), anchor="lm")
        pen.line((self.left, base, self.right, base), GRID)
        self._draw_columns(pen, self.distribution[step, action], base, colour)
        if self.noisy:
            self._draw_outline(pen, self.mixture[step, action], base)
        x = self._x(self.q[step, action])
        pen.polygon(
            [(x, base - 6), (x + 5, base - 1), (x, base + 4), (x - 5, base - 1)], TEXT, PLOT
        )

    def _draw_columns(
        self, pen: ImageDraw.ImageDraw, mass: NDArray[np.float64], base: int, colour: Colour
    ) -> None:
        for atom in range(self.first, self.last + 1):
            left, right = self._column(atom)
            top = self._top(mass[atom], base)
            if top < base:
                pen.rectangle((left, top, max(left, right - 1), base), colour)

    def _draw_outline(self, pen: ImageDraw.ImageDraw, mass: NDArray[np.float64], base: int) -> None:
        points: list[tuple[int, int]] = []
        for atom in range(self.first, self.last + 1):
            left, right = self._column(atom)
            top = self._top(mass[atom], base)
            points += [(left, top), (right, top)]
        pen.line(points, TEXT)

    def _top(self, mass: float, base: int) -> int:
        """The y coordinate of a probability in the row that stands on `base`."""
        return base - round(min(1.0, mass / self.highest) * (self.row_height - 6))

    def _column(self, atom: int) -> tuple[int, int]:
        """The left and right ends of an atom's column."""
        pixels = (self.right - self.left) / (self.last + 1 - self.first)
        number = atom - self.first
        return self.left + round(number * pixels), self.left + round((number + 1) * pixels)

    def _x(self, value: float) -> int:
        """The x coordinate of a return, clipped to the range; atoms are in mid-column."""
        atoms = self.caption.atoms
        position = (value - atoms[self.first]) / (atoms[1] - atoms[0]) + 0.5
        share = position / (self.last + 1 - self.first)
        return self.left + round(min(1.0, max(0.0, share)) * (self.right - self.left))


def _range_with_mass(*distributions: NDArray[np.float64]) -> tuple[int, int]:
    """The first and last atom between which all but very little of the mass of an episode is."""
    mass = np.mean([d.mean(axis=(0, 1)) for d in distributions], axis=0)  # [N]
    below, above = np.cumsum(mass), np.cumsum(mass[::-1])[::-1]
    inside = np.flatnonzero((below > _HIDDEN_MASS) & (above > _HIDDEN_MASS))
    first, last = int(inside[0]), int(inside[-1])
    # At least two atoms, so that the range is not empty.
    first, last = max(0, min(first, last - 1)), min(len(mass) - 1, max(last, first + 1))
    return first, last
