"""The noisy linear layer: section 3 of the paper."""

from __future__ import annotations

import difflib
import math
import numbers
import operator
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from noisynet.layers.built import LinearOfBuilt, apply_built

Noise = Literal["factorised", "independent"]
"""How ε is drawn: p + q normals for a layer of p inputs and q outputs, or one for each weight."""

DEFAULT_SIGMA0: Final[dict[str, float]] = {"factorised": 0.5, "independent": 0.017}
"""σ0 of section 3.2: divided by √p for factorised noise, taken as it is for independent noise."""

# Up to this many inputs, two thin products (μx and σ(f(ε_in)⊙x)) cost less than one pass over a
# whole weight matrix to build μ + σ⊙ε (benchmarks/layers.py).
_SMALL_BATCH: Final = 4
# From this many weights on, memory costs more than the calls of an autograd function of our own. A
# compiler fuses by itself.
_LARGE_LAYER: Final = 65_536


def scale_noise(epsilon: Tensor) -> Tensor:
    """f(x) = sgn(x)√|x|, the function that shapes factorised noise (section 3, b)."""
    return epsilon.abs().sqrt_().copysign_(epsilon)


class _PerturbedWeight(torch.autograd.Function):
    """μ + σ⊙ε for factorised ε (Eqs. 9, 10), without ever building ε.

    Where layers are large, a matrix of the size of the weights costs more to allocate than to
    compute: this makes one, and one more for σ's gradient, where autograd's own way makes five.
    """

    @staticmethod
    def forward(ctx: Any, mu: Tensor, sigma: Tensor, outputs: Tensor, inputs: Tensor) -> Tensor:
        ctx.save_for_backward(outputs, inputs)
        noise = sigma * inputs
        return torch.addcmul(mu, noise, outputs.unsqueeze(-1), out=noise)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        outputs, inputs = ctx.saved_tensors
        (gradient,) = gradients
        return gradient, (gradient * inputs).mul_(outputs.unsqueeze(-1)), None, None


