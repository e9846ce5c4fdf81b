"""Fixtures of the integrations."""

from __future__ import annotations

import pytest


@pytest.fixture
def uncompiled_tianshou(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run Tianshou's numba functions uncompiled: compiling takes longer than most tests."""
    from tianshou.algorithm import algorithm_base
    from tianshou.data.buffer import manager

    for module, name in (
        (algorithm_base, "_gae"),
        (algorithm_base, "_nstep_return"),
        (manager, "_prev_index"),
        (manager, "_next_index"),
    ):
        monkeypatch.setattr(module, name, getattr(module, name).py_func)
