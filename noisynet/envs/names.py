"""Names of environments: families, games and suggestions. Only the standard library is imported."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

ATARI_57: Final = tuple(
    """
    alien amidar assault asterix asteroids atlantis bank_heist battle_zone beam_rider berzerk
    bowling boxing breakout centipede chopper_command crazy_climber defender demon_attack
    double_dunk enduro fishing_derby freeway frostbite gopher gravitar hero ice_hockey
    jamesbond kangaroo krull kung_fu_master montezuma_revenge ms_pacman name_this_game phoenix
    pitfall pong private_eye qbert riverraid road_runner robotank seaquest skiing solaris
    space_invaders star_gunner surround tennis time_pilot tutankham up_n_down venture
    video_pinball wizard_of_wor yars_revenge zaxxon
    """.split()  # noqa: SIM905 — a list of 57 lines says no more
)
"""The paper's 57 games, as the Arcade Learning Environment names their ROMs."""

MINATAR_GAMES: Final = ("asterix", "breakout", "freeway", "seaquest", "space_invaders")
"""The five games of MinAtar."""


@dataclass(frozen=True)
class FamilySpec:
    """What holds for all environments of a family, known before one is made.

    Attributes:
        preset: the preset of a run that names none.
        games: the names of its games; None where any name may be given.
        has_large_frames: whether frames are images as large as Atari's; where it depends on the
            environment, as in Gymnasium, False.
        has_frame_limit: whether its environments take `max_episode_frames`.
        has_threads: whether its environments run emulators in `threads`.
        has_colour: whether its environments need `colour=True` to have screens.
        repeats_episodes: whether all of its environments are known to repeat an episode from its
            seed and actions; where they are not, a run checks it when it starts.
    """

    preset: str
    games: tuple[str, ...] | None = None
    has_large_frames: bool = False
    has_frame_limit: bool = True
    has_threads: bool = False
    has_colour: bool = False
    repeats_episodes: bool = True


FAMILIES: Final[dict[str, FamilySpec]] = {
    "atari": FamilySpec(
        "paper", ATARI_57, has_large_frames=True, has_threads=True, has_colour=True
    ),
    "minatar": FamilySpec("minatar", MINATAR_GAMES),
    "deep_sea": FamilySpec("classic", has_frame_limit=False),
    "gym": FamilySpec("classic", has_colour=True, repeats_episodes=False),
    "object": FamilySpec("classic", has_colour=True, repeats_episodes=False),
    "function": FamilySpec("classic", has_colour=True, repeats_episodes=False),
}
"""The families by name, the first segment of an environment's name.

Environments of the families object and function are passed in Python: the name, such as
"object/MyEnv", is what a run stores of them.
"""


def family_of(environment: str) -> FamilySpec:
    """The family of a valid environment name, such as "atari/pong"."""
    return FAMILIES[environment.partition("/")[0]]


def environment_folder(environment: str) -> str:
    """The folder of an environment's runs: its name without a colon, which Windows refuses."""
    return environment.replace(":", ".")


# Such as "ALE/Pong-v5", "PongNoFrameskip-v4", "Pong-ram-v0", "CartPole-v1" and "module:Mine-v0".
_GYMNASIUM_ID: Final = re.compile(
    r"(?:(?P<namespace>[\w:-]+)/)?(?P<game>[\w:.-]+?)(?:NoFrameskip|Deterministic|-ram)*"
    r"(?:-v(?P<version>\d+))?"
)


def name_of_gymnasium_id(environment_id: str) -> str | None:
    """The environment that a Gymnasium id stands for here; None if `environment_id` is no such id.

    "CartPole-v1" is "gym/CartPole-v1"; the ids of Atari games, such as "ALE/Pong-v5" and
    "PongNoFrameskip-v4", and of MinAtar's have families of their own.
    """
    match = _GYMNASIUM_ID.fullmatch(environment_id)
    if match is None:
        return None
    owner, game, version = match["namespace"], match["game"].lower(), match["version"]
    if owner is None and version is not None:
        owner = "ALE"  # older ids of the games have no namespace
    owners = {"ALE": ("atari", ATARI_57), "MinAtar": ("minatar", MINATAR_GAMES)}
    if owner in owners:
        family, games = owners[owner]
        known = {name.replace("_", ""): name for name in games}
        if game in known:
            return f"{family}/{known[game]}"
    return f"gym/{environment_id}" if version else None


def snake_case(word: str) -> str:
    """Return `word` in snake case: both "MsPacman" and "Ms Pacman" give "ms_pacman"."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[\s\-]+", "_", word.strip()).lower()


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return " Did you mean '…'?" with the known name nearest to `word`, or "" if none is near."""
    names = {name.lower(): name for name in known}
    for spelling in (word.lower(), snake_case(word)):
        near = difflib.get_close_matches(spelling, names, n=1, cutoff=0.6)
        if near:
            return f" Did you mean {names[near[0]]!r}?"
    return ""
