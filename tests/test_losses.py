"""The losses against worked examples."""

from __future__ import annotations

import importlib.util
import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from noisynet.losses import (
    categorical_mean,
    categorical_projection,
    cross_entropy,
    double_q_target,
    entropy,
    huber,
    kl_divergence,
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
PI = torch.tensor([0.25, 0.25, 0.5], dtype=torch.float64)
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


# --- C51 and Rainbow -----------------------------------------------------------------------------

ATOMS = torch.tensor([-2.0, -1.0, 0.0, 1.0, 2.0])
UNIFORM = [0.2] * 5


def point(value: float) -> list[float]:
    """All probability on one atom."""
    return [float(atom == value) for atom in ATOMS.tolist()]


@pytest.mark.parametrize(
    ("reward", "discount", "before", "after"),
    [
        (0.0, 1.0, UNIFORM, UNIFORM),
        (1.0, 1.0, point(0), [0, 0, 0, 1, 0]),  # exactly on an atom
        (0.25, 1.0, point(0), [0, 0, 0.75, 0.25, 0]),  # between atoms: a quarter of the way
        (-1.75, 1.0, point(0), [0.75, 0.25, 0, 0, 0]),
        (2.0, 1.0, point(0), [0, 0, 0, 0, 1]),  # on the edges
        (-2.0, 1.0, point(0), [1, 0, 0, 0, 0]),
        (7.0, 1.0, point(0), [0, 0, 0, 0, 1]),  # beyond: clipped to the edges
        (-7.0, 1.0, point(0), [1, 0, 0, 0, 0]),
        (1.0, 1.0, UNIFORM, [0, 0.2, 0.2, 0.2, 0.4]),  # 2 and 3 share the last atom
        (0.0, 0.5, UNIFORM, [0, 0.3, 0.4, 0.3, 0]),  # −1, −½, 0, ½ and 1
        (0.5, 0.0, UNIFORM, [0, 0, 0.5, 0.5, 0]),  # terminal: the reward alone
        (9.0, 0.0, point(-2), [0, 0, 0, 0, 1]),
        # 3-step: r + γr′ + γ²r″ = 0.5 + 0.25 + 0.125 with γ = ½, then γ³ = ⅛ of the atom 1.
        (0.875, 0.125, point(1), [0, 0, 0, 1, 0]),
        (0.875, 0.125, point(-1), [0, 0, 0.25, 0.75, 0]),
    ],
)
def test_the_projection_in_worked_examples(
    reward: float, discount: float, before: list[float], after: list[float]
) -> None:
    projected = categorical_projection(
        torch.tensor([reward]), torch.tensor([discount]), torch.tensor([before]), ATOMS
    )
    torch.testing.assert_close(projected, torch.tensor([after], dtype=torch.float32))


def test_transitions_of_a_batch_are_projected_separately() -> None:
    reward, discount = torch.tensor([1.0, 0.25, 0.0]), torch.tensor([1.0, 0.0, 0.5])
    before = torch.tensor([point(0), UNIFORM, point(2)])
    together = categorical_projection(reward, discount, before, ATOMS)
    alone = [
        categorical_projection(reward[i : i + 1], discount[i : i + 1], before[i : i + 1], ATOMS)
        for i in range(3)
    ]
    assert torch.equal(together, torch.cat(alone))


# Other tests flush denormal numbers in this process, so none are generated.
floats = partial(st.floats, allow_subnormal=False)
probabilities = st.lists(floats(0, 1), min_size=5, max_size=5).filter(lambda p: sum(p) > 0.1)


@given(before=probabilities, reward=floats(-50, 50), discount=floats(0, 1))
@settings(deadline=None)
def test_a_projection_is_a_distribution(
    before: list[float], reward: float, discount: float
) -> None:
    projected = project_one(before, reward, discount)
    assert projected.min() >= 0
    assert projected.sum() == pytest.approx(1, abs=1e-9)


@given(before=probabilities, discount=floats(0, 1), shift=floats(-1, 1))
@settings(deadline=None)
def test_the_projection_preserves_the_mean_where_nothing_is_clipped(
    before: list[float], discount: float, shift: float
) -> None:
    reward = shift * 2 * (1 - discount)  # keeps ±2γ + r within ±2
    mean = reward + discount * expected_value(np.array(before) / sum(before))
    assert expected_value(project_one(before, reward, discount)) == pytest.approx(mean, abs=1e-9)


def project_one(before: list[float], reward: float, discount: float) -> Any:
    probability = torch.tensor([before], dtype=torch.float64)
    return categorical_projection(
        torch.tensor([reward], dtype=torch.float64),
        torch.tensor([discount], dtype=torch.float64),
        probability / probability.sum(),
        ATOMS.double(),
    )[0].numpy()


def expected_value(probability: Any) -> float:
    return float(probability @ ATOMS.double().numpy())


def test_the_support_of_c51_projects_without_loss_of_mass() -> None:
    """51 atoms in single precision: neighbours are not exactly 0.4 apart."""
    atoms = torch.linspace(-10, 10, 51)
    generator = torch.Generator().manual_seed(0)
    probability = torch.randn(256, 51, generator=generator).softmax(dim=-1)
    reward = torch.randn(256, generator=generator) * 5
    projected = categorical_projection(reward, torch.full((256,), 0.99), probability, atoms)
    torch.testing.assert_close(projected.sum(dim=-1), torch.ones(256), rtol=0, atol=1e-5)


def test_the_mean_is_the_sum_of_probabilities_times_atoms() -> None:
    """p = (½, ¼, 0, 0, ¼): −1 − ¼ + ½."""
    logits = torch.log(torch.tensor([[0.5, 0.25, 0.0, 0.0, 0.25], UNIFORM]))
    torch.testing.assert_close(categorical_mean(logits, ATOMS), torch.tensor([-0.75, 0.0]))
    shifted = categorical_mean(logits + 3, ATOMS)  # logits are defined up to a constant
    torch.testing.assert_close(shifted, torch.tensor([-0.75, 0.0]))
    by_action = categorical_mean(logits.view(1, 2, 5), ATOMS)
    assert by_action.shape == (1, 2)


def test_the_cross_entropy_and_its_gradient_in_a_worked_example() -> None:
    """m = (½, ½, 0), p = (¼, ¼, ½): −log ¼ = 2 log 2; the gradient to the logits is p − m."""
    target = torch.tensor([[0.5, 0.5, 0.0]], dtype=torch.float64)
    logits = torch.log(PI).unsqueeze(0).requires_grad_()
    loss = cross_entropy(target, logits)
    assert loss.item() == pytest.approx(2 * math.log(2))
    assert gradient(loss.sum(), logits)[0].tolist() == pytest.approx([-0.25, -0.25, 0.5])


def test_the_kl_divergence_in_worked_examples() -> None:
    """m = (½, ½, 0), p = (¼, ¼, ½): the cross-entropy 2 log 2 less the entropy log 2."""
    targets = torch.stack([torch.tensor([0.5, 0.5, 0.0]).double(), PI, torch.eye(3).double()[2]])
    found = kl_divergence(targets, torch.log(PI).expand(3, 3) + 5)
    assert found.tolist() == pytest.approx([math.log(2), 0.0, math.log(2)])


def test_rounding_does_not_make_the_kl_divergence_negative() -> None:
    """Priorities must not be negative."""
    logits = torch.randn(1_000, 51, generator=torch.Generator().manual_seed(0))
    found = kl_divergence(logits.softmax(dim=-1), logits)
    assert bool((found >= 0).all())
    torch.testing.assert_close(found, torch.zeros(1_000), rtol=0, atol=1e-5)


# Computed with rlax 0.1.9 in single precision:
#   rlax.categorical_l2_project(reward + discount * ATOMS, probability, ATOMS)
#   rlax.categorical_double_q_learning(
#       ATOMS, LOGITS_TM1, action, reward, discount, ATOMS, LOGITS_T, SELECTOR)
#   rlax.categorical_q_learning(ATOMS, LOGITS_TM1, action, reward, discount, ATOMS, LOGITS_T)
RLAX_PROJECTIONS = [
    # reward, discount, probability, projection
    (0.5, 0.9, [0.1, 0.2, 0.4, 0.2, 0.1], [0.03, 0.15, 0.32, 0.32, 0.18]),
    (1.0, 0.970299, [0.5, 0, 0, 0.25, 0.25], [0, 0.470299, 0.029701, 0.007425, 0.492575]),
    (-0.25, 0.5, UNIFORM, [0.05, 0.35, 0.4, 0.2, 0]),
    (3.0, 0.99, [0.3, 0.1, 0.1, 0.1, 0.4], [0, 0, 0, 0.294, 0.706]),
    (0.75, 0.0, [0.05, 0.15, 0.3, 0.35, 0.15], [0, 0, 0.25, 0.75, 0]),
]
LOGITS_TM1 = [[0.1, -0.3, 0.5, 0.2, -0.9], [1.0, 0.0, -1.0, 0.4, 0.3], [-0.2, 0.8, 0.1, -0.6, 0.7]]
LOGITS_T = [[0.3, 0.9, -0.4, 0.1, 0.0], [-1.0, -0.5, 0.2, 0.8, 1.1], [0.6, -0.1, 0.0, 0.3, -0.7]]
SELECTOR = [0.2, -0.1, 0.7]
RLAX_LOSSES = [
    # action, reward, discount, loss of double Q-learning, loss of Q-learning
    (0, 0.5, 0.9, 1.738821, 2.006370),
    (1, 1.0, 0.970299, 1.938690, 1.738806),
    (2, -0.25, 0.0, 1.628898, 1.628898),
]


@pytest.mark.parametrize(("reward", "discount", "before", "after"), RLAX_PROJECTIONS)
def test_the_projection_is_that_of_rlax(
    reward: float, discount: float, before: list[float], after: list[float]
) -> None:
    arguments = torch.tensor([reward]), torch.tensor([discount]), torch.tensor([before])
    projected = categorical_projection(*arguments, ATOMS)[0]
    torch.testing.assert_close(projected, torch.tensor(after).float(), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("action", "reward", "discount", "double", "single"), RLAX_LOSSES)
def test_the_losses_of_distributional_q_learning_are_those_of_rlax(
    action: int, reward: float, discount: float, double: float, single: float
) -> None:
    logits_tm1, logits_t = torch.tensor(LOGITS_TM1), torch.tensor(LOGITS_T)
    for selector, expected in (
        (torch.tensor(SELECTOR), double),
        (categorical_mean(logits_t, ATOMS), single),
    ):
        target = categorical_projection(
            torch.tensor([reward]),
            torch.tensor([discount]),
            logits_t[selector.argmax()].softmax(dim=-1).unsqueeze(0),
            ATOMS,
        )
        loss = cross_entropy(target, logits_tm1[action].unsqueeze(0))
        assert loss.item() == pytest.approx(expected, abs=1e-5)


@pytest.mark.skipif(importlib.util.find_spec("rlax") is None, reason="rlax is not installed")
def test_random_distributions_are_projected_as_by_rlax() -> None:
    rlax = importlib.import_module("rlax")
    rng, atoms = np.random.default_rng(0), np.linspace(-10, 10, 51, dtype=np.float32)
    for _ in range(20):
        before = rng.dirichlet(np.ones(51)).astype(np.float32)
        reward, discount = np.float32(rng.normal() * 5), np.float32(rng.random())
        expected = rlax.categorical_l2_project(reward + discount * atoms, before, atoms)
        found = categorical_projection(
            torch.tensor([reward]),
            torch.tensor([discount]),
            torch.from_numpy(before).unsqueeze(0),
            torch.from_numpy(atoms),
        )
        np.testing.assert_allclose(found[0].numpy(), np.asarray(expected), rtol=0, atol=1e-5)


@pytest.mark.skipif(importlib.util.find_spec("rlax") is None, reason="rlax is not installed")
def test_random_losses_of_double_q_learning_are_those_of_rlax() -> None:
    rlax = importlib.import_module("rlax")
    rng, atoms = np.random.default_rng(1), np.linspace(-10, 10, 51, dtype=np.float32)
    for discount in (0.0, 0.99, 0.99**3):
        logits_tm1, logits_t = rng.normal(size=(2, 6, 51)).astype(np.float32)
        selector, action = rng.normal(size=6).astype(np.float32), int(rng.integers(6))
        reward = np.float32(rng.normal() * 5)
        expected = rlax.categorical_double_q_learning(
            atoms, logits_tm1, action, reward, np.float32(discount), atoms, logits_t, selector
        )
        p_t = torch.from_numpy(logits_t[selector.argmax()]).softmax(dim=-1).unsqueeze(0)
        target = categorical_projection(
            torch.tensor([reward]),
            torch.tensor([discount], dtype=torch.float32),
            p_t,
            torch.from_numpy(atoms),
        )
        found = cross_entropy(target, torch.from_numpy(logits_tm1[action]).unsqueeze(0))
        assert found.item() == pytest.approx(float(expected), abs=1e-4)


# --- A3C -----------------------------------------------------------------------------------------


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
