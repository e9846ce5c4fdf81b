"""What a run records about the process that made it."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from noisynet.runs import provenance
from noisynet.runs.provenance import describe_machine, format_bytes


def test_versions_commit_machine_and_device_are_described() -> None:
    made = describe_machine("cuda:0 (GPU)")
    assert made == json.loads(json.dumps(made))
    assert made["versions"]["python"] == platform.python_version()
    assert made["versions"]["numpy"] == np.__version__
    assert (made["device"], made["cores"]) == ("cuda:0 (GPU)", os.cpu_count())
    assert made["machine"] == platform.node()
    assert made["processor"]


def test_the_commit_is_that_of_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "noisynet" / "runs" / "provenance.py"
    monkeypatch.setattr(provenance, "__file__", str(source))
    assert describe_machine("cpu")["commit"] is None
    source.parent.mkdir(parents=True)
    source.write_text("first")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *command], check=True)
    assert re.fullmatch(r"[0-9a-f]{40}", describe_machine("cpu")["commit"])
    source.write_text("changed")
    assert re.fullmatch(r"[0-9a-f]{40}-dirty", describe_machine("cpu")["commit"])


def test_sizes_are_in_megabytes_or_gigabytes() -> None:
    assert [format_bytes(count) for count in (0, 1_440_000, 7_150_000_000)] == [
        *("0.0 MB", "1.4 MB", "7.2 GB")
    ]
