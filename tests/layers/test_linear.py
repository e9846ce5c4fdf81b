from __future__ import annotations

import copy
import io
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from noisynet.layers import (
    Noise,
    NoisyLinear,
    held_noise,
    hold_noise,
    noise_off,
    perturbed_weight,
    resample_noise,
    scale_noise,
)

KINDS: tuple[Noise, ...] = ("factorised", "independent")


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# --- the equations -------------------------------------------------------------------------------


def test_scale_noise_is_the_signed_square_root() -> None:
    x = torch.tensor([-4.0, -0.25, 0.0, 0.25, 9.0])
    assert scale_noise(x).tolist() == [-2.0, -0.5, 0.0, 0.5, 3.0]


@pytest.mark.parametrize("rows", [(), (7,)], ids=["one sample", "rows"])
def test_perturbed_weight_is_mu_plus_sigma_times_the_outer_product(rows: tuple[int, ...]) -> None:
    mu, sigma = torch.randn(2, 4, 3, dtype=torch.float64)
    outputs, inputs = (torch.randn(*rows, n, dtype=torch.float64) for n in (4, 3))
    epsilon = torch.einsum("...j,...i->...ji", outputs, inputs)  # Eq. 10
    torch.testing.assert_close(perturbed_weight(mu, sigma, outputs, inputs), mu + sigma * epsilon)


def test_factorised_layer_matches_a_worked_example() -> None:
    """Eqs. 9 to 11 with small numbers."""
    layer = NoisyLinear(2, 2)
    with torch.no_grad():
        layer.weight_mu.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        layer.weight_sigma.copy_(torch.tensor([[0.1, 0.2], [0.3, 0.4]]))
        assert layer.bias_mu is not None
        assert layer.bias_sigma is not None
        layer.bias_mu.copy_(torch.tensor([0.5, -0.5]))
        layer.bias_sigma.copy_(torch.tensor([0.01, 0.02]))
    layer.epsilon_in = torch.tensor([2.0, -1.0])  # f(ε_i)
    layer.epsilon_out = torch.tensor([3.0, 0.5])  # f(ε_j)
    # weights: [[1 + .1·3·2, 2 − .2·3·1], [3 + .3·.5·2, 4 − .4·.5·1]]; biases: .5 + .03, −.5 + .01
    expected_weight = torch.tensor([[1.6, 1.4], [3.3, 3.8]])
    expected_bias = torch.tensor([0.53, -0.49])
    torch.testing.assert_close(layer.weight, expected_weight)
    assert layer.bias is not None
    torch.testing.assert_close(layer.bias, expected_bias)
    x = torch.tensor([[10.0, 1.0]])
    expected = torch.tensor([[16 + 1.4 + 0.53, 33 + 3.8 - 0.49]])
    torch.testing.assert_close(layer(x), expected)
    torch.testing.assert_close(layer(x.expand(50, 2)), expected.expand(50, 2))


def test_independent_layer_matches_a_worked_example() -> None:
    layer = NoisyLinear(2, 1, noise="independent")
    with torch.no_grad():
        layer.weight_mu.copy_(torch.tensor([[1.0, 2.0]]))
        layer.weight_sigma.copy_(torch.tensor([[0.5, 0.25]]))
        assert layer.bias_mu is not None
        assert layer.bias_sigma is not None
        layer.bias_mu.fill_(3.0)
        layer.bias_sigma.fill_(0.1)
    layer.epsilon_weight = torch.tensor([[2.0, -4.0]])
    layer.epsilon_bias = torch.tensor([10.0])
    # (1 + .5·2) 7 + (2 − .25·4) 5 + 3 + .1·10
    torch.testing.assert_close(layer(torch.tensor([[7.0, 5.0]])), torch.tensor([[23.0]]))


@pytest.mark.parametrize("noise", KINDS)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("batch", [1, 2, 32])
def test_forward_is_a_linear_layer_with_the_current_weights(
    noise: Noise, bias: bool, batch: int
) -> None:
    layer = NoisyLinear(30, 20, bias, noise=noise, dtype=torch.float64)
    x = torch.randn(batch, 30, dtype=torch.float64)
    torch.testing.assert_close(layer(x), nn.functional.linear(x, layer.weight, layer.bias))


