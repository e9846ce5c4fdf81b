"""Renders grid worlds, which have no screen of their own: cells in fixed colours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Colour: TypeAlias = tuple[int, int, int]

CELL_PIXELS: Final = 16
BACKGROUND: Final[Colour] = (16, 16, 24)

PLAYER: Final[Colour] = (255, 214, 64)
ENEMY: Final[Colour] = (226, 74, 74)
TREASURE: Final[Colour] = (88, 196, 104)
TRAIL: Final[Colour] = (84, 84, 104)

CHANNEL_COLOURS: Final[dict[str, Colour]] = {
    # the player
    "player": PLAYER,
    "paddle": PLAYER,
    "chicken": PLAYER,
    "cannon": PLAYER,
    "sub_front": PLAYER,
    "sub_back": (190, 150, 40),
    "friendly_bullet": (255, 246, 200),
    # opponents
    "enemy": ENEMY,
    "alien": ENEMY,
    "alien_left": ENEMY,
    "alien_right": ENEMY,
    "car": ENEMY,
    "enemy_fish": ENEMY,
    "enemy_sub": (178, 60, 140),
    "enemy_bullet": (255, 150, 150),
    # objects and gauges
    "ball": (240, 240, 240),
    "brick": (72, 136, 224),
    "gold": TREASURE,
    "diver": TREASURE,
    "diver_guage": TREASURE,
    "oxygen_guage": (96, 200, 224),
    # motion; Freeway has one channel for each speed
    "trail": TRAIL,
    "speed1": (150, 90, 90),
    "speed2": (130, 84, 92),
    "speed3": (112, 78, 94),
    "speed4": (96, 74, 96),
    "speed5": (80, 70, 98),
}
"""Colour of each of MinAtar's channels, by MinAtar's own names."""


def render_cells(layers: Sequence[tuple[NDArray[np.bool_], Colour]]) -> NDArray[np.uint8]:
    """Render masks [H, W] in their colours, the first at the bottom: uint8 [H·16, W·16, 3]."""
    cells = np.empty((*layers[0][0].shape, 3), dtype=np.uint8)
    cells[:] = BACKGROUND
    for mask, colour in layers:
        cells[mask] = colour
    return cells.repeat(CELL_PIXELS, axis=0).repeat(CELL_PIXELS, axis=1)
