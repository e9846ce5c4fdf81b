"""The checks of an installation."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

import pytest

from noisynet import doctor
from noisynet.doctor import Finding, examine


def findings() -> dict[str, Finding]:
    return {finding.subject: finding for finding in examine()}


@pytest.fixture
def no_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The two runs of a few seconds are left out."""
    monkeypatch.setattr(doctor, "_train", lambda: "left out")
    monkeypatch.setattr(doctor, "_train_with_workers", lambda: "left out")


def test_this_installation_works() -> None:
    found = findings()
    assert all(finding.ok for finding in found.values()), found
    assert "trained, stopped and resumed on deep_sea/5" in found["self-test"].result
    assert "2 workers started and trained" in found["workers"].result


@pytest.mark.usefixtures("no_runs")
def test_extras_that_are_missing_are_named_with_their_pip_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    core = {name: metadata.version(name) for name in doctor._CORE}

    def version(name: str) -> str:
        if name not in core:
            raise metadata.PackageNotFoundError(name)
        return core[name]

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setitem(sys.modules, "ale_py.roms", None)
    monkeypatch.setitem(sys.modules, "numba", None)
    found = findings()
    assert all(finding.ok for finding in found.values()), found
    for package, extra in doctor._EXTRAS.items():
        assert found[package].result == f'not installed: pip install "noisynet[{extra}]"'
    assert found["compute=auto"].result.startswith("PyTorch; for compiled kernels")
    assert "skipped: " in found["atari games"].result
    assert 'pip install "noisynet[atari]"' in found["atari games"].result


@pytest.mark.usefixtures("no_runs")
def test_how_runs_are_computed_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "g++"
    compiler.write_text("")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert findings()["compute=compile"].result == f"torch.compile with {compiler}"
    compiler.unlink()
    found = findings()
    assert "install g++ or clang++" in found["compute=compile"].result
    assert found["compute=auto"].result.startswith("compiled kernels")
    assert found["threads"].result[0].isdecimal()


@pytest.mark.usefixtures("no_runs")
def test_a_check_that_fails_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> str:
        raise FileNotFoundError("no ROM for pong")

    monkeypatch.setattr(doctor, "_games", broken)
    assert findings()["atari games"] == Finding(
        "atari games", False, "FileNotFoundError: no ROM for pong"
    )
