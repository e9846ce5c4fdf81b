"""The fixture `noise_audit`, in a pytest process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

TESTS = """
import sys

def test_torch_is_not_imported_before_the_fixture_is_used(noise_audit):
    assert "torch" not in sys.modules

def test_right(noise_audit):
    from noisynet import NoisyLinear
    report = noise_audit(NoisyLinear(4, 3), updates=15)
    assert report.passed

def test_gated(noise_audit):
    from torch import nn
    from noisynet import NoisyLinear, noise_off

    class Gated(NoisyLinear):
        def forward(self, x):
            if self.training:
                return super().forward(x)
            with noise_off(self):
                return super().forward(x)

    noise_audit(Gated(4, 3), updates=15)
"""


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    folder = tmp_path_factory.mktemp("tests")
    (folder / "test_agent.py").write_text(TESTS)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "noisynet.pytest_plugin", str(folder)],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        # The plugin is named, so that this checkout is tested and not what is installed.
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)},
    )


def test_an_agent_that_keeps_the_contract_passes(ended: subprocess.CompletedProcess[str]) -> None:
    assert "2 passed" in ended.stdout, ended.stdout + ended.stderr


def test_a_broken_contract_fails_the_test_with_the_report(
    ended: subprocess.CompletedProcess[str],
) -> None:
    assert ended.returncode == 1
    assert "FAIL  noise does not depend on train()/eval()" in ended.stdout
    assert re.search(r"contract is broken: 1 of \d+ checks failed", ended.stdout)
    assert "test_gated - Failed: noise does not depend on" in ended.stdout  # in the summary
    assert "Traceback" not in ended.stdout
    assert "1 failed" in ended.stdout


def test_pytest_finds_the_plugin_where_noisynet_is_installed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"noisynet": "noisynet.pytest_plugin"}