class NoisyLinear(nn.Module):
    """y = (μw + σw⊙εw) x + μb + σb⊙εb (Eq. 9), a drop-in for `torch.nn.Linear`.

    The layer holds one sample of ε, drawn when it is made and redrawn only by `resample_noise`.
    It never looks at `train()`/`eval()`: it is noisy until `noise_off` says otherwise. ε is in
    neither `parameters()` nor `state_dict()`.

    Args:
        in_features: p, the number of inputs.
        out_features: q, the number of outputs.
        bias: whether the layer has a (noisy) bias.
        noise: `"factorised"` (DQN and Dueling in the paper) or `"independent"` (A3C).
        sigma0: the initial noise: every σ is `sigma0/√p` for factorised noise (default 0.5) and
            `sigma0` itself for independent noise (default 0.017).
        device: where the parameters live.
        dtype: a floating-point type.
        generator: what initialises μ and draws the first ε; torch's global one if not given.

    Attributes:
        weight_mu: μw [q, p].
        weight_sigma: σw [q, p].
        bias_mu: μb [q], or None.
        bias_sigma: σb [q], or None.
        rows: how many samples the layer holds, one for each row of its input; None for a single
            sample shared by the whole batch.
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
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.in_features = in_features = check_size("in_features", in_features)
        self.out_features = out_features = check_size("out_features", out_features)
        check_noise_name(noise)
        _check_dtype(dtype)
        self.noise: Noise = noise
        self.sigma0 = _checked_sigma0(sigma0, noise)
        self.rows: int | None = None
        self._noise_off = 0  # how many `noise_off` contexts the layer is in
        self._built: tuple[Tensor, Tensor | None] | None = None  # what `build_weights` built

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
        """Initialise μ and σ as section 3.2 says, and draw a fresh ε."""
        p = self.in_features
        factorised = self.noise == "factorised"
        bound = 1 / math.sqrt(p) if factorised else math.sqrt(3 / p)
        sigma = self.sigma0 / math.sqrt(p) if factorised else self.sigma0
        with torch.no_grad():
            for mu in self._present(self.weight_mu, self.bias_mu):
                _check_generator(generator, mu.device)
                mu.uniform_(-bound, bound, generator=generator)
            for parameter in self._present(self.weight_sigma, self.bias_sigma):
                parameter.fill_(sigma)  # by *inputs* for weight and bias alike
        self.resample_noise(generator)

    def resample_noise(
        self, generator: torch.Generator | None = None, rows: int | None = None
    ) -> None:
        """Draw a fresh ε and hold it.

        Args:
            generator: what to draw from, on the layer's device; torch's global one if not given.
            rows: draw this many samples, one for each row of the inputs to come (dimension −2),
                as when several environments act at once. None: one sample for all rows.
        """
        weight = self.weight_mu
        device, dtype = weight.device, weight.dtype
        _check_generator(generator, device)
        rows = None if rows is None else check_size("rows", rows)
        lead = () if rows is None else (rows,)
        p, q = self.in_features, self.out_features

        def normal(*shape: int) -> Tensor:
            return torch.randn(*lead, *shape, generator=generator, device=device, dtype=dtype)

        # New tensors, not in place: a graph built on the last sample can still go backward. They go
        # straight into the buffers, which costs a fifth of the checks of nn.Module's own way. Drawn
        # in inference mode they could not be learnt from, so that is left for a moment.
        with _outside_inference_mode():
            if self.noise == "factorised":
                epsilon = scale_noise(normal(p + q))
                self._buffers["epsilon_in"] = epsilon[..., :p]  # Eq. 10
                self._buffers["epsilon_out"] = epsilon[..., p:]  # Eqs. 10, 11
            else:
                self._buffers["epsilon_weight"] = normal(q, p)
                self._buffers["epsilon_bias"] = None if self.bias_mu is None else normal(q)
        if self.rows != rows:
            self.rows = rows
        if self._built is not None:
            self._built = None

    def build_weights(self) -> None:
        """Build the weights in force once, for all passes until the next draw.

        For a roll-out: the parameters do not change over it either, so that acting need not build
        them again and again. Gradients reach μ and σ as ever, but not twice over (no derivatives
        of derivatives). Factorised noise with `rows` needs no weights, and builds none.
        """
        self._built = None
        if self.noise == "factorised" and self.rows is not None:
            return
        with _outside_inference_mode(), torch.no_grad():
            self._built = self._perturbed_weight(), self._perturbed_bias()

    def forget_weights(self) -> None:
        """Leave what `build_weights` built; the sample stays in force."""
        self._built = None

    def hold_noise(self, noise: Mapping[str, Tensor]) -> None:
        """Hold again what `named_buffers` once gave, on the layer's device and of its type."""
        expected = {name: buffer.shape for name, buffer in self.named_buffers()}
        single = {name: shape[self.rows is not None :] for name, shape in expected.items()}
        leads = {
            tuple(value.shape[: value.dim() - len(single.get(k, ()))]) for k, value in noise.items()
        }
        fits = noise.keys() == single.keys() and all(
            value.shape[value.dim() - len(single[name]) :] == single[name]
            for name, value in noise.items()
        )
        if not fits or len(leads) != 1 or len(next(iter(leads))) > 1:
            came = {name: list(value.shape) for name, value in noise.items()}
            raise ValueError(
                f"hold_noise expected samples { {n: list(v) for n, v in single.items()} }, with or "
                f"without a leading dimension for rows, got {came}."
            )
        for name, value in noise.items():
            self._buffers[name] = value.to(self.weight_mu)
        self._built = None
        lead = next(iter(leads))
        self.rows = lead[0] if lead else None

    @property
    def weight(self) -> Tensor:
        """The weights in force: μw + σw⊙εw [q, p] ([rows, q, p]), or μw inside `noise_off`."""
        if self._noise_off:
            return self.weight_mu
        return self._perturbed_weight() if self._built is None else self._built[0]

    def _perturbed_weight(self) -> Tensor:
        mu, sigma = self.weight_mu, self.weight_sigma
        if self.noise == "independent":
            assert self.epsilon_weight is not None
            return torch.addcmul(mu, sigma, self.epsilon_weight)
        assert self.epsilon_in is not None
        assert self.epsilon_out is not None
        large = self.in_features * self.out_features >= _LARGE_LAYER
        if self.rows is None and large and not _is_transformed():
            weight: Tensor = _PerturbedWeight.apply(  # type: ignore[no-untyped-call]
                mu, sigma, self.epsilon_out, self.epsilon_in
            )
            return weight
        epsilon = self.epsilon_out.unsqueeze(-1) * self.epsilon_in.unsqueeze(-2)  # Eq. 10
        return torch.addcmul(mu, sigma, epsilon)

    @property
    def bias(self) -> Tensor | None:
        """The biases in force: μb + σb⊙εb [q] ([rows, q]), or μb inside `noise_off`."""
        if self._noise_off:
            return self.bias_mu
        return self._perturbed_bias() if self._built is None else self._built[1]

    def _perturbed_bias(self) -> Tensor | None:
        if self.bias_mu is None or self.bias_sigma is None:
            return None
        return torch.addcmul(self.bias_mu, self.bias_sigma, self._bias_noise())

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer to x [..., p] (with `rows`: [..., rows, p])."""
        self._check_input(x)
        if self._noise_off:
            return F.linear(x, self.weight_mu, self.bias_mu)
        if self._built is not None:
            return self._forward_with_built(*self._built, x)
        if self._needs_no_weights(x):
            return self._forward_without_weights(x)
        return apply_built(x, self._perturbed_weight(), self._perturbed_bias())

    def _forward_with_built(self, weight: Tensor, bias: Tensor | None, x: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return apply_built(x, weight, bias)
        epsilon = self.epsilon_in, self.epsilon_out, self.epsilon_weight, self.epsilon_bias
        y: Tensor = LinearOfBuilt.apply(  # type: ignore[no-untyped-call]
            x,
            weight,
            bias,
            epsilon,
            self.weight_mu,
            self.weight_sigma,
            self.bias_mu,
            self.bias_sigma,
        )
        return y

    def _forward_without_weights(self, x: Tensor) -> Tensor:
        """Eq. 9 with Eqs. 10 and 11 put in: μx + μb + f(ε_out) ⊙ (σ(f(ε_in)⊙x) + σb).

        The noise of the weights is never built, and each row may have its own.
        """
        assert self.epsilon_in is not None
        assert self.epsilon_out is not None
        mean = F.linear(x, self.weight_mu, self.bias_mu)
        noise = F.linear(x * self.epsilon_in, self.weight_sigma, self.bias_sigma)
        return mean + (self.epsilon_out * noise).to(mean.dtype)

    def _needs_no_weights(self, x: Tensor) -> bool:
        if self.noise != "factorised":
            return False
        if self.rows is not None:
            return True
        # Not while compiling or exporting: the batch size may be left open there.
        return not torch.compiler.is_compiling() and x.numel() <= _SMALL_BATCH * self.in_features

    def _bias_noise(self) -> Tensor:
        epsilon = self.epsilon_out if self.noise == "factorised" else self.epsilon_bias  # Eq. 11
        assert epsilon is not None
        return epsilon

    def _check_input(self, x: Tensor) -> None:
        if x.shape[-1:] != (self.in_features,):
            raise ValueError(
                f"NoisyLinear expected inputs of shape [..., {self.in_features}], "
                f"got {list(x.shape)}."
            )
        if x.dtype != self.weight_mu.dtype and not torch.is_autocast_enabled(x.device.type):
            raise TypeError(
                f"NoisyLinear expected {self.weight_mu.dtype} inputs, got {x.dtype}; "
                "convert the input, or the layer with .to(dtype)."
            )
        if self.rows is not None and not self._noise_off and x.shape[-2:-1] != (self.rows,):
            raise ValueError(
                f"NoisyLinear holds noise for {self.rows} rows and expected inputs of shape "
                f"[..., {self.rows}, {self.in_features}], got {list(x.shape)}; call "
                "resample_noise without rows to share one sample over the batch."
            )

    @staticmethod
    def _present(*parameters: nn.Parameter | None) -> Iterator[nn.Parameter]:
        return (parameter for parameter in parameters if parameter is not None)

    def __getstate__(self) -> dict[str, Any]:
        # A copy made inside `noise_off` is not under that context, so nothing would end it; and
        # weights that were built are of the original's graph.
        return {**self.__dict__, "_noise_off": 0, "_built": None}

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        self._built = None
        return super()._apply(fn, recurse)  # type: ignore[no-untyped-call]

    def _load_from_state_dict(self, *arguments: Any, **keywords: Any) -> None:
        self._built = None
        super()._load_from_state_dict(*arguments, **keywords)

    def extra_repr(self) -> str:
        """What `print(layer)` shows between the brackets."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias_mu is not None}, noise={self.noise!r}, sigma0={self.sigma0:g}"
        )