# --- initialisation (section 3.2) ----------------------------------------------------------------


def test_factorised_initialisation_is_the_papers() -> None:
    layer = NoisyLinear(400, 25, generator=generator())
    bound = 1 / math.sqrt(400)
    for mu in (layer.weight_mu, layer.bias_mu):
        assert mu is not None
        assert mu.abs().max() <= bound
    assert layer.weight_mu.abs().max() > 0.999 * bound
    assert layer.weight_mu.var().item() == pytest.approx(bound**2 / 3, rel=0.02)
    assert torch.all(layer.weight_sigma == 0.5 / math.sqrt(400))


def test_bias_sigma_is_scaled_by_inputs_not_outputs() -> None:
    layer = NoisyLinear(400, 25)
    assert layer.bias_sigma is not None
    assert torch.all(layer.bias_sigma == 0.5 / math.sqrt(400))


def test_independent_initialisation_is_the_papers() -> None:
    layer = NoisyLinear(400, 25, noise="independent", generator=generator())
    bound = math.sqrt(3 / 400)
    assert 0.999 * bound < layer.weight_mu.abs().max() <= bound
    assert layer.weight_mu.var().item() == pytest.approx(1 / 400, rel=0.02)
    assert layer.bias_sigma is not None
    assert torch.all(layer.weight_sigma == 0.017)
    assert torch.all(layer.bias_sigma == 0.017)


@pytest.mark.parametrize(("noise", "expected"), [("factorised", 0.1 / 4), ("independent", 0.1)])
def test_sigma0_sets_the_initial_noise(noise: Noise, expected: float) -> None:
    layer = NoisyLinear(16, 3, noise=noise, sigma0=0.1)
    assert layer.weight_sigma.min().item() == pytest.approx(expected)
    assert layer.weight_sigma.max().item() == pytest.approx(expected)


# --- the distribution of ε -----------------------------------------------------------------------


def noise_samples(layer: NoisyLinear, draws: int) -> tuple[Tensor, Tensor]:
    """εw and εb of many samples, computed from the current weights."""
    source, weights, biases = generator(1), [], []
    for _ in range(draws):
        layer.resample_noise(source)
        weights.append(((layer.weight - layer.weight_mu) / layer.weight_sigma).detach())
        assert layer.bias is not None
        assert layer.bias_mu is not None
        assert layer.bias_sigma is not None
        biases.append(((layer.bias - layer.bias_mu) / layer.bias_sigma).detach())
    return torch.stack(weights), torch.stack(biases)


def test_factorised_noise_has_the_moments_of_section_3() -> None:
    weight, bias = noise_samples(NoisyLinear(6, 5, dtype=torch.float64), 20_000)
    assert weight.mean().item() == pytest.approx(0, abs=0.01)
    assert bias.mean().item() == pytest.approx(0, abs=0.01)
    assert weight.var().item() == pytest.approx(2 / math.pi, rel=0.03)
    assert bias.var().item() == pytest.approx(math.sqrt(2 / math.pi), rel=0.03)


def test_independent_noise_is_standard_normal() -> None:
    weight, bias = noise_samples(
        NoisyLinear(6, 5, noise="independent", dtype=torch.float64), 20_000
    )
    for epsilon in (weight, bias):
        assert epsilon.mean().item() == pytest.approx(0, abs=0.01)
        assert epsilon.var().item() == pytest.approx(1, rel=0.02)
        assert epsilon.pow(4).mean().item() == pytest.approx(3, rel=0.05)  # full, not truncated
    flat = weight.flatten(1)
    off_diagonal = torch.corrcoef(flat.t()) - torch.eye(30, dtype=torch.float64)
    assert off_diagonal.abs().max() < 0.04


def test_factorised_weight_and_bias_share_their_output_noise() -> None:
    weight, bias = noise_samples(NoisyLinear(6, 5, dtype=torch.float64), 50)
    for w, b in zip(weight, bias, strict=True):
        assert torch.linalg.matrix_rank(w, rtol=1e-9) == 1
        ratios = w / b[:, None]  # column i is f(ε_i) times the output noise
        torch.testing.assert_close(ratios, ratios[:1].expand_as(ratios))


