"""The settings of each agent and of each preset, as differences from the configuration's defaults.

Keys are dotted, as on the command line. The papers' numbers are in `paper.py`; numbers here are our
own choice for small problems.
"""

from __future__ import annotations

from typing import Any, Final

from noisynet import paper

_VALUE: Final = {"optimiser.kind": "centred-rmsprop", "replay.kind": "uniform"}
_EPSILON_GREEDY: Final = {"exploration.kind": "epsilon-greedy"}
_NOISY: Final = {"exploration.kind": "noisy-weights"}
_DUELING: Final[dict[str, Any]] = {
    "network.dueling": True,
    "network.trunk_gradient_scale": paper.DUELING_TRUNK_GRADIENT_SCALE,
    "learning.double_q": True,
    "learning.sync_target_steps": paper.DUELING_SYNC_TARGET_STEPS,
    "learning.max_gradient_norm": paper.DUELING_MAX_GRADIENT_NORM,
    "optimiser.learning_rate": paper.DUELING_LEARNING_RATE,
}

# The paper's observations, for environments of Gymnasium that show images in colour.
_PIXELS: Final[dict[str, Any]] = {
    "environment_options.resize": paper.FRAME_SIZE,
    "environment_options.greyscale": True,
    "environment_options.frame_stack": paper.STACKED_FRAMES,
    "max_episode_frames": None,
}

_CATEGORICAL: Final = {
    "optimiser.kind": "adam",
    "optimiser.learning_rate": paper.C51_LEARNING_RATE,
    "optimiser.epsilon": paper.C51_ADAM_EPSILON,
    "replay.kind": "uniform",
    "network.atoms": paper.C51_ATOMS,
}
_RAINBOW: Final[dict[str, Any]] = _CATEGORICAL | {
    "optimiser.learning_rate": paper.RAINBOW_LEARNING_RATE,
    "optimiser.epsilon": paper.RAINBOW_ADAM_EPSILON,
    "network.dueling": True,
    "replay.kind": "prioritised",
    "replay.alpha": paper.RAINBOW_PRIORITY_EXPONENT,
    "replay.beta_initial": paper.RAINBOW_PRIORITY_BETA_INITIAL,
    "learning.double_q": True,
    "learning.n_step": paper.RAINBOW_N_STEP,
    "learning.starts_steps": paper.RAINBOW_LEARNING_STARTS_STEPS,
    "learning.sync_target_steps": paper.RAINBOW_SYNC_TARGET_STEPS,
    "learning.max_gradient_norm": paper.RAINBOW_MAX_GRADIENT_NORM,
}

AGENT_SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "dqn": _VALUE | _EPSILON_GREEDY,
    "noisynet-dqn": _VALUE | _NOISY,
    "dueling": _VALUE
    | _DUELING
    | _EPSILON_GREEDY
    | {
        "exploration.final": paper.DUELING_EPSILON_FINAL,
        "exploration.evaluation": paper.DUELING_EPSILON_EVALUATION,
    },
    "noisynet-dueling": _VALUE | _DUELING | _NOISY,
    "c51": _CATEGORICAL
    | _EPSILON_GREEDY
    | {
        "exploration.anneal_steps": paper.C51_EPSILON_ANNEAL_STEPS,
        "exploration.final": paper.C51_EPSILON_FINAL,
        "exploration.evaluation": paper.C51_EPSILON_EVALUATION,
    },
    "noisynet-c51": _CATEGORICAL | _NOISY,
    "rainbow": _RAINBOW | _NOISY,
    "rainbow-without-noise": _RAINBOW
    | _EPSILON_GREEDY
    | {
        "exploration.anneal_steps": paper.RAINBOW_EPSILON_ANNEAL_STEPS,
        "exploration.final": paper.RAINBOW_EPSILON_FINAL,
        "exploration.evaluation": paper.C51_EPSILON_EVALUATION,
    },
    "a3c": {"exploration.kind": "entropy-bonus"},
    "noisynet-a3c": _NOISY,
    "noisynet-a3c-factorised": _NOISY | {"exploration.noise": "factorised"},
}

