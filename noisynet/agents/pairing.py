"""An update computed by two threads, while the agent goes on acting.

The operations of an update on a small batch gain little from threads of their own: with two they
take 0.7 of the time. Here each operation keeps to one thread, and an update falls into tasks: a
learner does them, and the first thread does some as soon as it has nothing else to do. Who does
what changes no number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

import torch

from noisynet.networks import Share, Task

Result = TypeVar("Result")


class Learner:
    """The second thread.

    Args:
        threads: how many threads an operation may use, here and in the first thread.
    """

    def __init__(self, threads: int) -> None:
        torch.set_num_threads(threads)
        self._executor = ThreadPoolExecutor(1, "learner", _prepare, (threads, _flushes()))

    def start(self, work: Callable[[Share], Result]) -> InFlight[Result]:
        """Begin work that shares out tasks of itself."""
        tasks = _Tasks()
        return InFlight(tasks, self._executor.submit(tasks.lead, work))

    def prepare(self, work: Callable[[], Any]) -> None:
        """Do something before what is begun next, which can do without."""
        self._executor.submit(work)

    def share(self, tasks: Sequence[Task]) -> list[Any]:
        """Do all of these in the two threads; their results in order."""
        return self.start(lambda share: share(tasks)).join()


class InFlight(Generic[Result]):
    """Work that the learner has begun.

    Args:
        tasks: what it shares out.
        future: what comes of it.
    """

    def __init__(self, tasks: _Tasks, future: Future[Result]) -> None:
        self._tasks, self._future = tasks, future

    def join(self) -> Result:
        """Take part in what is left, and wait for the result."""
        self._tasks.help()
        return self._future.result()


class _Tasks:
    """Tasks that two threads take from one queue."""

    def __init__(self) -> None:
        self._open: SimpleQueue[_Job | None] = SimpleQueue()

    def lead(self, work: Callable[[Share], Result]) -> Result:
        """Do the work, and whatever of its tasks nobody else does."""
        try:
            return work(self._share)
        finally:
            self._open.put(None)  # there will be no more

    @torch.no_grad()
    def help(self) -> None:
        """Do tasks until there will be no more."""
        while (job := self._open.get()) is not None:
            job.do()

    def _share(self, tasks: Sequence[Task]) -> list[Any]:
        done: SimpleQueue[_Job] = SimpleQueue()
        jobs = [_Job(task, done) for task in tasks]
        for job in jobs:
            self._open.put(job)
        with suppress(Empty):
            while (mine := self._open.get_nowait()) is not None:
                mine.do()
        for _ in jobs:
            done.get()
        return [job.result() for job in jobs]


class _Job:
    """A task, and what became of it."""

    def __init__(self, task: Task, done: SimpleQueue[_Job]) -> None:
        self._task, self._done = task, done
        self._result: Any = None
        self._error: BaseException | None = None

    def do(self) -> None:
        try:
            self._result = self._task()
        except BaseException as error:
            self._error = error
        self._done.put(self)

    def result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._result


def _prepare(threads: int, flushing: bool) -> None:
    torch.set_num_threads(threads)
    torch.set_flush_denormal(flushing)


def _flushes() -> bool:
    """Whether this thread takes denormal numbers for 0."""
    return float(torch.tensor(1e-40) * 1.0) == 0
