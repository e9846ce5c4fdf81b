"""Rendering of grid worlds."""

from __future__ import annotations

import numpy as np

from noisynet.envs.grid_rendering import (
    BACKGROUND,
    CELL_PIXELS,
    ENEMY,
    PLAYER,
    render_cells,
)


def test_later_layers_cover_earlier_ones_and_cells_are_squares() -> None:
    below, above = np.array([[True, True, False]]), np.array([[False, True, False]])
    screen = render_cells([(below, ENEMY), (above, PLAYER)])
    assert screen.shape == (CELL_PIXELS, 3 * CELL_PIXELS, 3)
    assert screen.dtype == np.uint8
    for column, colour in enumerate((ENEMY, PLAYER, BACKGROUND)):
        cell = screen[:, column * CELL_PIXELS : (column + 1) * CELL_PIXELS]
        assert (cell == colour).all()
