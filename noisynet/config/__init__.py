"""The configuration of a run: typed, validated and frozen.

A configuration is made of the agent's settings, overridden by a preset, overridden by the user.
Nothing here imports torch, so that a bad command is refused quickly.
"""

from noisynet.config.agents import ACTOR_CRITIC_AGENTS, AGENT_SPECS, AGENTS, VALUE_AGENTS, AgentSpec
from noisynet.config.build import build_config, load_config, parse_count
from noisynet.config.compute import cxx_compiler, has_kernels, missing_for
from noisynet.config.errors import ConfigError
from noisynet.config.keywords import settings_from_keywords
from noisynet.config.run import (
    PRESETS,
    ActorCriticConfig,
    Config,
    RunConfig,
    has_large_convolutions,
)
from noisynet.config.sections import (
    ActorCriticLearning,
    Adam,
    CentredRMSProp,
    EntropyBonus,
    EpsilonGreedy,
    Learning,
    NoisyRollouts,
    NoisyWeights,
    PrioritisedReplay,
)

__all__ = [
    "ACTOR_CRITIC_AGENTS",
    "AGENTS",
    "AGENT_SPECS",
    "PRESETS",
    "VALUE_AGENTS",
    "ActorCriticConfig",
    "ActorCriticLearning",
    "Adam",
    "AgentSpec",
    "CentredRMSProp",
    "Config",
    "ConfigError",
    "EntropyBonus",
    "EpsilonGreedy",
    "Learning",
    "NoisyRollouts",
    "NoisyWeights",
    "PrioritisedReplay",
    "RunConfig",
    "build_config",
    "cxx_compiler",
    "has_kernels",
    "has_large_convolutions",
    "load_config",
    "missing_for",
    "parse_count",
    "settings_from_keywords",
]
