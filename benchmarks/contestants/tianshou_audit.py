"""Tianshou's NoisyLinear in its RainbowDQN, with the network of its own test of Rainbow."""

from __future__ import annotations

from importlib import metadata

import gymnasium
from audit_entry import ACTIONS, HIDDEN, INPUTS, audit_layer, hand_over
from tianshou.algorithm import RainbowDQN
from tianshou.algorithm.modelfree.c51 import C51Policy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.utils.net.common import Net
from tianshou.utils.net.discrete import NoisyLinear

from noisynet.integrations.tianshou import audit

stream = {"linear_layer": NoisyLinear}
network = Net(
    state_shape=INPUTS,
    action_shape=ACTIONS,
    hidden_sizes=(HIDDEN,),
    softmax=True,
    num_atoms=11,
    dueling_param=(stream, stream),
)
algorithm = RainbowDQN(
    policy=C51Policy(
        model=network,
        action_space=gymnasium.spaces.Discrete(ACTIONS),
        observation_space=gymnasium.spaces.Box(-1, 1, (INPUTS,)),
        num_atoms=11,
        v_min=-10,
        v_max=10,
    ),
    optim=AdamOptimizerFactory(lr=1e-4),
    target_update_freq=100,
)
hand_over(
    metadata.version("tianshou"),
    layer=(
        "`NoisyLinear`",
        "resampled by `sample`",
        audit_layer(NoisyLinear, noise="factorised"),
    ),
    agent=(
        "`RainbowDQN` with `NoisyLinear`",
        "acts through `Collector.collect` within a training step, learns by `update`, is tested by "
        "another collector; noise is due after every update",
        audit(algorithm, environments=1, contract="update"),
    ),
)
