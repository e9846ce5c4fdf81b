"""Pages of MLflow; tests/loops/test_tracked_runs.py reads them after kills."""

from __future__ import annotations

import re
import sys

import pytest

from noisynet.integrations.mlflow import MlflowTracker


def test_without_the_package_the_pip_line_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ImportError, match=re.escape('pip install "noisynet[mlflow]"')):
        MlflowTracker()
