"""The gradient of the value agents' loss, by autograd and by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, nn

from noisynet import losses
from noisynet.networks import Convolved, Share, Task, ValueNetwork, ValuePass

_LOSSES: Final = {  # and up to which error each is a parabola
    "huber": (losses.huber, 1.0),
    "squared": (losses.squared, math.inf),
}


@dataclass(frozen=True)
class Columns:
    """A batch of transitions where the networks are.

    Attributes:
        x: observations [B, stack, *frame].
        action: what was done [B].
        reward: [B].
        discount: [B], 0 where y is terminal.
        y: the observations after.
        weight: importance weights [B].
    """

    x: Tensor
    action: Tensor
    reward: Tensor
    discount: Tensor
    y: Tensor
    weight: Tensor


@dataclass(frozen=True)
class Gradient:
    """What is left of a pass when the gradients are in the parameters.

    Attributes:
        loss: the mean loss of the batch.
        error: target − Q(x, a) [B].
        target: what Q(x, a) should have been [B].
    """

    loss: float
    error: Tensor
    target: Tensor


class ValueGradient:
    """Leaves the gradient of the loss in the online network's parameters (Eqs. 14 to 16).

    Args:
        online: learns.
        target: gives the targets.
        loss: which, of one error.
        double_q: whether the online network selects the action at y.
        redraw: redraws the noise of a network for one of its uses: "online" (ξ), "target" (ξ′) or
            "select" (ξ″).
    """

    def __init__(
        self,
        online: ValueNetwork,
        target: ValueNetwork,
        loss: str,
        double_q: bool,
        redraw: Callable[[ValueNetwork, str], None],
    ) -> None:
        self.online, self.target = online, target
        self.loss, self.threshold = _LOSSES[loss]
        self.double_q, self.redraw = double_q, redraw
        self.online_pass, self._target_pass = ValuePass(online), ValuePass(target)
        self._hooks = [*hooks_of(online), *hooks_of(target)]
        self._parameters = list(online.parameters())

    def begin(self, batch: Columns) -> Callable[[Share], Gradient]:
        """What computes the gradient of a batch, and what can be prepared for it at once.

        Returns:
            A function that takes what does the tasks into which the gradient falls, if it does.
        """
        if batch.x.device.type != "cpu" or self._is_watched():
            return lambda _share: self.by_autograd(batch)
        return self.by_hand(batch)

    def _is_watched(self) -> bool:
        """Whether anybody hooks into the networks, as an audit does: by hand no hook is called."""
        return any(self._hooks) or any(
            parameter._backward_hooks or parameter._post_accumulate_grad_hooks
            for parameter in self._parameters
        )

    def by_autograd(self, batch: Columns) -> Gradient:
        """As torch does it: on any device, and for whoever hooks into the networks."""
        with torch.no_grad():
            self.redraw(self.target, "target")  # ξ′
            q_t, selector = self.target(batch.y), None
            if self.double_q:
                self.redraw(self.online, "select")  # ξ″
                selector = self.online(batch.y)
            target = self._targets(batch, q_t, selector)
        for parameter in self._parameters:
            parameter.grad = None
        self.redraw(self.online, "online")  # ξ, held over the batch
        error = losses.td_error(self.online(batch.x), batch.action, target)
        loss = losses.mean_over_batch(self.loss(error), batch.weight)
        loss.backward()
        return Gradient(float(loss.detach()), error.detach(), target)

    @torch.no_grad()
    def by_hand(self, batch: Columns) -> Callable[[Share], Gradient]:
        """The same but for rounding, on CPUs, in tasks that can be shared (docs/performance.md)."""
        at_x, tasks = self.online_pass.torso.begin(batch.x, keep=True)
        at_y, others = self._target_pass.torso.begin(batch.y, keep=False)
        tasks += others
        selected = None
        if self.double_q:
            selected, others = self.online_pass.torso.begin(batch.y, keep=False)
            tasks += others
        # Noise is drawn meanwhile: convolutions have none.
        tasks.append(partial(self.redraw, self.online, "select" if self.double_q else "online"))
        tasks.append(partial(self.redraw, self.target, "target"))  # ξ′
        return partial(self._by_hand, batch, tasks, at_x, at_y, selected)

    @torch.no_grad()
    def _by_hand(
        self,
        batch: Columns,
        tasks: list[Task],
        at_x: Convolved,
        at_y: Convolved,
        selected: Convolved | None,
        share: Share,
    ) -> Gradient:
        online, of_target = self.online_pass, self._target_pass
        share(tasks)
        selector = None
        if selected is not None:
            selector = online.values(share(online.stream_tasks(selected)))  # ξ″
            self.redraw(self.online, "online")  # ξ, held over the batch
        streams = share(online.stream_tasks(at_x) + of_target.stream_tasks(at_y))
        streams, of_y = streams[: len(online.streams)], streams[len(online.streams) :]
        found = losses.value_loss(
            online.values(streams),
            batch.action,
            batch.reward,
            batch.discount,
            of_target.values(of_y),
            selector,
            batch.weight,
            self.threshold,
        )
        online.backward(found.gradient, at_x, streams, share)
        return Gradient(found.loss, found.error, found.target)

    def _targets(self, batch: Columns, q_t: Tensor, selector: Tensor | None) -> Tensor:
        if selector is None:
            return losses.q_learning_target(batch.reward, batch.discount, q_t)
        return losses.double_q_target(batch.reward, batch.discount, q_t, selector)


def hooks_of(network: nn.Module) -> list[Any]:
    """Everything that may hold hooks of a network's modules; each is empty until there are some."""
    return [
        hooks
        for module in network.modules()
        for hooks in (
            module._forward_hooks,
            module._forward_pre_hooks,
            module._backward_hooks,
            module._backward_pre_hooks,
        )
    ]