# --- noise state ---------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", KINDS)
def test_noise_does_not_depend_on_train_and_eval(noise: Noise) -> None:
    layer, x = NoisyLinear(4, 3, noise=noise), torch.randn(7, 4)
    assert torch.equal(layer.train()(x), layer.eval()(x))
    with noise_off(layer):
        mean = layer(x)
    assert not torch.allclose(layer.eval()(x), mean)


@pytest.mark.parametrize("noise", KINDS)
def test_a_sample_is_held_until_resample_noise(noise: Noise) -> None:
    layer, x = NoisyLinear(4, 3, noise=noise), torch.randn(7, 4)
    before = layer(x)
    assert torch.equal(before, layer(x))
    layer.resample_noise()
    assert not torch.allclose(before, layer(x))


@pytest.mark.parametrize("noise", KINDS)
def test_the_same_generator_state_gives_the_same_sample(noise: Noise) -> None:
    layer, x = NoisyLinear(4, 3, noise=noise), torch.randn(7, 4)
    layer.resample_noise(generator(5))
    first = layer(x)
    torch.manual_seed(123)
    layer.resample_noise(generator(5))
    assert torch.equal(first, layer(x))


@pytest.mark.parametrize("noise", KINDS)
def test_an_explicit_generator_leaves_the_global_generator_unchanged(noise: Noise) -> None:
    before = torch.get_rng_state()
    layer = NoisyLinear(4, 3, noise=noise, generator=generator())
    layer.resample_noise(generator())
    assert torch.equal(before, torch.get_rng_state())


def test_resampling_keeps_the_graph_of_the_last_sample_differentiable() -> None:
    layer, x = NoisyLinear(4, 3), torch.randn(40, 4)
    expected = torch.autograd.grad(layer(x).square().sum(), layer.weight_sigma)[0]
    loss = layer(x).square().sum()
    layer.resample_noise()
    torch.testing.assert_close(torch.autograd.grad(loss, layer.weight_sigma)[0], expected)


@pytest.mark.parametrize("noise", KINDS)
def test_a_sample_drawn_in_inference_mode_is_differentiable(noise: Noise) -> None:
    layer = NoisyLinear(4, 3, noise=noise)
    with torch.inference_mode():
        layer.resample_noise()
    layer(torch.randn(9, 4)).sum().backward()
    assert layer.weight_sigma.grad is not None


# --- rows ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", KINDS)
@pytest.mark.parametrize("bias", [True, False])
def test_each_row_has_its_own_sample(noise: Noise, bias: bool) -> None:
    layer = NoisyLinear(4, 3, bias, noise=noise, dtype=torch.float64)
    layer.resample_noise(rows=6)
    x = torch.randn(6, 4, dtype=torch.float64)
    y = layer(x)
    for row in range(6):
        expected = layer.weight[row] @ x[row] + (0 if layer.bias is None else layer.bias[row])
        torch.testing.assert_close(y[row], expected)
    same = layer(x[:1].expand(6, 4))
    assert len({tuple(row.tolist()) for row in same}) == 6


@pytest.mark.parametrize("noise", KINDS)
def test_each_row_keeps_its_sample_over_the_steps_of_a_roll_out(noise: Noise) -> None:
    """In a roll-out [T, rows, p], row n uses sample n at every step."""
    layer = NoisyLinear(4, 3, noise=noise, dtype=torch.float64)
    layer.resample_noise(rows=5)
    x = torch.randn(7, 5, 4, dtype=torch.float64)
    torch.testing.assert_close(layer(x), torch.stack([layer(step) for step in x]))


