"""Environments: vectors of N games, every episode determined by its seed and its actions.

Classes are imported on first use (PEP 562): checking the name of an environment must not import
numpy, Gymnasium or an emulator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noisynet.envs.make import (
    environment_name,
    make_environment,
    parse_environment,
    resolve_environment,
    screen_options,
)
from noisynet.envs.names import (
    ATARI_57,
    FAMILIES,
    MINATAR_GAMES,
    FamilySpec,
    environment_folder,
    family_of,
    name_of_gymnasium_id,
)
from noisynet.envs.sources import (
    EnvironmentLike,
    check_single,
    decode_function,
    encode_function,
)
from noisynet.lazy import lazy_attributes

if TYPE_CHECKING:
    from noisynet.envs.atari import AtariEnvironment
    from noisynet.envs.deep_sea import DeepSeaEnvironment
    from noisynet.envs.environment import (
        Environment,
        EnvironmentFailed,
        EnvironmentSpec,
        Step,
        episode_seed,
        repeats_episodes,
    )
    from noisynet.envs.gym import GymEnvironment
    from noisynet.envs.minatar import MinAtarEnvironment
    from noisynet.envs.raw_observations import ObservationReader
    from noisynet.envs.shared_object import release_object

__all__ = [
    "ATARI_57",
    "FAMILIES",
    "MINATAR_GAMES",
    "AtariEnvironment",
    "DeepSeaEnvironment",
    "Environment",
    "EnvironmentFailed",
    "EnvironmentLike",
    "EnvironmentSpec",
    "FamilySpec",
    "GymEnvironment",
    "MinAtarEnvironment",
    "ObservationReader",
    "Step",
    "check_single",
    "decode_function",
    "encode_function",
    "environment_folder",
    "environment_name",
    "episode_seed",
    "family_of",
    "make_environment",
    "name_of_gymnasium_id",
    "parse_environment",
    "release_object",
    "repeats_episodes",
    "resolve_environment",
    "screen_options",
]

__getattr__ = lazy_attributes(
    __name__,
    {
        "atari": ["AtariEnvironment"],
        "deep_sea": ["DeepSeaEnvironment"],
        "environment": [
            *("Environment", "EnvironmentFailed", "EnvironmentSpec", "Step"),
            *("episode_seed", "repeats_episodes"),
        ],
        "gym": ["GymEnvironment"],
        "minatar": ["MinAtarEnvironment"],
        "raw_observations": ["ObservationReader"],
        "shared_object": ["release_object"],
    },
)
