"""Missing optional packages are named with the pip line that installs them."""

from __future__ import annotations

import json
import re
import sys

import pytest

from noisynet.extras import extra, import_extra


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
