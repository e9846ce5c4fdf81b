"""torchrl's DQN on atari/pong: torchrl_dqn.py UPDATE_PERIOD WARM_UP."""

from __future__ import annotations

import sys

import torch
from environments import pong
from tensordict.nn import TensorDictSequential
from torch import nn
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, ReplayBuffer
from torchrl.envs import GymWrapper
from torchrl.modules import MLP, ConvNet, EGreedyModule, QValueActor
from torchrl.objectives import DQNLoss, HardUpdate
from turn import Turns

update_period, warm_up = int(sys.argv[1]), int(sys.argv[2])


class Scale(nn.Module):
    """Bytes to [0, 1]."""

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """Observations of any shape."""
        return observation.float() / 255  # dividing bytes is slower


# Gymnasium's preprocessing keeps bytes in the replay; torchrl's own transforms make floats of them,
# four times as much memory to move.
environment = GymWrapper(pong(), categorical_action_encoding=True)
network = nn.Sequential(
    Scale(),
    ConvNet(
        in_features=4,
        num_cells=[32, 64, 64],
        kernel_sizes=[8, 4, 3],
        strides=[4, 2, 1],
        activation_class=nn.ReLU,
    ),
    MLP(
        in_features=3136,
        out_features=int(environment.action_spec.n),
        num_cells=[512],
        activation_class=nn.ReLU,
    ),
)
actor = QValueActor(network, spec=environment.action_spec, in_keys=["observation"])
explorer = EGreedyModule(
    environment.action_spec, eps_init=1.0, eps_end=0.1, annealing_num_steps=1_000
)
loss = DQNLoss(actor, loss_function="smooth_l1", delay_value=True)
loss.make_value_estimator(gamma=0.99)
target = HardUpdate(loss, value_network_update_interval=10_000 // update_period)  # in updates
optimiser = torch.optim.Adam(loss.parameters(), lr=1e-4)
replay = ReplayBuffer(storage=LazyTensorStorage(20_000), batch_size=32)
collector = Collector(
    environment,
    TensorDictSequential(actor, explorer),
    frames_per_batch=update_period,
    total_frames=-1,
    trust_policy=True,
    auto_register_policy_transforms=False,  # they are for recurrent networks
)
turns, step = Turns(warm_up + 200), 0
# Nothing is compiled, as with the other peers.
for steps in collector:
    replay.extend(steps)
    explorer.step(update_period)
    step += update_period
    if step > warm_up:
        optimiser.zero_grad()
        loss(replay.sample())["loss"].backward()
        optimiser.step()
        target.step()
    if not turns.step(update_period):
        break
collector.shutdown()