@pytest.mark.parametrize("noise", KINDS)
@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("learn_sigma", [True, False])
@pytest.mark.parametrize("steps", [(), (7,), (2, 3)], ids=["act", "roll-out", "two dimensions"])
def test_gradients_of_rows_are_those_of_the_weights_of_each_row(
    noise: Noise, learn_sigma: bool, steps: tuple[int, ...], cached: bool
) -> None:
    layer = NoisyLinear(4, 3, noise=noise, dtype=torch.float64)
    layer.weight_sigma.requires_grad_(learn_sigma)
    layer.resample_noise(rows=5)
    x = torch.randn(*steps, 5, 4, dtype=torch.float64, requires_grad=True)
    factor = torch.randn(*steps, 5, 3, dtype=torch.float64)
    trained = [x, *(parameter for parameter in layer.parameters() if parameter.requires_grad)]
    weight, bias = layer.weight, layer.bias
    assert bias is not None
    rows = [x[..., n, :] @ weight[n].T + bias[n] for n in range(5)]
    expected = torch.autograd.grad((torch.stack(rows, dim=-2) * factor).sum(), trained)
    if cached:
        layer.cache_weights()
    found = torch.autograd.grad((layer(x) * factor).sum(), trained)
    for gradient, other in zip(found, expected, strict=True):
        torch.testing.assert_close(gradient, other)


@pytest.mark.parametrize("noise", KINDS)
@pytest.mark.parametrize("shape", [(5, 4), (1, 4), (4,), (6, 5, 4), (0, 4)])
def test_a_wrong_number_of_rows_is_an_error_not_a_broadcast(
    noise: Noise, shape: tuple[int, ...]
) -> None:
    layer = NoisyLinear(4, 3, noise=noise)
    layer.resample_noise(rows=6)
    with pytest.raises(ValueError, match=r"noise for 6 rows .* \[\.\.\., 6, 4\], got \["):
        layer(torch.zeros(shape))


@pytest.mark.parametrize("noise", KINDS)
def test_resampling_without_rows_returns_to_one_shared_sample(noise: Noise) -> None:
    layer = NoisyLinear(4, 3, noise=noise)
    layer.resample_noise(rows=6)
    layer.resample_noise()
    assert layer.rows is None
    same = layer(torch.ones(9, 4))
    torch.testing.assert_close(same, same[:1].expand(9, 3))


# --- copies and saved state ----------------------------------------------------------------------


@pytest.mark.parametrize("noise", KINDS)
def test_epsilon_is_neither_parameter_nor_saved(noise: Noise) -> None:
    layer = NoisyLinear(4, 3, noise=noise)
    names = {"weight_mu", "weight_sigma", "bias_mu", "bias_sigma"}
    assert set(layer.state_dict()) == names
    assert {name for name, _ in layer.named_parameters()} == names
    assert all(parameter.requires_grad for parameter in layer.parameters())


@pytest.mark.parametrize("noise", KINDS)
def test_load_state_dict_keeps_the_held_sample(noise: Noise) -> None:
    online, target = (NoisyLinear(4, 3, noise=noise) for _ in range(2))
    held = {name: buffer.clone() for name, buffer in target.named_buffers()}
    target.load_state_dict(online.state_dict())
    for name, buffer in target.named_buffers():
        assert torch.equal(buffer, held[name])
    x = torch.randn(9, 4)
    assert not torch.allclose(online(x), target(x))
    with noise_off(online), noise_off(target):
        assert torch.equal(online(x), target(x))


@pytest.mark.parametrize("noise", KINDS)
@pytest.mark.parametrize("rows", [None, 9])
def test_a_deep_copy_holds_the_same_sample_and_resamples_independently(
    noise: Noise, rows: int | None
) -> None:
    layer, x = NoisyLinear(4, 3, noise=noise), torch.randn(9, 4)
    layer.resample_noise(rows=rows)
    copied = copy.deepcopy(layer)
    assert torch.equal(layer(x), copied(x))
    copied.resample_noise()
    assert not torch.allclose(layer(x), copied(x))


def test_a_copy_made_inside_noise_off_is_noisy() -> None:
    layer, x = NoisyLinear(4, 3), torch.randn(9, 4)
    with noise_off(layer):
        copied = copy.deepcopy(layer)
    assert torch.equal(layer(x), copied(x))


