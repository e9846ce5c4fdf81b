"""The papers' numbers: every one has a source, and stands in one place."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

from noisynet import paper
from noisynet.layers import DEFAULT_SIGMA0

SOURCE = Path(paper.__file__).read_text()


def comments() -> dict[int, str]:
    """The comment that ends each line of the module."""
    tokens = tokenize.generate_tokens(io.StringIO(SOURCE).readline)
    return {token.start[0]: token.string for token in tokens if token.type == tokenize.COMMENT}


def test_every_number_has_a_source() -> None:
    found = comments()
    numbers = [
        node
        for statement in ast.parse(SOURCE).body
        if isinstance(statement, ast.AnnAssign)
        for node in ast.walk(statement)
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float)
    ]
    assert len(numbers) > 60
    for number in numbers:
        source = found.get(number.lineno, "")
        assert re.match(r"# [PORD]: \S|# E\b", source), f"line {number.lineno}: {source!r}"


def test_the_layers_have_the_papers_sigma0() -> None:
    """The layers import torch only, so they repeat these two numbers."""
    assert DEFAULT_SIGMA0 == {
        "factorised": paper.SIGMA0_FACTORISED,
        "independent": paper.SIGMA0_INDEPENDENT,
    }


def test_convolutions_are_the_papers() -> None:
    """Filters, kernel, stride and padding, as Nature's methods and the supplement of A3C have."""
    assert paper.NATURE_CONVOLUTIONS == ((32, 8, 4, 0), (64, 4, 2, 0), (64, 3, 1, 0))
    assert paper.A3C_CONVOLUTIONS == ((16, 8, 4, 0), (32, 4, 2, 0))
    assert paper.MINATAR_CONVOLUTIONS == ((16, 3, 1, 0),)
