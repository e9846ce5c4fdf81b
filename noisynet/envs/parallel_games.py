"""Environments in processes of their own, stepped by Gymnasium's vector environment."""

from __future__ import annotations

import multiprocessing
import signal
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeAlias, final

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode
from numpy.typing import NDArray

from noisynet.envs.gym_games import GameMaker
from noisynet.envs.observations import Frames

Results: TypeAlias = tuple[NDArray[Any], NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]
"""Frames, rewards, terminated and truncated, [N, …] each."""


@final
class ParallelGames:
    """N environments, each in a process of its own."""

    def __init__(self, maker: GameMaker, num_envs: int) -> None:
        self._name, self._is_stepping = maker.name, False
        with self._explained():
            self._vector = AsyncVectorEnv(
                [partial(_make_in_process, maker)] * num_envs,
                # Not forked: a copy of torch's threads can deadlock, one of the pipes keeps the
                # processes alive when the run is killed.
                context="spawn",
                autoreset_mode=AutoresetMode.DISABLED,  # every episode is started by its seed
            )

    def start(self, seeds: Sequence[int | None]) -> NDArray[Any]:
        """Begin episodes where a seed is given; return frames [N, …], of any value elsewhere."""
        asked = np.array([seed is not None for seed in seeds])
        with self._explained():
            frames, _ = self._vector.reset(seed=list(seeds), options={"reset_mask": asked})
        return np.array(frames)

    def send(self, actions: NDArray[np.int64]) -> None:
        """Begin one step of all environments."""
        with self._explained():
            self._vector.step_async(actions)
            self._is_stepping = True

    def recv(self) -> Results:
        """Return the results of the step that was begun."""
        self._is_stepping = False
        with self._explained():
            frames, rewards, terminated, truncated, _ = self._vector.step_wait()
        return np.array(frames), rewards.astype(np.float64), terminated, truncated

    def render(self, index: int) -> Any:
        """The screen of one environment."""
        with self._explained():
            return self._vector.call("render")[index]

    def close(self) -> None:
        """End the processes."""
        if self._is_stepping:
            with suppress(Exception):  # what the step would have said does not matter any more
                self.recv()
        try:
            self._vector.close()
        except (EOFError, OSError):  # one has died
            self._vector.close(terminate=True)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, ConnectionError) as error:
            # The frames of a failed `send` hold a buffer. Should the garbage collector find it in a
            # cycle, Python 3.12 may crash, and 3.13 complains.
            traceback.clear_frames(error.__traceback__)
            raise RuntimeError(
                f"a process of {self._name} died ({type(error).__name__}): look above for its own "
                "message. It may have run out of memory; or your script, which every process "
                'imports, trains outside if __name__ == "__main__":'
            ) from error


def _make_in_process(maker: GameMaker) -> Frames:
    if multiprocessing.parent_process() is not None:
        # Ctrl-C reaches every process of the terminal; the run ends its environments itself.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return maker()
