"""The setting `compute`: what it needs on this machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from noisynet.config import cxx_compiler, has_kernels, missing_for


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the whole PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    return tmp_path


def install(folder: Path, name: str) -> str:
    program = folder / name
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return str(program)


def test_without_a_compiler_compile_names_what_to_install(programs: Path) -> None:
    assert cxx_compiler() is None
    missing = missing_for("compile")
    assert missing is not None
    assert missing.startswith("compute=compile expects a C++ compiler")
    assert "apt install g++" in missing
    assert missing_for("auto") is missing_for("torch") is None


@pytest.mark.parametrize("name", ["c++", "g++", "clang++"])
def test_any_of_the_usual_compilers_will_do(name: str, programs: Path) -> None:
    path = install(programs, name)
    assert cxx_compiler() == path
    assert missing_for("compile") is None


def test_cxx_is_preferred(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(programs, "g++")
    monkeypatch.setenv("CXX", install(programs, "mine"))
    assert cxx_compiler() == str(programs / "mine")


def test_kernels_are_there_if_numba_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    assert not has_kernels()


def test_asking_imports_neither_torch_nor_numba() -> None:
    code = (
        "import sys; from noisynet.config import has_kernels, missing_for\n"
        "has_kernels(); missing_for('compile')\n"
        "assert not {'torch', 'numba'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
