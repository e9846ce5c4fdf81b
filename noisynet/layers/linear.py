"""The noisy linear layer: section 3 of the paper."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from noisynet.layers.arguments import (
    Distribution,
    Noise,
    NoiseFunction,
    check_dtype,
    check_generator,
    check_held_noise,
    check_input,
    check_noise_options,
    check_size,
    checked_sigma0,
)
from noisynet.layers.linear_by_rows import linear_by_rows

Perturb = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""Computes the weights under factorised noise from μ, σ, f(ε) of the outputs and of the inputs."""


def scale_noise(epsilon: Tensor) -> Tensor:
    """f(x) = sgn(x)√|x|, the function that shapes factorised noise (section 3, b)."""
    return epsilon.abs().sqrt_().copysign_(epsilon)


def perturbed_weight(mu: Tensor, sigma: Tensor, epsilon_out: Tensor, epsilon_in: Tensor) -> Tensor:
    """μ + σ⊙ε with ε_ij = f(ε_i) f(ε_j) [q, p] (Eqs. 9, 10)."""
    noise = sigma * epsilon_in.unsqueeze(-2)
    return torch.addcmul(mu, noise, epsilon_out.unsqueeze(-1))


class NoisyLinear(nn.Module):
    """y = (μw + σw⊙εw) x + μb + σb⊙εb (Eq. 9, Fig. 4), a drop-in for `torch.nn.Linear`.

    The layer holds one sample of ε, drawn when it is made and redrawn only by `resample_noise`.
    It does not depend on `train()`/`eval()`: it is noisy except inside `noise_off`. ε is neither in
    `parameters()` nor in `state_dict()`.

    Args:
        in_features: p, the number of inputs.
        out_features: q, the number of outputs.
        bias: whether the layer has a (noisy) bias.
        noise: `"factorised"` (DQN and Dueling in the paper) or `"independent"` (A3C).
        sigma0: the initial noise: every σ is `sigma0/√p` for factorised noise (default 0.5) and
            `sigma0` itself for independent noise (default 0.017).
        distribution: of ε, with mean 0 and variance 1: `"gaussian"` (the paper's), `"uniform"` or
            `"rademacher"`.
        f: the function that shapes factorised noise: `"signed_sqrt"` (the paper's) or `"identity"`.
        device: device of the parameters.
        dtype: a floating-point type.
        generator: initialises μ and draws the first ε; torch's global generator if not given.

    Attributes:
        weight_mu: μw [q, p].
        weight_sigma: σw [q, p].
        bias_mu: μb [q], or None.
        bias_sigma: σb [q], or None.
        rows: how many samples the layer holds, one for each row of its input; None for a single
            sample shared by the whole batch.
        perturb: computes the weights under factorised noise; `noisynet.kernels` can replace it by
            a fused kernel.
    """

    # Factorised: f(ε_i) of the inputs and f(ε_j) of the outputs. Independent: εw and εb.
    epsilon_in: Tensor | None
    epsilon_out: Tensor | None
    epsilon_weight: Tensor | None
    epsilon_bias: Tensor | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        noise: Noise = "factorised",
        sigma0: float | None = None,
        distribution: Distribution = "gaussian",
        f: NoiseFunction = "signed_sqrt",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.in_features = in_features = check_size("in_features", in_features)
        self.out_features = out_features = check_size("out_features", out_features)
        check_noise_options(noise, distribution, f)
        check_dtype(dtype)
        self.noise: Noise = noise
        self.distribution: Distribution = distribution
        self.f: NoiseFunction = f
        self.sigma0 = checked_sigma0(sigma0, noise)
        self.rows: int | None = None
        self.perturb: Perturb = perturbed_weight
        self._noise_off = 0  # how many `noise_off` contexts the layer is in
        self._cached: tuple[Tensor, Tensor | None] | None = None  # set by `cache_weights`

        def empty(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(shape, device=device, dtype=dtype))

        self.weight_mu = empty(out_features, in_features)
        self.weight_sigma = empty(out_features, in_features)
        self.bias_mu = empty(out_features) if bias else None
        self.bias_sigma = empty(out_features) if bias else None
        for name in ("epsilon_in", "epsilon_out", "epsilon_weight", "epsilon_bias"):
            self.register_buffer(name, None, persistent=False)
        self.reset_parameters(generator)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Initialise μ and σ as in section 3.2, and draw a new ε."""
        p = self.in_features
        factorised = self.noise == "factorised"
        bound = 1 / math.sqrt(p) if factorised else math.sqrt(3 / p)
        sigma = self.sigma0 / math.sqrt(p) if factorised else self.sigma0
        check_generator(generator, self.weight_mu.device)
        with torch.no_grad():
            for mu in (self.weight_mu, self.bias_mu):
                if mu is not None:
                    mu.uniform_(-bound, bound, generator=generator)
            for parameter in (self.weight_sigma, self.bias_sigma):
                if parameter is not None:
                    parameter.fill_(sigma)  # p is the number of inputs for the bias, too
        self.resample_noise(generator)

    def resample_noise(
        self, generator: torch.Generator | None = None, rows: int | None = None
    ) -> None:
        """Draw a new ε and hold it.

        Args:
            generator: a generator on the layer's device; torch's global one if not given.
            rows: draw this many samples, one for each row of the inputs to come (dimension −2),
                as when several environments act at once. None: one sample for all rows.
        """
        like, size = self.weight_mu, self.noise_size
        self.use_epsilon(draw_noise(self.distribution, like, size, generator, rows))

    @property
    def noise_size(self) -> int:
        """How many random numbers a sample takes."""
        p, q = self.in_features, self.out_features
        return p + q if self.noise == "factorised" else q * p + q * (self.bias_mu is not None)

    def use_epsilon(self, epsilon: Tensor) -> None:
        """Hold the sample made of numbers from `draw_noise` [noise_size], or [rows, noise_size]."""
        p, q = self.in_features, self.out_features
        # New tensors, not in place: the graph of the last sample can still be differentiated. They
        # are written to `_buffers` directly, which skips the checks of nn.Module.__setattr__.
        with _outside_inference_mode():
            if self.noise == "factorised":
                shaped = scale_noise(epsilon) if self.f == "signed_sqrt" else epsilon
                self._buffers["epsilon_in"] = shaped[..., :p]  # Eq. 10
                self._buffers["epsilon_out"] = shaped[..., p:]  # Eqs. 10, 11
            else:
                self._buffers["epsilon_weight"] = epsilon[..., : q * p].unflatten(-1, (q, p))
                if self.bias_mu is not None:
                    self._buffers["epsilon_bias"] = epsilon[..., q * p :]
        rows = epsilon.shape[0] if epsilon.dim() == 2 else None
        if self.rows != rows:
            self.rows = rows
        if self._cached is not None:
            self._cached = None

    def hold_noise(self, noise: Mapping[str, Tensor]) -> None:
        """Hold the samples that `named_buffers` gave, on the layer's device and in its dtype."""
        has_rows = self.rows is not None
        single = {name: buffer.shape[has_rows:] for name, buffer in self.named_buffers()}
        self.rows = check_held_noise(noise, single)
        for name, value in noise.items():
            self._buffers[name] = value.to(self.weight_mu)
        self._cached = None

    def cache_weights(self) -> None:
        """Compute the current weights once for all passes until the next sample.

        For a roll-out, over which neither parameters nor noise change. Gradients reach μ and σ
        through the cached weights: one backward pass, then call `drop_cached_weights`. Factorised
        noise with `rows` needs no weights, so nothing is cached.
        """
        self._cached = None
        if self.noise == "independent" or self.rows is None:
            with _outside_inference_mode(), torch.enable_grad():
                self._cached = self._perturbed_weight(), self._perturbed_bias()

    def drop_cached_weights(self) -> None:
        """Discard what `cache_weights` computed; the sample stays in force."""
        self._cached = None

    @property
    def weight(self) -> Tensor:
        """The current weights: μw + σw⊙εw [q, p] ([rows, q, p]), or μw inside `noise_off`."""
        return self.weight_mu if self._noise_off else self._current()[0]

    @property
    def bias(self) -> Tensor | None:
        """The current biases: μb + σb⊙εb [q] ([rows, q]), or μb inside `noise_off`."""
        return self.bias_mu if self._noise_off else self._current()[1]

    def _current(self) -> tuple[Tensor, Tensor | None]:
        if self._cached is not None:
            return self._cached
        return self._perturbed_weight(), self._perturbed_bias()

    def _perturbed_weight(self) -> Tensor:
        if self.epsilon_weight is not None:  # independent
            return torch.addcmul(self.weight_mu, self.weight_sigma, self.epsilon_weight)  # Eq. 9
        assert self.epsilon_in is not None
        assert self.epsilon_out is not None
        perturb = perturbed_weight if self.rows is not None else self.perturb
        return perturb(self.weight_mu, self.weight_sigma, self.epsilon_out, self.epsilon_in)

    def _perturbed_bias(self) -> Tensor | None:
        if self.bias_mu is None or self.bias_sigma is None:
            return None
        epsilon = self.epsilon_out if self.noise == "factorised" else self.epsilon_bias  # Eq. 11
        assert epsilon is not None
        return torch.addcmul(self.bias_mu, self.bias_sigma, epsilon)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer to x [..., p] (with `rows`: [..., rows, p])."""
        rows = None if self._noise_off else self.rows
        check_input(x, self.in_features, self.weight_mu.dtype, rows)
        if self._noise_off:
            return F.linear(x, self.weight_mu, self.bias_mu)
        single = x.numel() == self.in_features and self._cached is None
        if self.noise == "factorised" and (single or rows is not None):
            return self._without_weights(x)
        weight, bias = self._current()
        if rows is None:
            return F.linear(x, weight, bias)
        if self._cached is None:
            y = torch.einsum("...np,nqp->...nq", x, weight)
        else:  # a roll-out, of which backward is most of the cost
            assert self.epsilon_weight is not None
            samples = weight.detach(), self.epsilon_weight
            y = linear_by_rows(x, self.weight_mu, self.weight_sigma, *samples)
        return y if bias is None else y + bias

    def _without_weights(self, x: Tensor) -> Tensor:
        """Eq. 9 with Eqs. 10 and 11 substituted: μx + μb + f(ε_out) ⊙ (σ(f(ε_in)⊙x) + σb).

        Two products with μ and σ cost less than building weights for a single observation, or for
        each of several rows.
        """
        assert self.epsilon_in is not None
        assert self.epsilon_out is not None
        mean = F.linear(x, self.weight_mu, self.bias_mu)
        noise = F.linear(x * self.epsilon_in, self.weight_sigma, self.bias_sigma)
        return torch.addcmul(mean, self.epsilon_out, noise).to(mean.dtype)

    def __getstate__(self) -> dict[str, Any]:
        # A copy made inside `noise_off` is not part of that context, so nothing would end it;
        # cached weights belong to the graph of the original.
        return {**self.__dict__, "_noise_off": 0, "_cached": None}

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        self._cached = None
        return super()._apply(fn, recurse)  # type: ignore[no-untyped-call]

    def _load_from_state_dict(self, *arguments: Any, **keywords: Any) -> None:
        self._cached = None
        super()._load_from_state_dict(*arguments, **keywords)

    def extra_repr(self) -> str:
        """What `print(layer)` shows between the brackets."""
        text = (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias_mu is not None}, noise={self.noise!r}, sigma0={self.sigma0:g}"
        )
        if self.distribution != "gaussian":
            text += f", distribution={self.distribution!r}"
        return text if self.f == "signed_sqrt" else f"{text}, f={self.f!r}"


def draw_noise(
    distribution: Distribution,
    like: Tensor,
    size: int,
    generator: torch.Generator | None,
    rows: int | None,
) -> Tensor:
    """Draw numbers with mean 0 and variance 1, on the device and with the dtype of `like`.

    Returns:
        [size], or [rows, size] if `rows` is given.
    """
    check_generator(generator, like.device)
    shape = (size,) if rows is None else (check_size("rows", rows), size)
    options: dict[str, Any] = {"generator": generator, "device": like.device, "dtype": like.dtype}
    with _outside_inference_mode():
        if distribution == "gaussian":
            return torch.randn(shape, **options)
        if distribution == "uniform":
            return torch.rand(shape, **options).mul_(2).sub_(1).mul_(math.sqrt(3))
        return torch.randint(2, shape, **options).mul_(2).sub_(1)


def _outside_inference_mode() -> AbstractContextManager[Any]:
    """Leave inference mode, where there is one: tensors made in it cannot be differentiated."""
    if torch.compiler.is_compiling() or torch.is_inference_mode_enabled():
        return torch.inference_mode(False)
    return nullcontext()
