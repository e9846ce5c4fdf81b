"""A noisy LSTM cell, the extension that the paper's conclusion leaves as future work."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from noisynet.layers.arguments import Distribution, Noise, NoiseFunction, check_size
from noisynet.layers.linear import NoisyLinear


class NoisyLSTMCell(nn.Module):
    """`torch.nn.LSTMCell` with noise on both weight matrices and both biases.

    Like `NoisyLinear` it holds its sample until `resample_noise`, so that a whole sequence uses one
    sample. Each matrix is a noisy linear layer, initialised by its own number of inputs.

    Args:
        input_size: the number of inputs.
        hidden_size: the number of cells.
        bias: whether the cell has its two (noisy) biases.
        noise: `"factorised"` or `"independent"`, as for `NoisyLinear`.
        sigma0: the initial noise, as for `NoisyLinear`.
        distribution: of ε, as for `NoisyLinear`.
        f: shapes factorised noise, as for `NoisyLinear`.
        device: device of the parameters.
        dtype: a floating-point type.
        generator: initialises μ and draws the first ε; torch's global generator if not given.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
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
        self.input_size = check_size("input_size", input_size)
        self.hidden_size = hidden_size = check_size("hidden_size", hidden_size)

        def gates(inputs: int) -> NoisyLinear:
            return NoisyLinear(
                inputs,
                4 * hidden_size,
                bias,
                noise=noise,
                sigma0=sigma0,
                distribution=distribution,
                f=f,
                device=device,
                dtype=dtype,
                generator=generator,
            )

        self.input_gates = gates(self.input_size)
        self.hidden_gates = gates(hidden_size)

    def resample_noise(
        self, generator: torch.Generator | None = None, rows: int | None = None
    ) -> None:
        """Draw a new ε for both matrices and hold it; see `NoisyLinear.resample_noise`."""
        self.input_gates.resample_noise(generator, rows)
        self.hidden_gates.resample_noise(generator, rows)

    def forward(
        self, x: Tensor, state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        """One step of the cell.

        Args:
            x: the input [..., input_size].
            state: (hidden, cell), each [..., hidden_size]; zeros if not given.

        Returns:
            The next (hidden, cell).
        """
        if state is None:
            zeros = x.new_zeros(*x.shape[:-1], self.hidden_size)
            state = (zeros, zeros)
        hidden, cell = state
        expected = (*x.shape[:-1], self.hidden_size)
        if hidden.shape != expected or cell.shape != expected:
            raise ValueError(
                f"NoisyLSTMCell expected a hidden and a cell state of shape {list(expected)}, got "
                f"{list(hidden.shape)} and {list(cell.shape)}."
            )
        gates = self.input_gates(x) + self.hidden_gates(hidden)
        i, f, g, o = gates.chunk(4, dim=-1)  # in torch's order: input, forget, cell, output
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        return o.sigmoid() * cell.tanh(), cell