@pytest.mark.parametrize("noise", KINDS)
def test_conversion_to_another_dtype_converts_the_sample(noise: Noise) -> None:
    layer, x = NoisyLinear(4, 3, noise=noise), torch.randn(9, 4)
    before = layer(x)
    layer.to(torch.float64)
    torch.testing.assert_close(layer(x.double()), before.double(), rtol=1e-5, atol=1e-6)
    layer.resample_noise()
    assert all(buffer.dtype == torch.float64 for buffer in layer.buffers())


def test_moving_to_another_device_moves_the_sample() -> None:
    layer = NoisyLinear(4, 3, device="meta")
    assert all(buffer.device.type == "meta" for buffer in layer.buffers())
    assert all(buffer.device.type == "meta" for buffer in NoisyLinear(4, 3).to("meta").buffers())
    assert layer(torch.zeros(5, 4, device="meta")).shape == (5, 3)


def test_state_dict_round_trips_through_a_file() -> None:
    layer, loaded = NoisyLinear(4, 3), NoisyLinear(4, 3)
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    loaded.load_state_dict(torch.load(file, weights_only=True))
    for name, value in layer.state_dict().items():
        assert torch.equal(value, loaded.state_dict()[name])


# --- gradients -----------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", KINDS)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("batch", [1, 3, 6])
@pytest.mark.parametrize("per_row", [False, True])
def test_gradients_pass_gradcheck(noise: Noise, bias: bool, batch: int, per_row: bool) -> None:
    layer = NoisyLinear(4, 3, bias, noise=noise, dtype=torch.float64)
    layer.resample_noise(rows=batch if per_row else None)
    x = torch.randn(batch, 4, dtype=torch.float64, requires_grad=True)
    names = [name for name, _ in layer.named_parameters()]

    def function(x: Tensor, *parameters: Tensor) -> Any:
        return torch.func.functional_call(layer, dict(zip(names, parameters, strict=True)), (x,))

    assert torch.autograd.gradcheck(function, (x, *layer.parameters()))


def test_sigma_gradient_is_mu_gradient_times_epsilon() -> None:
    layer = NoisyLinear(4, 3)
    layer(torch.randn(32, 4)).square().sum().backward()
    assert layer.weight_mu.grad is not None
    epsilon = (layer.weight - layer.weight_mu) / layer.weight_sigma
    torch.testing.assert_close(layer.weight_sigma.grad, layer.weight_mu.grad * epsilon)


# --- composition with torch ----------------------------------------------------------------------


@pytest.mark.parametrize("noise", KINDS)
@pytest.mark.parametrize("shape", [(0, 4), (4,), (2, 3, 4), (2, 0, 4), (2, 1, 5, 4)])
def test_any_leading_dimensions_are_accepted(noise: Noise, shape: tuple[int, ...]) -> None:
    layer = NoisyLinear(4, 3, noise=noise)
    x = torch.randn(shape)
    y = layer(x)
    assert y.shape == (*shape[:-1], 3)
    flat = layer(x.reshape(-1, 4)).reshape(y.shape)
    torch.testing.assert_close(y, flat)


@pytest.mark.parametrize("noise", KINDS)
def test_vmap_over_inputs_and_over_stacked_parameters(noise: Noise) -> None:
    layers = [NoisyLinear(4, 3, noise=noise) for _ in range(5)]
    x = torch.randn(6, 4)
    torch.testing.assert_close(torch.func.vmap(layers[0])(x), layers[0](x))
    parameters, buffers = torch.func.stack_module_state(layers)
    shell = copy.deepcopy(layers[0]).to("meta")

    def one(parameters: Any, buffers: Any, x: Tensor) -> Any:
        return torch.func.functional_call(shell, (parameters, buffers), (x,))

    together = torch.func.vmap(one, in_dims=(0, 0, None))(parameters, buffers, x)
    torch.testing.assert_close(together, torch.stack([layer(x) for layer in layers]))


