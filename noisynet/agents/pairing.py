"""An update computed by two threads, while the agent goes on acting.

The operations of an update on a small batch gain little from threads of their own: with two they
take 0.7 of the time. Here each operation keeps to one thread, and whole operations are shared out:
a learner walks through the network and back, and puts up what nobody waits for, the gradients of
the weights, for whoever is free. Who computes what changes no number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

Result = TypeVar("Result")
Shared = SimpleQueue[Callable[[], None] | None]
"""Work for whoever is free; None is the end."""


class Learner:
    """The second thread.

    Args:
        threads: how many threads an operation may use, here and in the first thread.
    """

    def __init__(self, threads: int) -> None:
        torch.set_num_threads(threads)
        self._executor = ThreadPoolExecutor(1, "learner", _prepare, (threads, _flushes()))

    def start(self, work: Callable[[Shared], Result]) -> InFlight[Result]:
        """Begin work that may put up parts of itself to be shared."""
        shared: Shared = SimpleQueue()
        return InFlight(shared, self._executor.submit(_share, work, shared))

    def share(self, parts: Iterable[Callable[[], None]]) -> None:
        """Do all of these in the two threads."""

        def put_up(shared: Shared) -> None:
            for part in parts:
                shared.put(part)

        self.start(put_up).join()


class InFlight(Generic[Result]):
    """Work that the learner has begun.

    Args:
        shared: what it puts up.
        future: what comes of it.
    """

    def __init__(self, shared: Shared, future: Future[Result]) -> None:
        self._shared, self._future = shared, future

    def join(self) -> Result:
        """Take part in what is left, and wait for the result."""
        _take_part(self._shared)
        return self._future.result()


def share_gradients(network: nn.Module, loss_of: Callable[[], Tensor], shared: Shared) -> Tensor:
    """The loss; its gradients are computed as by `loss.backward()`, those of weights by `shared`.

    Args:
        network: whose parameters get a `grad`; they have none so far.
        loss_of: passes through the network once and gives the loss.
        shared: takes the work that can wait.
    """
    outputs: list[tuple[nn.Module, Tensor]] = []
    watching: list[RemovableHandle] = [
        layer.register_forward_hook(lambda layer, _, output: outputs.append((layer, output)))
        for layer in network.modules()
        if any(parameter.requires_grad for parameter in layer.parameters(recurse=False))
    ]
    try:
        loss = loss_of()
    finally:
        for handle in watching:
            handle.remove()
    for layer, output in outputs:
        _put_up(layer, output, shared)
    torch.autograd.grad(loss, [output for _, output in outputs], retain_graph=True)
    return loss.detach()


def _put_up(layer: nn.Module, output: Tensor, shared: Shared) -> None:
    """Share the gradients of a layer's weights as soon as the gradient has come to its output."""

    def come(gradient: Tensor) -> None:
        handle.remove()  # `_weigh` sets out from this output, too
        shared.put(partial(_weigh, layer, output, gradient))

    handle = output.register_hook(come)


def _weigh(layer: nn.Module, output: Tensor, gradient: Tensor) -> None:
    parameters = [p for p in layer.parameters(recurse=False) if p.requires_grad]
    # The learner may still need the graph for the way further back.
    gradients = torch.autograd.grad(output, parameters, gradient, retain_graph=True)
    for parameter, its_gradient in zip(parameters, gradients, strict=True):
        parameter.grad = its_gradient


def _share(work: Callable[[Shared], Result], shared: Shared) -> Result:
    try:
        result = work(shared)
    finally:
        for _ in range(2):  # for each of the threads
            shared.put(None)
    _take_part(shared)
    return result


def _take_part(shared: Shared) -> None:
    while (work := shared.get()) is not None:
        work()


def _prepare(threads: int, flushing: bool) -> None:
    torch.set_num_threads(threads)
    torch.set_flush_denormal(flushing)


def _flushes() -> bool:
    """Whether this thread takes denormal numbers for 0."""
    return float(torch.tensor(1e-40) * 1.0) == 0
