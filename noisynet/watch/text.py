"""Numbers and letters of the panel: how a value is written, and in which font."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import TypeAlias

from PIL import ImageFont

Font: TypeAlias = ImageFont.FreeTypeFont | ImageFont.ImageFont


def round_unit(roughly: float) -> float:
    """1, 2 or 5 times a power of ten, at least `roughly`."""
    power = 10.0 ** math.floor(math.log10(roughly))
    return next(unit * power for unit in (1, 2, 5, 10) if unit * power >= roughly)


def tick(value: float, unit: float) -> str:
    """A multiple of `unit`, to as many decimals as that has."""
    decimals = max(0, -math.floor(math.log10(unit) + 1e-9))
    return f"{value:.{decimals}f}".replace("-", "−")


def number_text(value: float) -> str:
    """Three significant digits, or a whole number."""
    whole = float(value).is_integer()
    text = f"{value:,.0f}" if whole or abs(value) >= 1000 else f"{value:.3g}"
    return text.replace("-", "−")


def fitting(text: str, size: int, room: int, *, bold: bool = False) -> Font:
    """The largest font up to `size`, but of at least 14 pixels, in which the text fits."""
    while size > 14 and font_of(size, bold=bold).getlength(text) > room:
        size -= 1
    return font_of(size, bold=bold)


_fonts: dict[tuple[int, bool], Font] = {}


def font_of(size: int, *, bold: bool = False) -> Font:
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
