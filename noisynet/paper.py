"""The papers' numbers. Each line ends with its source.

Marks of the sources:
    P  stated in "Noisy Networks for Exploration" (Fortunato et al. 2018).
    O  stated in the original paper of the agent or environment, or taken from its released code.
    E  from an e-mail of A3C's authors that most reproductions quote.
    R  from reproductions: the papers do not state it.
    D  our decision, where the sources conflict or leave it open.

Units: a *step* is one action of the agent, a *frame* is one frame of the emulator. With frame skip
4, a step is 4 frames. A convolution is (filters, kernel, stride, padding).
"""

from __future__ import annotations

from typing import Final

Convolutions = tuple[tuple[int, int, int, int], ...]
"""One (filters, kernel, stride, padding) per layer."""

# --- DQN (Mnih et al. 2015, "Nature") ------------------------------------------------------------
FRAME_SKIP: Final = 4  # O: extended data table 1, "action repeat"
STACKED_FRAMES: Final = 4  # O: extended data table 1, "agent history length"
FRAME_SIZE: Final = 84  # O: methods, "preprocessing": 84×84
NATURE_CONVOLUTIONS: Final[Convolutions] = (
    (32, 8, 4, 0),  # O: methods, "model architecture"
    (64, 4, 2, 0),  # O: likewise
    (64, 3, 1, 0),  # O: likewise
)
NATURE_HIDDEN: Final = 512  # O: methods, "model architecture"
BATCH_SIZE: Final = 32  # O: extended data table 1
REPLAY_STEPS: Final = 1_000_000  # O: extended data table 1
LEARNING_STARTS_STEPS: Final = 50_000  # O: extended data table 1
UPDATE_PERIOD_STEPS: Final = 4  # O: extended data table 1; the NoisyNet text has 1
SYNC_TARGET_STEPS: Final = 10_000  # D: the released code; the table counts 10k updates (40k steps)
DISCOUNT: Final = 0.99  # O: extended data table 1
EPSILON_INITIAL: Final = 1.0  # O: extended data table 1
EPSILON_FINAL: Final = 0.1  # O: extended data table 1
EPSILON_ANNEAL_STEPS: Final = 1_000_000  # O: extended data table 1
EPSILON_EVALUATION: Final = 0.05  # O: methods, "evaluation procedure"
NOOP_MAX: Final = 30  # O: extended data table 1
# Centred RMSProp: Δ = lr·d/√(v − g² + ε) with d summed over the batch.
RMSPROP_LEARNING_RATE: Final = 2.5e-4  # O: extended data table 1
RMSPROP_DECAY: Final = 0.95  # O: extended data table 1, both "momenta"
RMSPROP_EPSILON: Final = 0.01  # O: extended data table 1; inside the root in the released code

# --- Dueling, the "duel clip" agent (Wang et al. 2016) -------------------------------------------
DUELING_LEARNING_RATE: Final = 6.25e-5  # D: stated for the prioritised agent only
DUELING_TRUNK_GRADIENT_SCALE: Final = 2**-0.5  # O: section 4.2
DUELING_MAX_GRADIENT_NORM: Final = 10.0  # O: section 4.2
DUELING_SYNC_TARGET_STEPS: Final = 30_000  # O: van Hasselt et al. 2016, tuned double DQN
DUELING_EPSILON_FINAL: Final = 0.01  # O: van Hasselt et al. 2016, tuned double DQN
DUELING_EPSILON_EVALUATION: Final = 0.001  # O: van Hasselt et al. 2016, tuned double DQN

# --- A3C (Mnih et al. 2016) ----------------------------------------------------------------------
A3C_WORKERS: Final = 16  # O: supplement 8
A3C_ROLLOUT_STEPS: Final = 5  # O: supplement 8, t_max
A3C_ENTROPY_WEIGHT: Final = 0.01  # O: supplement 8, β
A3C_CONVOLUTIONS: Final[Convolutions] = (
    (16, 8, 4, 0),  # O: supplement 8, of its speed studies; its 57 games have Nature's
    (32, 4, 2, 0),  # O: likewise
)
A3C_HIDDEN: Final = 256  # O: supplement 8, after the two convolutions above
A3C_LSTM_CELLS: Final = 256  # O: section 5.1
# Shared RMSProp: Δ = lr·d/√(v + ε), without momentum and without centring.
A3C_RMSPROP_DECAY: Final = 0.99  # O: supplement 8
A3C_RMSPROP_EPSILON: Final = 0.1  # E
A3C_LEARNING_RATE: Final = 7e-4  # E: the paper samples it from LogUniform(1e-4, 1e-2)
A3C_VALUE_WEIGHT: Final = 0.5  # E: multiplies ½(Q̂ − V)²
A3C_MAX_GRADIENT_NORM: Final = 40.0  # R: the paper clips, but does not report the threshold

