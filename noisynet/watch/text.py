"""Number formats and fonts of the panel."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import TypeAlias

from PIL import ImageFont

Font: TypeAlias = ImageFont.FreeTypeFont | ImageFont.ImageFont


def round_unit(minimum: float) -> float:
    """The smallest of 1, 2 and 5 times a power of ten that is at least `minimum`."""
    power = 10.0 ** math.floor(math.log10(minimum))
    return next(unit * power for unit in (1, 2, 5, 10) if unit * power >= minimum)


def tick_text(value: float, unit: float) -> str:
    """A multiple of `unit`, with as many decimals as `unit` has."""
    decimals = max(0, -math.floor(math.log10(unit) + 1e-9))
    return f"{value:.{decimals}f}".replace("-", "−")


def number_text(value: float) -> str:
    """Three significant digits, or a whole number."""
    whole = float(value).is_integer()
    text = f"{value:,.0f}" if whole or abs(value) >= 1000 else f"{value:.3g}"
    return text.replace("-", "−")


def fitting_font(text: str, size: int, width: int, *, bold: bool = False) -> Font:
    """The largest font from 14 to `size` pixels in which the text fits into `width` pixels."""
    while size > 14 and load_font(size, bold=bold).getlength(text) > width:
        size -= 1
    return load_font(size, bold=bold)


_fonts: dict[tuple[int, bool], Font] = {}


def load_font(size: int, *, bold: bool = False) -> Font:
    """DejaVu Sans, which has Greek letters, if matplotlib is installed; otherwise Pillow's."""
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
