"""Writing pictures as gif: rate, palette and size. mp4 is tested with whole videos."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from noisynet.watch.encode import GIF_PICTURES, gif_stride, write_gif
from noisynet.watch.panel import BACKGROUND


@pytest.mark.parametrize(
    ("steps", "rate", "stride"),
    [(100, 10, 1), (100, 3, 1), (100, 15, 2), (100, 30, 3), (250, 10, 1), (1_000, 10, 4)],
)
def test_a_gif_has_few_pictures_a_second_and_in_all(steps: int, rate: int, stride: int) -> None:
    assert gif_stride(steps, rate) == stride
    assert steps / stride <= GIF_PICTURES


def noisy_text(number: int) -> Image.Image:
    """A picture as large as a MinAtar video's, of which as much changes."""
    pixels = np.zeros((640, 1120, 3), np.uint8)
    pixels[:, 640:] = BACKGROUND
    generator = np.random.default_rng(number)
    pixels[100:160, 660:960] = generator.integers(0, 2, (60, 300, 1)) * 200  # 18,000 random bits
    pixels[64 * (number % 9) :, :64] = (200, 100, number % 250)
    return Image.fromarray(pixels)


def test_a_gif_of_a_minatar_game_has_at_most_2_megabytes(tmp_path: Path) -> None:
    pictures = [noisy_text(number) for number in range(25)]
    write_gif(tmp_path / "a.gif", iter(pictures), [0.1] * 25, pictures[:2])
    per_picture = (tmp_path / "a.gif").stat().st_size / 25
    assert per_picture * GIF_PICTURES < 2_000_000


def test_the_palette_has_the_colours_of_all_samples(tmp_path: Path) -> None:
    colours = [(200, 0, 0), (0, 200, 0), (0, 0, 200)]
    pictures = [Image.new("RGB", (40, 30), colour) for colour in colours]
    write_gif(tmp_path / "a.gif", iter(pictures), [0.1, 0.25, 1.0], pictures)
    with Image.open(tmp_path / "a.gif") as gif:
        shown, durations = [], []
        for number in range(3):
            gif.seek(number)
            shown.append(gif.convert("RGB").getpixel((5, 5)))
            durations.append(gif.info["duration"])
    assert shown == colours
    assert durations == [100, 250, 1000]
