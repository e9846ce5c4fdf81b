"""The seam between an agent and what computes its values and updates.

`PlainUpdate` in `agents/value.py` defines the results in plain PyTorch. Every other implementation
is a drop-in for it: it draws the same noise from the same streams into the same layers and gives
the same numbers up to rounding. Which one a run uses is decided by its configuration when the agent
is built, and never changes while it runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from noisynet.layers import held_noise, hold_noise, resample_noise
from noisynet.networks import ValueNetwork
from noisynet.replay import TransitionBatch

NORM_PERIOD_UPDATES: Final = 100
"""How often the norm of a gradient is measured that is not clipped: it costs a pass over memory."""


class ObservationSpec(Protocol):
    """What an agent must know about an environment."""

    @property
    def num_actions(self) -> int:
        """The number of actions."""

    @property
    def frame_shape(self) -> tuple[int, ...]:
        """The shape of one frame."""

    @property
    def frame_dtype(self) -> str:
        """The dtype of a frame: "uint8" or "float32"."""

    @property
    def pixel_scale(self) -> float:
        """Multiplies observations before the network: 1/255 for grey levels."""

    @property
    def stack(self) -> int:
        """How many frames make an observation."""


class NonFiniteLoss(ArithmeticError):  # noqa: N818 — says what happened
    """The loss is NaN or infinite; the message says where that came from."""


@dataclass(frozen=True)
class Learnt:
    """The result of an update.

    Attributes:
        loss: the mean loss of the batch.
        error: target − Q(x, a) [B], or the KL divergence from the target for distributional agents:
            what prioritised replay goes by.
        q_mean: the mean of Q(x, a) over the batch.
        gradient_norm: before it is clipped; where it is not clipped, measured at every
            `NORM_PERIOD_UPDATES`th update only and None at all others.
    """

    loss: float
    error: NDArray[np.float32]
    q_mean: float
    gradient_norm: float | None = None

    def measures(self) -> dict[str, float]:
        """What the log averages."""
        norm = {} if self.gradient_norm is None else {"gradient_norm": self.gradient_norm}
        return {"loss": self.loss, "q_mean": self.q_mean, **norm}


class Update(Protocol):
    """Computes values and updates of a value agent's networks."""

    def resample(self, rows: int) -> None:
        """Draw the acting noise: one sample for each of `rows` environments."""

    def q_values(self, observation: NDArray[Any]) -> NDArray[np.float32]:
        """Q [N, A] of the acting network, with the noise that it holds."""

    def learn(self, batch: TransitionBatch) -> Learnt:
        """One update of the online network (Eq. 14, or Eqs. 15 and 16 with double Q).

        A loss that is not finite is returned, and changes nothing.
        """

    def reload(self, updates: int = 0) -> None:
        """Take note that weights, optimiser state or held noise were replaced from outside.

        Args:
            updates: how many updates they have had.
        """


@dataclass(frozen=True)
class ValueNetworks:
    """The networks of a value agent, each with a noise sample of its own.

    Attributes:
        online: ζ, with ξ in the loss.
        acting: shares ζ; its noise is that of the actions.
        selector: shares ζ; ξ″ selects b*(y) in double Q-learning.
        target: ζ⁻, with ξ′.
    """

    online: ValueNetwork
    acting: ValueNetwork
    selector: ValueNetwork
    target: ValueNetwork

    def items(self) -> dict[str, ValueNetwork]:
        """The networks by the random stream that draws their noise."""
        return {
            "online": self.online,
            "act": self.acting,
            "select": self.selector,
            "target": self.target,
        }


class NoiseStreams:
    """Draws the noise of each network from the stream of its role.

    A role that is switched off holds zero noise, so that its network uses mean weights and σ gets
    a zero gradient.

    Args:
        networks: of a noisy agent.
        streams: a generator for each role.
        roles: those that use noise.
    """

    def __init__(
        self, networks: ValueNetworks, streams: dict[str, torch.Generator], roles: set[str]
    ) -> None:
        self.networks, self.streams, self.roles = networks.items(), streams, roles
        for role in self.networks.keys() - roles:
            network = self.networks[role]
            if noise := held_noise(network):
                zero = {name: torch.zeros_like(value) for name, value in noise.items()}
                hold_noise(network, zero)

    def resample(self, role: str, rows: int | None = None) -> None:
        """Draw a new sample for the network of a role, if that uses noise."""
        if role in self.roles:
            resample_noise(self.networks[role].head, self.streams[role], rows)


def describe_non_finite(
    learnt: Learnt, batch: TransitionBatch, networks: ValueNetworks, update: int
) -> str:
    """Where a loss that is not finite came from: the batch, a parameter, or the outputs."""
    columns = {"reward": "reward", "the observations": "x", "the next observations": "y"}
    tensors = [(name, torch.from_numpy(getattr(batch, column))) for name, column in columns.items()]
    tensors += networks.online.state_dict().items()
    tensors += [(f"target {name}", v) for name, v in networks.target.state_dict().items()]
    bad = [name for name, value in tensors if not bool(value.isfinite().all())]
    where = f"first in {bad[0]!r}" if bad else "in the network's outputs"
    if not bad and np.isfinite(learnt.error).all():
        largest = np.abs(learnt.error).max()
        where = f"TD errors of up to {largest:.3g} overflow it; are the rewards right?"
    return f"expected a finite loss at update {update}, got {learnt.loss}: {where}"