@pytest.mark.parametrize("noise", KINDS)
@pytest.mark.parametrize("batch", [1, 8])
def test_autocast_gives_the_dtype_of_a_plain_layer(noise: Noise, batch: int) -> None:
    layer, plain, x = NoisyLinear(4, 3, noise=noise), nn.Linear(4, 3), torch.randn(batch, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(x)
        assert y.dtype == plain(x).dtype == torch.bfloat16
    torch.testing.assert_close(y.float(), layer(x), rtol=0.05, atol=0.05)
    y.float().sum().backward()
    assert layer.weight_sigma.grad is not None
    assert layer.weight_sigma.grad.dtype == torch.float32


@pytest.mark.parametrize("noise", KINDS)
def test_compiled_layers_follow_resampling_and_noise_off(noise: Noise) -> None:
    net = nn.Sequential(NoisyLinear(4, 8, noise=noise), nn.ReLU(), NoisyLinear(8, 3, noise=noise))
    compiled = torch.compile(net, backend="aot_eager")
    x = torch.randn(9, 4)
    for _ in range(3):
        resample_noise(net)
        torch.testing.assert_close(compiled(x), net(x))
    with noise_off(net):
        torch.testing.assert_close(compiled(x), net(x))
    resample_noise(net, rows=9)
    torch.testing.assert_close(compiled(x), net(x))
    compiled(x).square().sum().backward()
    assert all(parameter.grad is not None for parameter in net.parameters())


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
def test_functional_transforms_reach_parameters_and_buffers() -> None:
    layer, x = NoisyLinear(12, 9), torch.randn(6, 12)
    given = dict(layer.named_parameters()) | dict(layer.named_buffers())

    def output(name: str, value: Tensor) -> Any:
        return torch.func.functional_call(layer, {name: value}, (x,))

    for name in ("weight_mu", "weight_sigma", "epsilon_out"):
        batched = torch.stack([given[name], 2 * given[name]])
        together = torch.func.vmap(lambda value, name=name: output(name, value))(batched)
        torch.testing.assert_close(together[1], output(name, 2 * given[name]))
    sigma = given["weight_sigma"].detach()
    tangent = torch.func.jvp(lambda s: output("weight_sigma", s), (sigma,), (sigma,))[1]
    with noise_off(layer):
        mean = layer(x)
    assert layer.epsilon_out is not None
    assert layer.bias_sigma is not None
    expected = layer(x) - mean - layer.bias_sigma * layer.epsilon_out
    torch.testing.assert_close(tangent, expected, rtol=1e-4, atol=1e-5)


def test_resampling_and_forward_compile_into_one_graph() -> None:
    layer = NoisyLinear(4, 3)

    def resample_and_forward(x: Tensor) -> Tensor:
        layer.resample_noise()
        y: Tensor = layer(x)
        return y

    compiled = torch.compile(resample_and_forward, backend="eager", fullgraph=True)
    x = torch.randn(8, 4)
    assert not torch.equal(compiled(x), compiled(x))
    torch.testing.assert_close(compiled(x), layer(x))


# --- cached weights ------------------------------------------------------------------------------

KINDS_AND_ROWS = [(noise, rows) for noise in KINDS for rows in (None, 3)]


def make(noise: Noise, rows: int | None = None, bias: bool = True) -> NoisyLinear:
    layer = NoisyLinear(5, 4, bias, noise=noise, sigma0=0.5)
    layer.resample_noise(rows=rows)
    return layer


def gradients(layer: NoisyLinear, *inputs: Tensor) -> list[Tensor]:
    loss = sum((layer(x).sin().sum() for x in inputs), torch.zeros(()))
    trained = [parameter for parameter in layer.parameters() if parameter.requires_grad]
    return list(torch.autograd.grad(loss, trained))


@pytest.mark.parametrize(("noise", "rows"), KINDS_AND_ROWS)
@pytest.mark.parametrize("bias", [True, False])
def test_cached_weights_give_the_same_outputs_and_gradients(
    noise: Noise, rows: int | None, bias: bool
) -> None:
    layer = make(noise, rows, bias)
    first, second = torch.randn(6, 3, 5), torch.randn(3, 5)
    expected = [layer(first).detach(), layer(second).detach(), *gradients(layer, first, second)]
    layer.cache_weights()
    with torch.no_grad():  # acting comes before learning from the same weights
        found = [layer(first), layer(second)]
    found += gradients(layer, first, second)
    assert len(found) == 2 + len(list(layer.parameters()))
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(("noise", "rows"), KINDS_AND_ROWS)
def test_cached_weights_give_inputs_their_gradient_and_frozen_parameters_none(
    noise: Noise, rows: int | None
) -> None:
    layer = make(noise, rows)
    layer.weight_sigma.requires_grad_(False)
    x = torch.randn(2, 3, 5, requires_grad=True)
    found: list[tuple[Tensor, Tensor]] = []
    for cached in (False, True):
        if cached:
            layer.cache_weights()
        x.grad = layer.weight_mu.grad = None
        layer(x).sin().sum().backward()
        assert x.grad is not None
        assert layer.weight_mu.grad is not None
        assert layer.weight_sigma.grad is None
        found.append((x.grad, layer.weight_mu.grad))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(("noise", "rows"), [*KINDS_AND_ROWS[:1], *KINDS_AND_ROWS[2:]])
def test_cached_weights_are_computed_once(noise: Noise, rows: int | None) -> None:
    layer = make(noise, rows)
    assert layer.weight is not layer.weight
    layer.cache_weights()
    assert layer.weight is layer.weight
    assert layer.bias is layer.bias


@pytest.mark.parametrize("shape", [(5,), (1, 5), (1, 1, 5)])
def test_a_single_observation_needs_no_weights(shape: tuple[int, ...]) -> None:
    """Two products with μ and σ give the same values and gradients as built weights."""
    layer, x = make("factorised"), torch.rand(shape, generator=generator(3))
    expected = nn.functional.linear(x, layer.weight, layer.bias)
    wanted = torch.autograd.grad(expected.sin().sum(), list(layer.parameters()))
    layer.perturb = lambda *_: pytest.fail("weights were built")
    found = layer(x)
    torch.testing.assert_close(found, expected)
    for a, b in zip(gradients(layer, x), wanted, strict=True):
        torch.testing.assert_close(a, b)


def test_factorised_noise_with_rows_caches_no_weights() -> None:
    """Its forward pass needs none; one matrix for each row would only cost memory."""
    layer = make("factorised", 3)
    layer.cache_weights()
    assert layer.weight is not layer.weight


@pytest.mark.parametrize("noise", KINDS)
def test_one_backward_pass_uses_up_the_cache(noise: Noise) -> None:
    layer, x = make(noise), torch.ones(2, 5)
    layer.cache_weights()
    first = gradients(layer, x)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        gradients(layer, x)
    layer.cache_weights()
    assert all(torch.equal(a, b) for a, b in zip(first, gradients(layer, x), strict=True))
    layer.drop_cached_weights()
    for found, expected in zip(gradients(layer, x), first, strict=True):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("noise", KINDS)
def test_cached_weights_do_not_follow_the_parameters(noise: Noise) -> None:
    """A roll-out is played with the weights that it began with."""
    layer, x = make(noise), torch.ones(1, 5)
    layer.cache_weights()
    before = layer(x).detach()
    layer.weight_mu.data.add_(1)
    assert torch.equal(layer(x), before)
    layer.drop_cached_weights()
    torch.testing.assert_close(layer(x), before + 5)


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("noise", KINDS)
def test_weights_cached_without_gradient_mode_are_differentiable(
    noise: Noise, context: Any
) -> None:
    layer = make(noise)
    with context():
        layer.cache_weights()
        layer(torch.zeros(1, 5))
    assert all(bool(g.abs().max() > 0) for g in gradients(layer, torch.ones(2, 5)))


def resample(layer: NoisyLinear) -> None:
    layer.resample_noise()


def hold(layer: NoisyLinear) -> None:
    hold_noise(layer, {name: value + 1 for name, value in held_noise(layer).items()})


def load(layer: NoisyLinear) -> None:
    layer.load_state_dict({name: value + 1 for name, value in layer.state_dict().items()})


def convert(layer: NoisyLinear) -> None:
    layer.double().float()
    layer.weight_mu.data.add_(1)


def drop(layer: NoisyLinear) -> None:
    layer.weight_mu.data.add_(1)
    layer.drop_cached_weights()


@pytest.mark.parametrize("change", [resample, hold, load, convert, drop])
@pytest.mark.parametrize("noise", KINDS)
def test_whatever_changes_the_weights_drops_the_cache(
    noise: Noise, change: Callable[[NoisyLinear], None]
) -> None:
    layer, x = make(noise), torch.ones(9, 5)
    layer.cache_weights()
    before = layer(x)
    change(layer)
    assert not torch.allclose(layer(x), before)
    torch.testing.assert_close(layer(x), nn.functional.linear(x, layer.weight, layer.bias))
    torch.testing.assert_close(layer(x), copy.deepcopy(layer)(x))


@pytest.mark.parametrize("noise", KINDS)
def test_noise_off_ignores_the_cache(noise: Noise) -> None:
    layer, x = make(noise), torch.ones(2, 5)
    noisy = layer(x)
    with noise_off(layer):
        layer.cache_weights()
        assert layer.weight is layer.weight_mu
        assert torch.equal(layer(x), nn.functional.linear(x, layer.weight_mu, layer.bias_mu))
    assert torch.equal(layer(x), noisy)


@pytest.mark.parametrize("noise", KINDS)
def test_a_copy_does_not_share_the_graph_of_the_cache(noise: Noise) -> None:
    layer, x = make(noise), torch.ones(2, 5)
    layer.cache_weights()
    copied = copy.deepcopy(layer)
    assert torch.equal(layer(x), copied(x))
    gradients(layer, x)
    gradients(copied, x)  # would raise, had it the graph that the first pass has freed


# --- arguments (the checks themselves: test_arguments.py) ----------------------------------------


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((0, 3), {}, ValueError, "in_features expected a positive integer, got 0"),
        ((4, -1), {}, ValueError, "out_features expected a positive integer, got -1"),
        ((4, 3), {"noise": "factorized"}, ValueError, "did you mean 'factorised'"),
        ((4, 3), {"sigma0": -0.5}, ValueError, "at least 0, got -0.5"),
        ((4, 3), {"dtype": torch.int64}, TypeError, r"floating-point type .*, got torch.int64"),
    ],
)
def test_the_constructor_checks_every_argument(
    arguments: Any, options: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        NoisyLinear(*arguments, **options)


def test_numpy_numbers_are_accepted() -> None:
    layer = NoisyLinear(np.int64(4), np.int32(3), sigma0=np.float32(0.25))  # type: ignore[arg-type]
    assert (layer.in_features, layer.out_features, layer.sigma0) == (4, 3, 0.25)
    layer.resample_noise(rows=np.int64(2))  # type: ignore[arg-type]
    assert layer.rows == 2


def test_hold_noise_refuses_samples_of_another_shape_or_kind() -> None:
    layer = NoisyLinear(4, 3)
    good = {name: value.clone() for name, value in layer.named_buffers()}
    independent = dict(NoisyLinear(4, 3, noise="independent").named_buffers())
    for bad in ({}, good | {"epsilon_in": torch.zeros(5)}, independent):
        with pytest.raises(ValueError, match="hold_noise expected samples"):
            layer.hold_noise(bad)
    assert all(torch.equal(value, good[name]) for name, value in layer.named_buffers())


def test_inputs_of_the_wrong_size_or_dtype_are_refused() -> None:
    layer = NoisyLinear(4, 3)
    with pytest.raises(ValueError, match=r"shape \[\.\.\., 4\], got \[2, 5\]"):
        layer(torch.zeros(2, 5))
    with pytest.raises(TypeError, match=r"expected torch.float32 inputs, got torch.float64"):
        layer(torch.zeros(2, 4, dtype=torch.float64))


def test_bad_rows_and_generators_are_refused() -> None:
    layer = NoisyLinear(4, 3)
    with pytest.raises(ValueError, match="rows expected a positive integer, got 0"):
        layer.resample_noise(rows=0)
    with pytest.raises(ValueError, match=r"expected a generator on meta, .* got one on cpu"):
        layer.to("meta").resample_noise(generator())