# --- NoisyNet ------------------------------------------------------------------------------------
SIGMA0_FACTORISED: Final = 0.5  # P: section 3.2
SIGMA0_INDEPENDENT: Final = 0.017  # P: section 3.2
TRAINING_FRAMES: Final = 200_000_000  # P: section 4.1, DQN; D for Dueling, which is not stated
A3C_TRAINING_FRAMES: Final = 320_000_000  # P: section 4.1
EVALUATION_PERIOD_FRAMES: Final = 1_000_000  # P: section 4.1
EVALUATION_FRAMES: Final = 500_000  # P: section 4.1
MAX_EPISODE_FRAMES: Final = 108_000  # P: section 4.1, 30 minutes of play
SEEDS: Final = 3  # P: section 4.1

# --- C51 (Bellemare et al. 2017) -----------------------------------------------------------------
C51_ATOMS: Final = 51  # O: section 5
C51_VALUE_LIMIT: Final = 10.0  # O: section 5: V_max = −V_min
C51_LEARNING_RATE: Final = 2.5e-4  # O: section 5, Adam
C51_ADAM_EPSILON: Final = 0.01 / 32  # O: section 5
C51_EPSILON_ANNEAL_STEPS: Final = 250_000  # O: section 5: 1M frames
C51_EPSILON_FINAL: Final = 0.01  # O: section 5
C51_EPSILON_EVALUATION: Final = 0.001  # O: section 5

# --- Rainbow (Hessel et al. 2018) ----------------------------------------------------------------
RAINBOW_LEARNING_RATE: Final = 6.25e-5  # O: table 1, Adam
RAINBOW_ADAM_EPSILON: Final = 1.5e-4  # O: table 1
RAINBOW_LEARNING_STARTS_STEPS: Final = 20_000  # O: table 1: 80k frames
RAINBOW_SYNC_TARGET_STEPS: Final = 8_000  # O: table 1: 32k frames
RAINBOW_N_STEP: Final = 3  # O: table 1
RAINBOW_PRIORITY_EXPONENT: Final = 0.5  # O: table 1, ω
RAINBOW_PRIORITY_BETA_INITIAL: Final = 0.4  # O: table 1, to 1 over training
RAINBOW_MAX_GRADIENT_NORM: Final = 10.0  # R: as for Dueling; the paper states none
RAINBOW_EPSILON_ANNEAL_STEPS: Final = 62_500  # O: section "hyper-parameter tuning": 250k frames
RAINBOW_EPSILON_FINAL: Final = 0.01  # O: likewise, without noisy nets

# --- Prioritised replay (Schaul et al. 2016) and Adam (Kingma & Ba 2015) -------------------------
PRIORITY_EXPONENT: Final = 0.6  # O: table 3, α of the proportional variant
PRIORITY_BETA_INITIAL: Final = 0.4  # O: table 3, β0 of the proportional variant
ADAM_EPSILON: Final = 1e-8  # O: algorithm 1

# --- MinAtar (Young & Tian 2019), DQN ------------------------------------------------------------
MINATAR_CONVOLUTIONS: Final[Convolutions] = ((16, 3, 1, 0),)  # O: the paper
MINATAR_HIDDEN: Final = 128  # O: the paper
MINATAR_FRAMES: Final = 5_000_000  # O: the paper
MINATAR_REPLAY_STEPS: Final = 100_000  # O: released code
MINATAR_LEARNING_STARTS_STEPS: Final = 5_000  # O: released code
MINATAR_SYNC_TARGET_STEPS: Final = 1_000  # O: released code
MINATAR_UPDATE_PERIOD_STEPS: Final = 1  # O: released code
MINATAR_EPSILON_ANNEAL_STEPS: Final = 100_000  # O: released code
MINATAR_LEARNING_RATE: Final = 2.5e-4  # O: released code
MINATAR_RMSPROP_EPSILON: Final = 0.01  # O: released code, outside the root: ε² is inside
MINATAR_STICKY_ACTIONS: Final = 0.1  # O: the paper, probability

# --- Deep Sea (Osband et al. 2019, bsuite) -------------------------------------------------------
DEEP_SEA_MOVE_COST: Final = 0.01  # O: released code, divided by the size
DEEP_SEA_MAPPING_SEED: Final = 42  # O: released code
