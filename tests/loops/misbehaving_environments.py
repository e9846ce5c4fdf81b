"""A Gymnasium environment that misbehaves, for runs in other processes (not a test)."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

FROM_STEP = 150


def _odd_exception() -> None:
    raise BaseException("odd")


def _raise() -> None:
    raise LookupError("the emulator gave up")


def _steal_signals() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


ACTS: dict[str, Callable[[], object]] = {
    "raise": _raise,
    "odd": _odd_exception,
    "exit": lambda: sys.exit(3),
    "os_exit": lambda: os._exit(3),
    "segfault": lambda: ctypes.string_at(0),
    "signals": _steal_signals,
    "close": lambda: os.closerange(3, 256),
}
ANSWERS: dict[str, Any] = {
    "none": None,
    "text_reward": (np.zeros(2, np.float32), "one", False, False, {}),
    "shape": (np.zeros(5, np.float32), 1.0, False, False, {}),
    "not_finite": (np.full(2, np.nan, np.float32), 1.0, False, False, {}),
}


class Misbehaving(gymnasium.Env[Any, Any]):
    """Episodes of 20 steps. From its 150th step on it misbehaves, while a file exists.

    Args:
        how: one of `ACTS` or `ANSWERS`.
        while_exists: the file.
    """

    def __init__(self, how: str, while_exists: str) -> None:
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (2,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.how, self.switch, self.steps, self.all_steps = how, Path(while_exists), 0, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        super().reset(seed=seed, options=options)
        self.steps = 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Return a reward of 1, or misbehave."""
        self.steps, self.all_steps = self.steps + 1, self.all_steps + 1
        if self.all_steps >= FROM_STEP and self.switch.exists():
            if self.how in ANSWERS:
                return ANSWERS[self.how]  # type: ignore[no-any-return]
            ACTS[self.how]()
        return self._observation(), 1.0, self.steps == 20, False, {}

    def _observation(self) -> Any:
        return np.array([1.0, self.steps / 20], np.float32)


gymnasium.register("Misbehaving-v0", f"{__name__}:Misbehaving")
