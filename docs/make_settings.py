"""Write docs/settings.md from the configuration's schema: python docs/make_settings.py."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from noisynet.config import AGENT_SPECS
from noisynet.config.describe import describe_settings

PAGE: Final = Path(__file__).with_name("settings.md")
SHOWN: Final = {
    "noisynet-dqn": ("atari/pong", "minatar/breakout", "gym/CartPole-v1"),
    "rainbow": ("atari/pong", "minatar/breakout", "gym/CartPole-v1"),
    "noisynet-a3c": ("atari/pong", "minatar/breakout", "gym/CartPole-v1"),
}
INTRODUCTION: Final = """# Agents and settings

This page is generated from the configuration's schema (`python docs/make_settings.py`). `noisynet settings AGENT ENV` prints the settings of any
agent and environment, with the source of each value: the paper, a preset, the agent, or a default of ours.

Settings are given as `--set key=value` on the command line, as keywords in [Python](python.md), and under `[settings]` in a [plan](experiments.md). Unknown keys are
refused with the nearest names. Presets hold differences only and are chosen by the environment: `paper` for Atari, `minatar`, and `classic` for small problems.
"""


def settings_page() -> str:
    """The text of the page."""
    rows = [
        f"| `{spec.name}` | {spec.learns} | {spec.explores_by} |" for spec in AGENT_SPECS.values()
    ]
    parts = [
        INTRODUCTION,
        "| agent | learns | explores by |\n|---|---|---|\n" + "\n".join(rows) + "\n",
    ]
    for agent, environments in SHOWN.items():
        values = [
            {setting.key: setting.value for setting in describe_settings(agent, environment)}
            for environment in environments
        ]
        parts.append(
            f"## {agent}\n\n| key | {' | '.join(environments)} | meaning |\n|---|{'---|' * len(environments)}---|"
        )
        lines = []
        for setting in describe_settings(agent, environments[0]):
            if setting.key in ("agent", "environment"):
                continue
            cells = [f"`{found.get(setting.key, '–')}`" for found in values]
            if len(set(cells)) == 1:
                cells = [cells[0], *["″"] * (len(cells) - 1)]
            meaning = setting.meaning.replace("|", "\\|")
            lines.append(f"| `{setting.key}` | {' | '.join(cells)} | {meaning} |")
        parts[-1] += "\n" + "\n".join(lines) + "\n"
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(settings_page(), encoding="utf-8")
