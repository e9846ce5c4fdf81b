"""Number formats and fonts of the panel."""

from __future__ import annotations

import pytest

pytest.importorskip("PIL")

from noisynet.watch.text import fitting_font, load_font, number_text, round_unit, tick_text


@pytest.mark.parametrize(
    ("minimum", "unit"), [(1.0, 1.0), (1.1, 2.0), (3.0, 5.0), (7.0, 10.0), (0.03, 0.05)]
)
def test_units_are_1_2_or_5_times_a_power_of_ten(minimum: float, unit: float) -> None:
    assert round_unit(minimum) == pytest.approx(unit)


@pytest.mark.parametrize(
    ("value", "unit", "text"), [(0.4, 0.2, "0.4"), (-0.05, 0.05, "−0.05"), (30.0, 10.0, "30")]
)
def test_ticks_have_the_decimals_of_their_unit(value: float, unit: float, text: str) -> None:
    assert tick_text(value, unit) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(3.0, "3"), (0.12345, "0.123"), (-1234.5, "−1,234"), (12_000_000.0, "12,000,000")],
)
def test_numbers_have_three_significant_digits_or_are_whole(value: float, text: str) -> None:
    assert number_text(value) == text


def test_the_fitting_font_is_the_largest_that_fits() -> None:
    text = "NoisyNet-DQN on deep_sea/10"
    assert fitting_font(text, 18, 10_000).getlength(text) == load_font(18).getlength(text)
    width = int(load_font(16).getlength(text)) + 1
    assert fitting_font(text, 18, width).getlength(text) == load_font(16).getlength(text)
    assert fitting_font(text, 18, 1).getlength(text) == load_font(14).getlength(text)
