"""Prefixes of names in state dictionaries."""

from __future__ import annotations

from noisynet.state_dicts import add_prefix, strip_prefix


def test_stripping_is_the_inverse_of_adding() -> None:
    named = {"weight": 1, "online.weight": 2}
    assert add_prefix("online.", named) == {"online.weight": 1, "online.online.weight": 2}
    assert strip_prefix("online.", add_prefix("online.", named)) == named


def test_stripping_selects_the_names_with_the_prefix() -> None:
    named = {"online.weight": 1, "target.weight": 2, "weight.online.": 3}
    assert strip_prefix("online.", named) == {"weight": 1}