def _check_generator(generator: torch.Generator | None, device: torch.device) -> None:
    if generator is not None and generator.device.type != device.type:
        raise ValueError(
            f"NoisyLinear expected a generator on {device.type}, where its weights are, "
            f"got one on {generator.device.type}; make it with "
            f"torch.Generator(device={device.type!r})."
        )


def _outside_inference_mode() -> AbstractContextManager[Any]:
    """Nothing at all in the usual case, where entering a context would cost more than drawing."""
    if torch.compiler.is_compiling() or torch.is_inference_mode_enabled():
        return torch.inference_mode(False)
    return nullcontext()


def _is_transformed() -> bool:
    """Whether torch is compiling, or transforming functions (vmap, jvp, …).

    A compiler fuses by itself, and transformations know torch's own operations only.
    """
    active: bool = torch._C._are_functorch_transforms_active()
    return active or torch.compiler.is_compiling()


def check_size(name: str, value: int) -> int:
    """`value` as an int (NumPy's integers are welcome), or an error that names the argument."""
    try:
        size = operator.index(value)
    except TypeError:
        size = None
    if size is None or isinstance(value, bool):
        raise TypeError(f"{name} expected a positive integer, got {value!r}.")
    if size < 1:
        raise ValueError(f"{name} expected a positive integer, got {size}.")
    return size


def check_noise_name(noise: str) -> None:
    """Refuse a kind of noise that there is not, with the nearest that there is."""
    names = get_args(Noise)
    if noise not in names:
        near = difflib.get_close_matches(str(noise), names, n=1, cutoff=0.3)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise ValueError(f"noise expected 'factorised' or 'independent', got {noise!r}{hint}")


def _check_dtype(dtype: torch.dtype | None) -> None:
    if dtype is not None and not dtype.is_floating_point:
        raise TypeError(f"dtype expected a floating-point type such as torch.float32, got {dtype}.")


def _checked_sigma0(sigma0: float | None, noise: Noise) -> float:
    if sigma0 is None:
        return DEFAULT_SIGMA0[noise]
    if not isinstance(sigma0, numbers.Real) or isinstance(sigma0, bool):
        raise TypeError(f"sigma0 expected a number of at least 0, got {sigma0!r}.")
    if not math.isfinite(sigma0) or sigma0 < 0:
        raise ValueError(f"sigma0 expected a finite number of at least 0, got {sigma0}.")
    return float(sigma0)
