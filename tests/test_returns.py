"""Returns of roll-outs, worked out by hand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from noisynet.returns import n_step_returns


def column(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)[:, None]  # [T, 1]


def test_a_roll_out_under_way_is_bootstrapped_from_its_last_state() -> None:
    """γ = 0.5, V = 8: 3 + 4 = 7, 2 + 3.5 = 5.5, 1 + 2.75 = 3.75."""
    found = n_step_returns(column(1, 2, 3), column(0.5, 0.5, 0.5), torch.tensor([8.0]).double())
    assert found[:, 0].tolist() == [3.75, 5.5, 7.0]


def test_after_a_terminal_state_nothing_is_expected() -> None:
    found = n_step_returns(column(1, 2, 3), column(0.5, 0.5, 0), torch.tensor([8.0]).double())
    assert found[:, 0].tolist() == [2.75, 3.5, 3.0]


def test_a_game_that_ends_on_the_way_parts_the_roll_out_in_two() -> None:
    found = n_step_returns(column(1, 2, 3), column(0.5, 0, 0.5), torch.tensor([8.0]).double())
    assert found[:, 0].tolist() == [2.0, 2.0, 7.0]


def test_a_cut_episode_is_bootstrapped_from_its_own_last_state() -> None:
    """V of the state after the second step is 4; what follows is another episode's."""
    found = n_step_returns(
        column(1, 2, 3),
        column(0.5, 0.5, 0.5),
        torch.tensor([8.0]).double(),
        column(0, 1, 0).bool(),
        column(-100, 4, -100),
    )
    assert found[:, 0].tolist() == [3.0, 4.0, 7.0]


def test_an_episode_that_is_cut_at_the_end_does_not_look_at_the_next() -> None:
    found = n_step_returns(
        column(1, 2),
        column(0.5, 0.5),
        torch.tensor([1000.0]).double(),
        column(0, 1).bool(),
        column(-100, 4),
    )
    assert found[:, 0].tolist() == [3.0, 4.0]


def test_environments_do_not_mix() -> None:
    reward = torch.tensor([[1.0, 10.0], [2.0, 20.0]])
    discount = torch.tensor([[0.5, 0.0], [0.5, 1.0]])
    found = n_step_returns(reward, discount, torch.tensor([8.0, 5.0]))
    assert found.tolist() == [[4.0, 10.0], [6.0, 25.0]]


def test_values_to_go_on_with_are_needed_where_something_was_cut() -> None:
    with pytest.raises(AssertionError, match="needs the values"):
        n_step_returns(column(1), column(1), torch.zeros(1), column(1).bool())
