"""Facts of the papers, each with where it stands. Nothing here is a choice of ours.

Units: a *step* is one action of the agent; a *frame* is one frame of the emulator. With frame skip
4 a step is 4 frames. "Nature" is Mnih et al. 2015, "Dueling" Wang et al. 2016, "A3C" Mnih et al.
2016, "NoisyNet" the paper that this package implements.
"""

from __future__ import annotations

from typing import Final

# --- DQN: Nature, extended data table 1 ----------------------------------------------------------
FRAME_SKIP: Final = 4
STACKED_FRAMES: Final = 4
NATURE_HIDDEN: Final = 512  # methods, "model architecture"
BATCH_SIZE: Final = 32
REPLAY_STEPS: Final = 1_000_000
LEARNING_STARTS_STEPS: Final = 50_000
UPDATE_PERIOD_STEPS: Final = 4
SYNC_TARGET_STEPS: Final = 10_000
DISCOUNT: Final = 0.99
EPSILON_INITIAL: Final = 1.0
EPSILON_FINAL: Final = 0.1
EPSILON_ANNEAL_STEPS: Final = 1_000_000
EPSILON_EVALUATION: Final = 0.05
NOOP_MAX: Final = 30

# Centred RMSProp of Nature's released code: Δ = lr·d/√(v − g² + 0.01), d summed over the batch.
RMSPROP_LEARNING_RATE: Final = 2.5e-4
RMSPROP_DECAY: Final = 0.95
RMSPROP_EPSILON: Final = 0.01

# --- Dueling, section 4.2 and appendix; the exploration schedule of its baseline ("tuned" DDQN) --
DUELING_LEARNING_RATE: Final = 6.25e-5  # stated for the prioritised variant only
DUELING_TRUNK_GRADIENT_SCALE: Final = 2**-0.5  # "we rescale the combined gradient entering the
# last convolutional layer in the backward pass by 1/√2"
DUELING_MAX_GRADIENT_NORM: Final = 10.0
DUELING_SYNC_TARGET_STEPS: Final = 30_000  # van Hasselt et al. 2016, tuned double DQN
DUELING_EPSILON_FINAL: Final = 0.01
DUELING_EPSILON_EVALUATION: Final = 0.001

# --- A3C, section 8 of its supplement ("experimental setup") unless said otherwise ---------------
A3C_WORKERS: Final = 16
A3C_ROLLOUT_STEPS: Final = 5  # t_max
A3C_ENTROPY_WEIGHT: Final = 0.01  # β
A3C_HIDDEN: Final = 256  # after 16 filters of 8×8/4 and 32 of 4×4/2
A3C_LSTM_CELLS: Final = 256
# Shared RMSProp, section 4: Δ = lr·d/√(v + ε), without momentum and without centring.
A3C_RMSPROP_DECAY: Final = 0.99
A3C_RMSPROP_EPSILON: Final = 0.1  # by e-mail of the authors, as most reproductions have it
A3C_LEARNING_RATE: Final = 7e-4  # likewise; the paper samples LogUniform(1e-4, 1e-2)
A3C_VALUE_WEIGHT: Final = 0.5  # likewise: the gradient of the value loss is halved
A3C_MAX_GRADIENT_NORM: Final = 40.0  # of reproductions; the paper's own threshold is unreported

# --- NoisyNet ------------------------------------------------------------------------------------
SIGMA0_FACTORISED: Final = 0.5  # section 3.2
SIGMA0_INDEPENDENT: Final = 0.017  # section 3.2
TRAINING_FRAMES: Final = 200_000_000  # section 4.1, DQN and Dueling
A3C_TRAINING_FRAMES: Final = 320_000_000  # section 4.1, A3C
EVALUATION_PERIOD_FRAMES: Final = 1_000_000  # section 4.1
EVALUATION_FRAMES: Final = 500_000  # section 4.1
MAX_EPISODE_FRAMES: Final = 108_000  # section 4.1: 30 minutes of play
SEEDS: Final = 3  # section 4.1
