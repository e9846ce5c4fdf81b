"""Write docs/settings.md from the configuration's schema: python docs/make_settings.py."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from noisynet.config import AGENT_SPECS
from noisynet.config.describe import describe_settings

PAGE: Final = Path(__file__).with_name("settings.md")
AGENTS: Final = ("noisynet-dqn", "rainbow", "noisynet-a3c")
ENVIRONMENTS: Final = ("atari/pong", "minatar/breakout", "gym/CartPole-v1")
INTRODUCTION: Final = """# Agents and settings

This page is generated from the configuration's schema (`python docs/make_settings.py`).
`noisynet settings AGENT ENV` prints the settings of any agent and environment, with the source of
each value: the paper, a preset, the agent, or a default of ours.

Settings are given as `--set key=value` on the command line, as keywords in [Python](python.md), and
under `[settings]` in a [plan](experiments.md). Unknown keys are refused with the nearest names.
Presets hold differences only and are chosen by the environment; `--preset` names another.
"""


def settings_page() -> str:
    """The text of the page."""
    agents = [(f"`{spec.name}`", spec.learns, spec.explores_by) for spec in AGENT_SPECS.values()]
    parts = [INTRODUCTION, _table(("agent", "learns", "explores by"), agents)]
    for agent in AGENTS:
        parts += [f"## {agent}\n", _table(("key", *ENVIRONMENTS, "meaning"), _settings(agent))]
    return "\n".join(parts)


def _settings(agent: str) -> list[tuple[str, ...]]:
    """A row for each setting: its key, its value in each environment, its meaning."""
    columns = [describe_settings(agent, environment) for environment in ENVIRONMENTS]
    values = [{setting.key: setting.value for setting in column} for column in columns]
    rows = []
    for setting in columns[0]:
        if setting.key not in ("agent", "environment"):
            cells = [f"`{found.get(setting.key, '–')}`" for found in values]
            if len(set(cells)) == 1:
                cells[1:] = ["″"] * (len(cells) - 1)
            meaning = setting.meaning.replace("|", "\\|")
            rows.append((f"`{setting.key}`", *cells, meaning))
    return rows


def _table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [header, ("---",) * len(header), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


if __name__ == "__main__":
    PAGE.write_text(settings_page(), encoding="utf-8")