# Young & Tian (2019).
_MINATAR: Final[dict[str, Any]] = {
    "frames": paper.MINATAR_FRAMES,
    "network.hidden": (paper.MINATAR_HIDDEN,),
    "optimiser.learning_rate": paper.MINATAR_LEARNING_RATE,
    "optimiser.epsilon": paper.MINATAR_RMSPROP_EPSILON**2,
    "replay.capacity_steps": paper.MINATAR_REPLAY_STEPS,
    "learning.starts_steps": paper.MINATAR_LEARNING_STARTS_STEPS,
    "learning.sync_target_steps": paper.MINATAR_SYNC_TARGET_STEPS,
    "learning.update_period_steps": paper.MINATAR_UPDATE_PERIOD_STEPS,
    "learning.clip_rewards": False,
    "exploration.anneal_steps": paper.MINATAR_EPSILON_ANNEAL_STEPS,
    "exploration.evaluation": 0.0,
    "evaluation.period_frames": 100_000,
    "evaluation.frames": 20_000,
    "checkpoint_period_frames": 50_000,
}

# Small problems with vectors as observations.
_CLASSIC: Final[dict[str, Any]] = {
    "frames": 50_000,
    "network.hidden": (64, 64),
    "optimiser.kind": "adam",
    "optimiser.learning_rate": 1e-3,
    "replay.capacity_steps": 50_000,
    "learning.starts_steps": 200,
    "learning.sync_target_steps": 100,
    "learning.update_period_steps": 1,
    "learning.clip_rewards": False,
    "exploration.anneal_steps": 1_000,  # 2 % of the budget, as on Atari
    "exploration.final": 0.05,
    "exploration.evaluation": 0.0,
    "evaluation.period_frames": 5_000,
    "evaluation.frames": 2_500,
    "max_episode_frames": None,
    "checkpoint_period_frames": 10_000,
    "log_period_steps": 500,
}
# Found for noisynet-dqn by the searches `noisynet sweep results/searches/<name>/plan.toml`.
_CARTPOLE: Final[dict[str, Any]] = {
    "optimiser.learning_rate": 2.63e-3,
    "learning.loss": "squared",
    "learning.double_q": True,
    "learning.batch_size": 64,
    "learning.sync_target_steps": 50,
}
_ACROBOT: Final[dict[str, Any]] = {
    "optimiser.learning_rate": 4.42e-4,
    "learning.n_step": 3,
    "learning.sync_target_steps": 92,
}
_MINATAR_FAST: Final[dict[str, Any]] = {
    "optimiser.learning_rate": 8.78e-4,
    "learning.loss": "squared",
    "learning.sync_target_steps": 251,
}

# For the value agents. Settings of ε-greedy exploration are not applied to noisy agents.
VALUE_PRESETS: Final[dict[str, dict[str, Any]]] = {
    "paper": {"frames": paper.TRAINING_FRAMES},
    "minatar": _MINATAR,
    "minatar-fast": _MINATAR | _MINATAR_FAST,
    "pong-fast": {
        "frames": 2_000_000,
        "optimiser.kind": "adam",
        "optimiser.learning_rate": 1e-4,
        "replay.capacity_steps": 100_000,
        "learning.starts_steps": 10_000,
        "learning.sync_target_steps": 1_000,
        "learning.update_period_steps": 1,
        "exploration.anneal_steps": 100_000,
        "exploration.final": 0.01,
        "exploration.evaluation": 0.001,
        "evaluation.period_frames": 200_000,
        "evaluation.frames": 50_000,
    },
    # Gymnasium's images. Every step is one frame, and rewards are clipped as the paper's.
    "pixels": _PIXELS
    | {
        "frames": 1_000_000,
        "optimiser.kind": "adam",
        "optimiser.learning_rate": 1e-4,
        "replay.capacity_steps": 100_000,
        "learning.starts_steps": 10_000,
        "learning.sync_target_steps": 1_000,
        "exploration.anneal_steps": 100_000,
        "exploration.final": 0.01,
        "exploration.evaluation": 0.001,
        "evaluation.period_frames": 50_000,
        "evaluation.frames": 12_500,
        "checkpoint_period_frames": 10_000,
    },
    "classic": _CLASSIC,
    "cartpole": _CLASSIC | _CARTPOLE,
    "acrobot": _CLASSIC | _ACROBOT,
}

