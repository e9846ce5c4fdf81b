"""The snippets of docs/audit.md run as they stand, and it names every question."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from noisynet import check_noise
from noisynet.audit import checks

TEXT = (Path(__file__).parents[1] / "docs" / "audit.md").read_text()
OWN, IN_PYTHON, IN_PYTEST, _ = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


@pytest.fixture
def my_agent(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("my_agent")
    monkeypatch.setitem(sys.modules, "my_agent", module)
    exec(OWN, module.__dict__)
    return module


def test_the_agent_of_the_page_keeps_the_contract(
    my_agent: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    exec(IN_PYTHON, {})
    assert "The noise contract is kept: all 14 applicable checks" in capsys.readouterr().out


def test_the_test_of_the_page_calls_the_fixture(my_agent: ModuleType) -> None:
    names: dict[str, Any] = {}
    reports = []
    exec(IN_PYTEST, names)
    names["test_noise"](lambda *a, **k: reports.append(check_noise(*a, **k, updates=15)))
    assert reports[0].passed, str(reports[0])


def test_the_page_names_every_question() -> None:
    section = TEXT.split("## The questions")[1].split("## ")[0]
    named = set(re.findall(r"^\| ([^|]+) \| [^|]+ \|$", section, re.MULTILINE)) - {"question"}
    assert named == {
        *(checks.ACTING, checks.LEARNING, checks.MODE, checks.FRESH, checks.HELD, checks.BATCH),
        *(checks.ROWS, checks.ROLES, checks.LAYERS, checks.MOMENTS, checks.STRUCTURE),
        *(checks.SCALE, checks.GRADIENT, checks.EVALUATION, checks.SAVED),
    }
