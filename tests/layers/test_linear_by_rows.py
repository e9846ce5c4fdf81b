"""Independent noise with one sample per row: gradients equal automatic differentiation's."""

from __future__ import annotations

import pytest
import torch

from noisynet.layers.linear_by_rows import linear_by_rows

ROWS, INPUTS, OUTPUTS = 5, 4, 3


@pytest.mark.parametrize("steps", [(), (1,), (7,), (2, 3)], ids=str)
@pytest.mark.parametrize("frozen", ["nothing", "sigma", "x"])
def test_outputs_and_gradients_are_those_of_the_definition(
    steps: tuple[int, ...], frozen: str
) -> None:
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    x, epsilon = normal(*steps, ROWS, INPUTS), normal(ROWS, OUTPUTS, INPUTS)
    mu, sigma = normal(OUTPUTS, INPUTS), normal(OUTPUTS, INPUTS)
    trained = {"x": x, "mu": mu, "sigma": sigma}
    trained.pop(frozen, None)
    for tensor in trained.values():
        tensor.requires_grad_()
    weight = mu + sigma * epsilon
    rows = [x[..., n, :] @ weight[n].T for n in range(ROWS)]
    expected = torch.stack(rows, dim=-2)
    found = linear_by_rows(x, mu, sigma, weight.detach(), epsilon)
    torch.testing.assert_close(found, expected)
    factor = normal(*expected.shape)
    tensors = list(trained.values())
    for one, other in zip(
        torch.autograd.grad(found, tensors, factor),
        torch.autograd.grad(expected, tensors, factor),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


def test_a_float_gradient_of_lower_precision_is_accepted() -> None:
    """Under autocast the outputs, and so their gradients, are in bfloat16."""
    x, mu = torch.randn(ROWS, INPUTS), torch.randn(OUTPUTS, INPUTS, requires_grad=True)
    epsilon = torch.randn(ROWS, OUTPUTS, INPUTS)
    with torch.autocast("cpu", torch.bfloat16):
        y = linear_by_rows(x, mu, mu, mu.detach() + mu.detach() * epsilon, epsilon)
    assert y.dtype == torch.bfloat16
    y.sum().backward()
    assert mu.grad is not None
    assert mu.grad.dtype == torch.float32