PRESETS_OF_NAMES: Final = {"gym/CartPole": "cartpole", "gym/Acrobot": "acrobot"}
"""Environments with a preset of their own for agents with Q-values, by name without version."""

# A return of 1 per step is at most 100 with a discount of 0.99.
_CLASSIC_ATOMS: Final = {"network.v_min": -100.0, "network.v_max": 100.0}
_MINATAR_ATOMS: Final = {
    "network.v_min": -25.0,
    "network.v_max": 25.0,
    "optimiser.epsilon": paper.C51_ADAM_EPSILON,  # not RMSProp's, which the preset has
}
_DEFAULT_LOSS: Final = {"learning.loss": "huber"}  # read by Q-values only: theirs is cross-entropy
# For the value agents with distributions over returns, after the settings above. Rewards are not
# clipped. The ranges are symmetric, so that the values of a new network are near 0.
CATEGORICAL_PRESETS: Final[dict[str, dict[str, Any]]] = {
    "minatar": _MINATAR_ATOMS,
    "minatar-fast": _MINATAR_ATOMS | _DEFAULT_LOSS,
    "classic": _CLASSIC_ATOMS,
    "acrobot": _CLASSIC_ATOMS,
    "cartpole": _CLASSIC_ATOMS | _DEFAULT_LOSS,
}

# For the actor-critic agents.
ACTOR_CRITIC_PRESETS: Final[dict[str, dict[str, Any]]] = {
    "paper": {"frames": paper.A3C_TRAINING_FRAMES},
    "minatar": {
        "frames": paper.MINATAR_FRAMES,
        "workers": 4,
        "envs_per_worker": 8,
        "network.hidden": (paper.MINATAR_HIDDEN,),
        "learning.clip_rewards": False,
        "learning.max_gradient_norm": 7.0,
        # A3C's ε of 0.1 is much larger than the squared gradients of these small problems.
        "optimiser.epsilon": 8e-5,
        "evaluation.period_frames": 100_000,
        "evaluation.frames": 20_000,
        "checkpoint_period_frames": 50_000,
    },
    # Two conditions of learning Pong in a few million frames with batched workers: roll-outs long
    # enough that a point's return reaches the action, and images whose background is 0. Else the
    # value's first errors, which are the same on every pixel, silence the first convolution.
    # With a mean square of 0 and so small an ε, the first steps would be ten times as long as the
    # rate, after which a noisy agent, which has no entropy bonus, does not learn.
    "pong-fast": {
        "frames": 8_000_000,
        "workers": 2,
        "envs_per_worker": 8,
        "network.torso": "a3c",
        "network.initial_weights": "orthogonal",
        "network.centre_images": True,
        "learning.rollout_steps": 20,
        "learning.max_gradient_norm": 10.0,
        "optimiser.learning_rate": 3e-4,
        "optimiser.epsilon": 1e-7,
        "optimiser.initial_square": 1.0,
        "evaluation.period_frames": 500_000,
        "evaluation.frames": 25_000,
    },
    # Gymnasium's images. Every step is one frame, and rewards are clipped as the paper's.
    "pixels": _PIXELS
    | {
        "frames": 4_000_000,
        "workers": 4,
        "evaluation.period_frames": 200_000,
        "evaluation.frames": 12_500,
        "checkpoint_period_frames": 100_000,
    },
    # Small problems with vectors as observations.
    "classic": {
        "frames": 200_000,
        "workers": 4,
        # Rewards are not clipped, so returns reach hundreds. A smaller weight of the value loss and
        # longer, averaged roll-outs keep its gradient from dominating the shared layers.
        "envs_per_worker": 8,
        "network.hidden": (64, 64),
        "network.cells": 64,
        "learning.clip_rewards": False,
        "learning.rollout_steps": 20,
        "learning.value_weight": 0.1,
        "learning.max_gradient_norm": 14.0,
        "optimiser.learning_rate": 1.75e-3,
        "optimiser.epsilon": 8e-5,
        "evaluation.period_frames": 20_000,
        "evaluation.frames": 2_500,
        "max_episode_frames": None,
        "checkpoint_period_frames": 20_000,
        "log_period_steps": 500,
    },
}

PRESETS_OF_FAMILY: Final = {"value": VALUE_PRESETS, "actor-critic": ACTOR_CRITIC_PRESETS}
"""The presets of each family of agents."""
