"""The settings of each agent and of each preset, as differences from the configuration's defaults.

Keys are dotted, as on the command line. The numbers that are the papers' own stand in `paper.py`.
"""

from __future__ import annotations

from typing import Any, Final

from noisynet import paper

DEFAULT_PRESETS: Final = {
    "atari": "paper",
    "minatar": "minatar",
    "deep_sea": "classic",
    "gym": "classic",
}
"""The preset that each family of environments has where none is asked for."""

DEFAULT_KINDS: Final = {"optimiser.kind": "centred-rmsprop", "replay.kind": "uniform"}
"""Of the parts that come in kinds, where nothing else is said."""

AGENT_SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "dqn": {"exploration.kind": "epsilon-greedy"},
    "noisynet-dqn": {"exploration.kind": "noisy-weights"},
    "dueling": {
        "exploration.kind": "epsilon-greedy",
        "exploration.final": paper.DUELING_EPSILON_FINAL,
        "exploration.evaluation": paper.DUELING_EPSILON_EVALUATION,
    },
    "noisynet-dueling": {"exploration.kind": "noisy-weights"},
    "a3c": {"exploration.kind": "entropy-bonus"},
    "noisynet-a3c": {"exploration.kind": "noisy-weights"},
    "noisynet-a3c-factorised": {
        "exploration.kind": "noisy-weights",
        "exploration.noise": "factorised",
    },
}
DUELING_SETTINGS: Final[dict[str, Any]] = {
    "network.dueling": True,
    "network.trunk_gradient_scale": paper.DUELING_TRUNK_GRADIENT_SCALE,
    "learning.double_q": True,
    "learning.sync_target_steps": paper.DUELING_SYNC_TARGET_STEPS,
    "learning.max_gradient_norm": paper.DUELING_MAX_GRADIENT_NORM,
    "optimiser.learning_rate": paper.DUELING_LEARNING_RATE,
}

# What each preset changes for the value agents; settings of ε-greedy exploration do not apply to
# noisy ones.
PRESET_SETTINGS: Final[dict[str, dict[str, Any]]] = {
    # A batch of a replay of a million steps that is four steps older is the same for learning.
    "paper": {"frames": paper.TRAINING_FRAMES, "learning.draws_ahead": True},
    # Young & Tian 2019, with ε of RMSProp outside the root there and inside here.
    "minatar": {
        "frames": 5_000_000,
        "network.hidden": (128,),
        "optimiser.learning_rate": 2.5e-4,
        "optimiser.epsilon": 1e-4,
        "replay.capacity_steps": 100_000,
        "learning.starts_steps": 5_000,
        "learning.sync_target_steps": 1_000,
        "learning.update_period_steps": 1,
        "learning.clip_rewards": False,
        "exploration.anneal_steps": 100_000,
        "exploration.evaluation": 0.0,
        "evaluation.period_frames": 100_000,
        "evaluation.frames": 20_000,
        "checkpoint_period_frames": 50_000,
    },
    "pong-fast": {
        "frames": 2_000_000,
        "optimiser.kind": "adam",
        "optimiser.learning_rate": 1e-4,
        "replay.capacity_steps": 100_000,
        "learning.starts_steps": 10_000,
        "learning.sync_target_steps": 1_000,
        "learning.update_period_steps": 1,
        "learning.draws_ahead": True,
        "exploration.anneal_steps": 100_000,
        "exploration.final": 0.01,
        "exploration.evaluation": 0.001,
        "evaluation.period_frames": 200_000,
        "evaluation.frames": 50_000,
    },
    # Small problems with flat observations.
    "classic": {
        "frames": 50_000,
        "network.hidden": (64, 64),
        "optimiser.kind": "adam",
        "optimiser.learning_rate": 1e-3,
        "replay.capacity_steps": 50_000,
        "learning.starts_steps": 200,
        "learning.sync_target_steps": 100,
        "learning.update_period_steps": 1,
        "learning.clip_rewards": False,
        "exploration.anneal_steps": 1_000,  # 2 % of the budget, as in the paper
        "exploration.final": 0.05,
        "exploration.evaluation": 0.0,
        "evaluation.period_frames": 5_000,
        "evaluation.frames": 2_500,
        "max_episode_frames": None,
        "checkpoint_period_frames": 10_000,
        "log_period_steps": 500,
    },
}

# What each preset changes for the actor-critic agents.
ACTOR_CRITIC_PRESETS: Final[dict[str, dict[str, Any]]] = {
    "paper": {"frames": paper.A3C_TRAINING_FRAMES},
    "minatar": {
        "frames": 5_000_000,
        "workers": 4,
        "envs_per_worker": 8,
        "network.hidden": (128,),
        "learning.clip_rewards": False,
        "learning.max_gradient_norm": 2.5,
        # With A3C's ε of 0.1, gradients of these small problems are all but invisible.
        "optimiser.learning_rate": 2e-3,
        "optimiser.epsilon": 1e-5,
        "evaluation.period_frames": 100_000,
        "evaluation.frames": 20_000,
        "checkpoint_period_frames": 50_000,
    },
    # Small problems with flat observations.
    "classic": {
        "frames": 200_000,
        "workers": 4,
        # Unclipped rewards make returns of hundreds: the value may not drown the policy in the
        # layers that they share, and only long and many roll-outs average the difference out.
        "envs_per_worker": 8,
        "network.hidden": (64, 64),
        "network.cells": 64,
        "learning.clip_rewards": False,
        "learning.rollout_steps": 20,
        "learning.value_weight": 0.1,
        "learning.max_gradient_norm": 5.0,
        "optimiser.learning_rate": 5e-3,
        "optimiser.epsilon": 1e-5,
        "evaluation.period_frames": 20_000,
        "evaluation.frames": 2_500,
        "max_episode_frames": None,
        "checkpoint_period_frames": 20_000,
        "log_period_steps": 500,
    },
}
