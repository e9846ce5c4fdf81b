"""The losses against worked examples."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from noisynet.losses import (
    double_q_target,
    entropy,
    huber,
    log_policy,
    mean_over_batch,
    over_rollout,
    policy_gradient,
    q_learning_target,
    squared,
    td_error,
)

REWARD = torch.tensor([1.0, -0.5, 2.0])
DISCOUNT = torch.tensor([0.9, 0.5, 0.0])  # the third transition is terminal
Q_T = torch.tensor([[1.0, 4.0, 2.0], [-3.0, -2.0, -1.0], [100.0, 200.0, 300.0]])
ERRORS = torch.tensor([-3.0, -1.0, -0.5, 0.0, 0.25, 1.0, 2.5])


def gradient(loss: Tensor, of: Tensor) -> Tensor:
    (found,) = torch.autograd.grad(loss, of)
    return found


def test_q_learning_target_is_reward_plus_discounted_maximum() -> None:
    target = q_learning_target(REWARD, DISCOUNT, Q_T)
    # 1 + 0.9·4, −0.5 + 0.5·(−1), 2
    torch.testing.assert_close(target, torch.tensor([4.6, -1.0, 2.0]))


def test_double_q_target_evaluates_the_selectors_action_with_the_target_network() -> None:
    selector = torch.tensor([[0.0, 1.0, 9.0], [5.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    target = double_q_target(REWARD, DISCOUNT, Q_T, selector)
    # b* = 2, 0, 1: 1 + 0.9·2, −0.5 + 0.5·(−3), 2
    torch.testing.assert_close(target, torch.tensor([2.8, -2.0, 2.0]))


def test_double_q_with_the_target_network_as_selector_is_q_learning() -> None:
    expected = q_learning_target(REWARD, DISCOUNT, Q_T)
    assert torch.equal(double_q_target(REWARD, DISCOUNT, Q_T, Q_T), expected)


@pytest.mark.parametrize("value", [-1e6, 0.0, 1e6])
def test_the_target_of_a_terminal_transition_is_the_reward_alone(value: float) -> None:
    q_t, discount = torch.full((3, 2), value), torch.zeros(3)
    assert torch.equal(q_learning_target(REWARD, discount, q_t), REWARD)
    assert torch.equal(double_q_target(REWARD, discount, q_t, q_t), REWARD)


def test_td_error_is_target_minus_the_value_of_the_action_taken() -> None:
    q_tm1 = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    error = td_error(q_tm1, torch.tensor([1, 0]), torch.tensor([5.0, 1.0]))
    assert error.tolist() == [3.0, -2.0]


def test_td_error_gives_a_gradient_to_the_taken_action_only() -> None:
    q_tm1 = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    error = td_error(q_tm1, torch.tensor([1, 0]), torch.tensor([5.0, 1.0]))
    assert gradient(error.sum(), q_tm1).tolist() == [[0.0, -1.0], [-1.0, 0.0]]


def test_huber_is_quadratic_up_to_one_and_linear_beyond() -> None:
    assert huber(ERRORS).tolist() == [2.5, 0.5, 0.125, 0.0, 0.03125, 0.5, 2.0]


def test_the_gradient_of_huber_is_the_error_clipped_to_one() -> None:
    error = ERRORS.clone().requires_grad_()
    assert torch.equal(gradient(huber(error).sum(), error), ERRORS.clamp(-1, 1))


def test_huber_accepts_another_threshold() -> None:
    error = ERRORS.clone().requires_grad_()
    loss = huber(error, threshold=2.0)
    assert loss.tolist() == [4.0, 0.5, 0.125, 0.0, 0.03125, 0.5, 3.0]
    assert torch.equal(gradient(loss.sum(), error), ERRORS.clamp(-2, 2))


def test_squared_is_half_the_square_and_its_gradient_the_error() -> None:
    error = ERRORS.clone().requires_grad_()
    loss = squared(error)
    assert loss.tolist() == [4.5, 0.5, 0.125, 0.0, 0.03125, 0.5, 3.125]
    assert torch.equal(gradient(loss.sum(), error), ERRORS)


def test_huber_and_squared_agree_on_small_errors_only() -> None:
    small = ERRORS.abs() <= 1
    assert torch.equal(huber(ERRORS)[small], squared(ERRORS)[small])
    assert bool((huber(ERRORS)[~small] < squared(ERRORS)[~small]).all())


def test_the_mean_divides_by_the_batch_and_not_by_the_sum_of_weights() -> None:
    loss, weight = torch.tensor([1.0, 2.0, 6.0]), torch.tensor([1.0, 0.5, 0.25])
    # (1 + 1 + 1.5) / 3
    assert mean_over_batch(loss, weight).item() == pytest.approx(3.5 / 3)


def test_importance_weights_scale_the_gradient_of_each_transition() -> None:
    error = torch.tensor([0.5, -4.0], requires_grad=True)
    weight = torch.tensor([1.0, 0.5])
    found = gradient(mean_over_batch(huber(error), weight), error)
    # (1·0.5, 0.5·(−1)) / 2
    assert found.tolist() == [0.25, -0.25]


def test_equation_2_in_a_worked_example() -> None:
    """r = 1, γ = 0.9, Q(x, a) = 3, max Q(y, ·) = 4: the error is 1.6, the Huber loss 1.1."""
    q_tm1 = torch.tensor([[3.0, 7.0]], dtype=torch.float64, requires_grad=True)
    reward, discount = torch.tensor([1.0]).double(), torch.tensor([0.9]).double()
    target = q_learning_target(reward, discount, torch.tensor([[4.0, -4.0]]).double())
    error = td_error(q_tm1, torch.tensor([0]), target)
    assert error.item() == pytest.approx(1.6)
    assert huber(error).item() == pytest.approx(1.1)
    assert squared(error).item() == pytest.approx(1.28)
    assert gradient(huber(error).sum(), q_tm1).tolist() == [[-1.0, 0.0]]


# --- A3C -----------------------------------------------------------------------------------------

PI = torch.tensor([0.25, 0.25, 0.5], dtype=torch.float64)


def test_the_policy_is_the_softmax_of_its_logits() -> None:
    log_pi = log_policy(torch.log(PI) + 7)
    assert log_pi.exp().tolist() == pytest.approx(PI.tolist())


def test_the_policy_gradient_in_a_worked_example() -> None:
    """−log ¼ · 2; its gradient to the logits is (π − 1_a) · 2."""
    logits = torch.log(PI).requires_grad_()
    loss = policy_gradient(log_policy(logits), torch.tensor(1), torch.tensor(2.0))
    assert loss.item() == pytest.approx(2 * math.log(4))
    assert gradient(loss, logits).tolist() == pytest.approx([0.5, -1.5, 1.0])


def test_the_policy_gradient_treats_the_advantage_as_a_constant() -> None:
    advantage = torch.tensor([2.0], requires_grad=True)
    logits = torch.zeros(1, 3, requires_grad=True)
    policy_gradient(log_policy(logits), torch.tensor([0]), advantage).sum().backward()
    assert advantage.grad is None


def test_the_entropy_and_its_gradient_in_a_worked_example() -> None:
    """H of (¼, ¼, ½) is 1.5 bits; its gradient to the logits is −π (log π + H)."""
    logits = torch.log(PI).requires_grad_()
    found = entropy(log_policy(logits))
    assert found.item() == pytest.approx(1.5 * math.log(2))
    expected = -PI * (torch.log(PI) + 1.5 * math.log(2))
    assert gradient(found, logits).tolist() == pytest.approx(expected.tolist())


def test_a_deterministic_policy_has_zero_entropy() -> None:
    assert entropy(log_policy(torch.tensor([[500.0, 0.0, 0.0]]))).tolist() == [0.0]


def test_over_rollout_sums_over_steps_and_averages_over_environments() -> None:
    assert over_rollout(torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])).item() == 10.5
