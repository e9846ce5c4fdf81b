"""Missing packages are named with the pip line; modules of the current folder are found."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from noisynet.extras import extra, import_extra, import_own


def test_an_installed_module_is_imported() -> None:
    assert import_extra("json", "report") is json


def test_a_missing_module_is_named_with_the_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    line = re.escape('install it with: pip install "noisynet[report]"')
    with pytest.raises(ImportError, match=rf"scipy.*{line}") as caught:
        import_extra("scipy", "report")
    assert caught.value.name == "scipy"
    with pytest.raises(ImportError, match=line), extra("report"):
        import scipy  # type: ignore[import-untyped]  # noqa: F401


def test_other_errors_pass_through() -> None:
    with pytest.raises(KeyError), extra("report"):
        raise KeyError


def test_a_module_of_the_current_folder_is_found_and_hides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [part for part in sys.path if part])
    monkeypatch.chdir(tmp_path)
    for name in ("module_of_mine", "json"):
        (tmp_path / f"{name}.py").write_text("number = 3")
    assert import_own("module_of_mine", "<module>", "module_of_mine").number == 3
    assert import_own("json", "<module>", "json") is json
    del sys.modules["module_of_mine"]


def test_a_module_that_is_not_there_and_one_that_it_needs_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "needs_another.py").write_text("import not_there")
    with pytest.raises(ValueError, match=r"expected <a>:<b> with a module in .*, got 'not_there:b"):
        import_own("not_there", "<a>:<b>", "not_there:b")
    with pytest.raises(ImportError, match=r"needs_another:b needs another: .*not_there"):
        import_own("needs_another", "<a>:<b>", "needs_another:b")
