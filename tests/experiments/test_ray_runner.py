"""Errors of `--on ray` before a cluster is used; sweeps on a cluster: test_ray_cluster.py."""

from __future__ import annotations

import socket
import sys
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from noisynet.experiments import run_sweep


def test_without_ray_the_error_names_the_install_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r'pip install "noisynet\[ray\]"'):
        run_sweep("classic", out=tmp_path, on="ray", console=Console(file=StringIO()))
    assert list(tmp_path.iterdir()) == []


def test_an_address_without_a_cluster_is_an_error_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False))
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))  # bound, but not listening
        address = f"127.0.0.1:{reserved.getsockname()[1]}"
        with pytest.raises(ConnectionError, match=f"expected a Ray cluster at {address}"):
            run_sweep("classic", out=tmp_path, on="ray", address=address)
