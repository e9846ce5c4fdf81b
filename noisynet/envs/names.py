"""What can be named without importing any environment: families, games, and the nearest name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Final

FAMILIES: Final = ("atari", "minatar", "deep_sea", "gym")
"""The first part of an environment's name."""

ATARI_57: Final = (
    "alien",
    "amidar",
    "assault",
    "asterix",
    "asteroids",
    "atlantis",
    "bank_heist",
    "battle_zone",
    "beam_rider",
    "berzerk",
    "bowling",
    "boxing",
    "breakout",
    "centipede",
    "chopper_command",
    "crazy_climber",
    "defender",
    "demon_attack",
    "double_dunk",
    "enduro",
    "fishing_derby",
    "freeway",
    "frostbite",
    "gopher",
    "gravitar",
    "hero",
    "ice_hockey",
    "jamesbond",
    "kangaroo",
    "krull",
    "kung_fu_master",
    "montezuma_revenge",
    "ms_pacman",
    "name_this_game",
    "phoenix",
    "pitfall",
    "pong",
    "private_eye",
    "qbert",
    "riverraid",
    "road_runner",
    "robotank",
    "seaquest",
    "skiing",
    "solaris",
    "space_invaders",
    "star_gunner",
    "surround",
    "tennis",
    "time_pilot",
    "tutankham",
    "up_n_down",
    "venture",
    "video_pinball",
    "wizard_of_wor",
    "yars_revenge",
    "zaxxon",
)
"""The paper's 57 games, as the Arcade Learning Environment names their ROMs."""

MINATAR_GAMES: Final = ("asterix", "breakout", "freeway", "seaquest", "space_invaders")
"""The five games of MinAtar."""


def snake_case(word: str) -> str:
    """Return `word` in snake case: both "MsPacman" and "Ms Pacman" give "ms_pacman"."""
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[\s\-]+", "_", word.strip())
    return parted.lower()


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return " Did you mean '…'?" with the known name nearest to `word`, or "" if none is near."""
    names = {name.lower(): name for name in known}
    for spelling in (word.lower(), snake_case(word)):
        near = difflib.get_close_matches(spelling, names, n=1, cutoff=0.6)
        if near:
            return f" Did you mean {names[near[0]]!r}?"
    return ""
