"""Everything that decides the result of a run: typed, validated, frozen.

A configuration is the agent's settings of the papers, then a preset's differences, then the user's.
Nothing here imports torch, so that a bad command is refused at once.
"""

from noisynet.config.build import build_config, load_config, parse_count
from noisynet.config.errors import ConfigError
from noisynet.config.parts import (
    ActorCriticLearning,
    ActorCriticShape,
    Adam,
    CentredRMSProp,
    EntropyBonus,
    EpsilonGreedy,
    Evaluation,
    Learning,
    Network,
    NoisyRollouts,
    NoisyWeights,
    PrioritisedReplay,
    SharedRMSProp,
    UniformReplay,
)
from noisynet.config.run import (
    ACTOR_CRITIC_AGENTS,
    AGENTS,
    PRESETS,
    VALUE_AGENTS,
    ActorCriticAgentName,
    ActorCriticConfig,
    Config,
    PresetName,
    RunConfig,
    ValueAgentName,
)

__all__ = [
    "ACTOR_CRITIC_AGENTS",
    "AGENTS",
    "PRESETS",
    "VALUE_AGENTS",
    "ActorCriticAgentName",
    "ActorCriticConfig",
    "ActorCriticLearning",
    "ActorCriticShape",
    "Adam",
    "CentredRMSProp",
    "Config",
    "ConfigError",
    "EntropyBonus",
    "EpsilonGreedy",
    "Evaluation",
    "Learning",
    "Network",
    "NoisyRollouts",
    "NoisyWeights",
    "PresetName",
    "PrioritisedReplay",
    "RunConfig",
    "SharedRMSProp",
    "UniformReplay",
    "ValueAgentName",
    "build_config",
    "load_config",
    "parse_count",
]
