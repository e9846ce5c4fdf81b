"""Pages of Trackio; tests/loops/test_tracked_runs.py reads them after kills."""

from __future__ import annotations

import re
import sys

import pytest

from noisynet.integrations.trackio import TrackioTracker


def test_without_the_package_the_pip_line_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "trackio", None)
    with pytest.raises(ImportError, match=re.escape('pip install "noisynet[trackio]"')):
        TrackioTracker()
