"""Package attributes that are imported on first use."""

from __future__ import annotations

import subprocess
import sys

import pytest

from noisynet import experiments


def test_an_attribute_is_imported_on_first_use_and_kept() -> None:
    code = (
        "import sys, noisynet.experiments as package\n"
        "assert 'noisynet.experiments.plan' not in sys.modules\n"
        "first = package.Plan\n"
        "assert first is sys.modules['noisynet.experiments.plan'].Plan\n"
        "assert vars(package)['Plan'] is first"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_unknown_attribute_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'noisynet\.experiments' has no .*'Plann'"):
        _ = experiments.Plann


@pytest.mark.parametrize("package", ["envs", "experiments", "loops"])
def test_every_listed_attribute_can_be_imported(package: str) -> None:
    module = __import__(f"noisynet.{package}", fromlist=["__all__"])
    for name in module.__all__:
        assert getattr(module, name) is not None
