"""Every setting of a run: its value, where the value is from, and what it means."""

from __future__ import annotations

import ast
import inspect
import json
import re
import textwrap
from dataclasses import dataclass

from noisynet.config.build import build_config, setting_sources
from noisynet.config.run import flat_settings
from noisynet.config.sections import Section


@dataclass(frozen=True)
class Setting:
    """A setting of a run; key and value as after `--set`."""

    key: str
    value: str
    source: str
    """ "command", "agent", "preset <name>", "paper" (a default that `paper.py` states with its
    source) or "default" (our own choice)."""
    meaning: str


def describe_settings(agent: str, environment: str, *, preset: str | None = None) -> list[Setting]:
    """The settings of a run without `--set`; arguments and errors are those of `build_config`."""
    config = build_config(agent, environment, preset=preset)
    sources = setting_sources(agent, environment, preset)
    described = _fields(type(config))
    for name, value in config:
        if isinstance(value, Section):
            described |= {f"{name}.{key}": text for key, text in _fields(type(value)).items()}
    found = []
    for key, value in flat_settings(dict(config)).items():
        default, meaning = described[key]
        text = value if isinstance(value, str) else json.dumps(value)
        found.append(Setting(key, text, sources.get(key, default), meaning))
    return found


def _fields(model: type[Section]) -> dict[str, tuple[str, str]]:
    """For each field, where its default is from and the first sentence below it in the source."""
    found: dict[str, tuple[str, str]] = {}
    for kind in reversed([base for base in model.__mro__ if issubclass(base, Section)]):
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
        assert isinstance(tree, ast.ClassDef)
        for node, below in zip(tree.body, [*tree.body[1:], None], strict=True):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                text = _text(below) or (_text(tree.body[0]) if node.target.id == "kind" else "")
                text = text or found.get(node.target.id, ("", ""))[1]  # of the parent class
                stated = "paper." in ast.unparse(node) or "None for the paper's" in text
                sentence = re.split(r"(?<=\.) (?=[A-Z])", " ".join(text.split()))[0]
                found[node.target.id] = ("paper" if stated else "default", sentence)
    return found


def _text(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return str(node.value.value)
    return ""
