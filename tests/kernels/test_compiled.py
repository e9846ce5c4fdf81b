"""The cache of compiled kernels: shared by processes, and invalidated by changed sources."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

INNER = (
    "from noisynet.kernels.compiled import compiled\n"
    "@compiled\n"
    "def inner(x):\n"
    "    return x + {added}\n"
)
OUTER = (
    "from inner import inner\n"
    "from noisynet.kernels.compiled import compiled\n"
    "@compiled\n"
    "def outer(x):\n"
    "    return 10 * inner(x)\n"
    "print(outer(1), sum(outer.stats.cache_hits.values()))\n"
)


def test_a_change_in_a_called_function_invalidates_the_cache(tmp_path: Path) -> None:
    (tmp_path / "outer.py").write_text(OUTER)
    printed = []
    for added in (1, 1, 2):
        (tmp_path / "inner.py").write_text(INNER.format(added=added))
        done = subprocess.run(
            [sys.executable, "outer.py"], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        printed.append(done.stdout.split())
    # The result, and the number of cache hits.
    assert printed == [["20", "0"], ["20", "1"], ["30", "0"]]
