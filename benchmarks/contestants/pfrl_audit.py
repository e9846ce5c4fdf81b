"""pfrl's FactorizedNoisyLinear in CategoricalDoubleDQN, as its reproduction of Rainbow has it.

The network is small and fully connected; `to_factorized_noisy` makes it noisy.
"""

from __future__ import annotations

from importlib import metadata

import numpy as np
import pfrl
import torch
from audit_entry import ACTIONS, HIDDEN, INPUTS, audit_layer, hand_over, without_held
from pfrl.q_functions import DistributionalFCStateQFunctionWithDiscreteAction
from torch import nn

from noisynet.audit import audit_network

PERIOD = 4
data = np.random.default_rng(0)
network = DistributionalFCStateQFunctionWithDiscreteAction(
    INPUTS, ACTIONS, 11, -10, 10, n_hidden_channels=HIDDEN, n_hidden_layers=1
)
pfrl.nn.to_factorized_noisy(network, sigma_scale=0.5)
agent = pfrl.agents.CategoricalDoubleDQN(
    network,
    torch.optim.Adam(network.parameters(), 1e-4),
    pfrl.replay_buffers.PrioritizedReplayBuffer(
        1_000, alpha=0.5, beta0=0.4, betasteps=2_000, num_steps=3, normalize_by_max="memory"
    ),
    gamma=0.99,
    explorer=pfrl.explorers.Greedy(),
    gpu=-1,
    replay_start_size=63,  # the warm-up below stores 62 transitions of 3 steps
    minibatch_size=32,
    update_interval=PERIOD,
    target_update_interval=8_000,
    batch_accumulator="mean",
)
waiting = False


def observation() -> np.ndarray:
    """A random observation."""
    return data.standard_normal(INPUTS, dtype=np.float32)


def observe() -> None:
    """Store the last transition; every fourth time, learn."""
    global waiting
    agent.observe(observation(), float(data.standard_normal()), False, False)
    waiting = False


def act() -> None:
    """Take one action."""
    global waiting
    if waiting:
        observe()
    agent.act(observation())
    waiting = True


def evaluate() -> None:
    """Act as in an evaluation."""
    with agent.eval_mode():
        for _ in range(5):
            agent.act(observation())


for _ in range(16 * PERIOD):  # from here on, every fourth `observe` makes an update
    act()
    observe()
report = audit_network(
    agent.model,
    target=agent.target_model,
    act=act,
    learn=observe,
    evaluate=evaluate,
    sync=agent.sync_target_network,
    noise="factorised",
)
hand_over(
    metadata.version("pfrl"),
    layer=(
        "`FactorizedNoisyLinear`",
        "draws in every pass",
        without_held(
            audit_layer(
                lambda p, q: pfrl.nn.FactorizedNoisyLinear(nn.Linear(p, q)), noise="factorised"
            )
        ),
    ),
    agent=(
        "`CategoricalDoubleDQN` after `to_factorized_noisy`",
        "acts by `act`, learns by `observe`, is evaluated in `eval_mode`; noise is due before "
        "every action",
        report,
    ),
)
