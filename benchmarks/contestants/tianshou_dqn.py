"""tianshou's DQN on atari/pong: tianshou_dqn.py UPDATE_PERIOD WARM_UP."""

from __future__ import annotations

import sys

import numpy as np
from pong import pong
from tianshou.algorithm import DQN
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.env.atari.atari_network import DQNet, ScaledObsInputActionReprNet
from tianshou.utils.torch_utils import policy_within_training_step
from turn import Turns

update_period, warm_up = int(sys.argv[1]), int(sys.argv[2])
# One environment in this process: one in another costs more to talk to than it saves.
game = DummyVectorEnv([pong])
actions = game.action_space[0]
# A denominator of 32 bits keeps NumPy from dividing in 64.
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
collector = Collector(policy, game, replay, exploration_noise=True)
collector.reset()
turns = Turns(warm_up + 200)
# What its trainer does of a training step, without the trainer: after every collection that one
# looks for NaN through the whole replay.
while True:
    policy.set_eps_training(max(0.1, 1 - collector.collect_step / 1_000))
    with policy_within_training_step(policy):
        collector.collect(n_step=update_period)
        if collector.collect_step > warm_up:
            algorithm.update(replay, sample_size=32)
    if not all(turns.step() for _ in range(update_period)):
        break
