"""Packages whose submodules are imported on first use."""

from __future__ import annotations

import subprocess
import sys

import pytest

from noisynet.lazy import lazy_attributes

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
