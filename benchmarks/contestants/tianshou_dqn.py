"""tianshou's DQN on atari/pong: tianshou_dqn.py UPDATE_PERIOD WARM_UP."""

from __future__ import annotations

import sys

import numpy as np
from environments import pong
from tianshou.algorithm import DQN
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.env.atari.atari_network import DQNet, ScaledObsInputActionReprNet
from tianshou.utils.torch_utils import policy_within_training_step
from turn import Turns

update_period, warm_up = int(sys.argv[1]), int(sys.argv[2])
# In this process: communicating with another one costs more than it saves.
environment = DummyVectorEnv([pong])
actions = environment.action_space[0]
# With a denominator of 32 bits NumPy does not divide in 64.
network = ScaledObsInputActionReprNet(DQNet(4, 84, 84, actions.n), denom=np.float32(255))
policy = DiscreteQLearningPolicy(model=network, action_space=actions, eps_training=1.0)
algorithm = DQN(
    policy=policy,
    optim=AdamOptimizerFactory(lr=1e-4),
    gamma=0.99,
    target_update_freq=10_000 // update_period,  # in updates
    is_double=False,
)
replay = VectorReplayBuffer(
    20_000, buffer_num=1, stack_num=4, ignore_obs_next=True, save_only_last_obs=True
)
collector = Collector(policy, environment, replay, exploration_noise=True)
collector.reset()
turns = Turns(warm_up + 200)
# A training step of its trainer, without the trainer: that one searches the whole replay for NaN
# after every collection.
while True:
    policy.set_eps_training(max(0.1, 1 - collector.collect_step / 1_000))
    with policy_within_training_step(policy):
        collector.collect(n_step=update_period)
        if collector.collect_step > warm_up:
            algorithm.update(replay, sample_size=32)
    if not turns.step(update_period):
        break
