"""Returns of roll-outs against worked examples."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from noisynet.returns import n_step_returns


def column(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)[:, None]  # [T, 1]


def test_an_unfinished_roll_out_is_bootstrapped_from_its_last_state() -> None:
    """γ = 0.5, V = 8: 3 + 4 = 7, 2 + 3.5 = 5.5, 1 + 2.75 = 3.75."""
    found = n_step_returns(column(1, 2, 3), column(0.5, 0.5, 0.5), torch.tensor([8.0]).double())
    assert found[:, 0].tolist() == [3.75, 5.5, 7.0]


def test_a_terminal_state_is_not_bootstrapped() -> None:
    found = n_step_returns(column(1, 2, 3), column(0.5, 0.5, 0), torch.tensor([8.0]).double())
    assert found[:, 0].tolist() == [2.75, 3.5, 3.0]


def test_returns_do_not_cross_the_end_of_an_episode() -> None:
    found = n_step_returns(column(1, 2, 3), column(0.5, 0, 0.5), torch.tensor([8.0]).double())
    assert found[:, 0].tolist() == [2.0, 2.0, 7.0]


def test_a_truncated_episode_is_bootstrapped_from_its_own_last_state() -> None:
    """V of the state after the second step is 4; the third step belongs to the next episode."""
    found = n_step_returns(
        column(1, 2, 3),
        column(0.5, 0.5, 0.5),
        torch.tensor([8.0]).double(),
        column(0, 1, 0).bool(),
        column(-100, 4, -100),
    )
    assert found[:, 0].tolist() == [3.0, 4.0, 7.0]


def test_an_episode_truncated_at_the_last_step_ignores_the_next_one() -> None:
    found = n_step_returns(
        column(1, 2),
        column(0.5, 0.5),
        torch.tensor([1000.0]).double(),
        column(0, 1).bool(),
        column(-100, 4),
    )
    assert found[:, 0].tolist() == [3.0, 4.0]


def test_environments_are_independent() -> None:
    reward = torch.tensor([[1.0, 10.0], [2.0, 20.0]])
    discount = torch.tensor([[0.5, 0.0], [0.5, 1.0]])
    found = n_step_returns(reward, discount, torch.tensor([8.0, 5.0]))
    assert found.tolist() == [[4.0, 10.0], [6.0, 25.0]]


def test_truncated_steps_need_their_values() -> None:
    with pytest.raises(ValueError, match="expected truncated_value"):
        n_step_returns(column(1), column(1), torch.zeros(1), column(1).bool())
