"""Modules that are imported on first use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from noisynet.lazy import imported_when_used, lazy_attributes

PACKAGES = {"noisynet.loops": "Run", "noisynet.envs": "Environment", "noisynet.experiments": "Plan"}


def test_a_name_is_imported_when_it_is_first_used() -> None:
    code = (
        f"import sys, {', '.join(PACKAGES)}\n"
        "assert not [m for m in sys.modules if m in ('torch', 'gymnasium', 'ray')], 'too early'\n"
        f"for package, name in {PACKAGES}.items():\n"
        "    first = getattr(sys.modules[package], name)\n"
        "    assert vars(sys.modules[package])[name] is first\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_public_name_of_a_lazy_package_can_be_imported() -> None:
    for package in PACKAGES:
        module = __import__(package, fromlist=["__all__"])
        for name in module.__all__:
            assert getattr(module, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'noisynet.loops' has no attribute 'Walk'"):
        lazy_attributes("noisynet.loops", {"run": ["Run"]})("Walk")


def test_a_module_is_imported_when_it_is_first_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow_pictures.py").write_text("colour = 'red'\n")
    (tmp_path / "a_game.py").write_text(
        "import slow_pictures\ndef draw(): return slow_pictures.colour\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with imported_when_used("slow_pictures"):
        import a_game  # type: ignore[import-not-found]
    assert "slow_pictures" not in sys.modules
    assert a_game.draw() == "red"
    with imported_when_used("slow_pictures"):  # it is there by now
        import slow_pictures  # type: ignore[import-not-found]
    assert sys.modules["slow_pictures"] is slow_pictures
    for module in ("a_game", "slow_pictures"):
        del sys.modules[module]


def test_a_module_that_is_used_at_once_is_imported_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "quick_pictures.py").write_text("colour = 'blue'\n")
    monkeypatch.syspath_prepend(tmp_path)
    with imported_when_used("quick_pictures"):
        import quick_pictures  # type: ignore[import-not-found]

        assert quick_pictures.colour == "blue"
    assert sys.modules.pop("quick_pictures").colour == "blue"


def test_a_module_that_is_missing_is_an_error_when_it_is_used() -> None:
    with imported_when_used("there_is_no_such_module"):
        import there_is_no_such_module  # type: ignore[import-not-found]
    with pytest.raises(ModuleNotFoundError):
        there_is_no_such_module.name  # noqa: B018
