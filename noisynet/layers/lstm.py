"""A noisy LSTM cell, the extension that the paper's conclusion leaves as future work."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from noisynet.layers.arguments import Noise, check_size
from noisynet.layers.linear import NoisyLinear


class NoisyLSTMCell(nn.Module):
    """`torch.nn.LSTMCell` with noise on both weight matrices and both biases.

    The sample is held, like that of `NoisyLinear`, until `resample_noise`: a sequence is stepped
    through with one sample. Each matrix is a noisy linear layer, initialised by its own inputs.

    Args:
        input_size: the number of inputs.
        hidden_size: the number of cells.
        bias: whether the two noisy biases are there.
        noise: `"factorised"` or `"independent"`, as for `NoisyLinear`.
        sigma0: the initial noise, as for `NoisyLinear`.
        device: where the parameters live.
        dtype: a floating-point type.
        generator: what initialises μ and draws the first ε; torch's global one if not given.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        *,
        noise: Noise = "factorised",
        sigma0: float | None = None,
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
                device=device,
                dtype=dtype,
                generator=generator,
            )

        self.input_gates = gates(self.input_size)
        self.hidden_gates = gates(hidden_size)

    def resample_noise(
        self, generator: torch.Generator | None = None, rows: int | None = None
    ) -> None:
        """Draw a fresh ε for both matrices and hold it over the sequence to come."""
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
        write, keep, candidate, read = gates.chunk(4, dim=-1)  # torch's order: i, f, g, o
        cell = keep.sigmoid() * cell + write.sigmoid() * candidate.tanh()
        return read.sigmoid() * cell.tanh(), cell
