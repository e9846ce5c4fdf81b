"""TorchRL's NoisyLinear in its DQNLoss, resampled after each update as its documentation says."""

from __future__ import annotations

from importlib import metadata

import torch
from audit_entry import ACTIONS, HIDDEN, INPUTS, audit_layer, hand_over
from tensordict import TensorDict
from torch import nn
from torchrl.envs.utils import ExplorationType, set_exploration_type
from torchrl.modules import NoisyLinear, QValueActor, reset_noise
from torchrl.objectives import DQNLoss, HardUpdate

from noisynet.audit import audit_network
from noisynet.integrations.torchrl import separate_passes

BATCH = 32
network = nn.Sequential(NoisyLinear(INPUTS, HIDDEN), nn.ReLU(), NoisyLinear(HIDDEN, ACTIONS))
actor = QValueActor(network, in_keys=["observation"], action_space="categorical")
loss = DQNLoss(actor, action_space="categorical", delay_value=True)
loss.make_value_estimator(gamma=0.99)
generator = torch.Generator().manual_seed(0)  # the data's, not that of training
updater = HardUpdate(loss, value_network_update_interval=1)
optimiser = torch.optim.Adam(loss.parameters(), 1e-4)


def observations(*shape: int) -> TensorDict:
    """Random observations."""
    return TensorDict({"observation": torch.randn(*shape, INPUTS, generator=generator)}, shape)


@torch.no_grad()
def act(exploration: ExplorationType) -> None:
    """Take one action."""
    with set_exploration_type(exploration):  # RANDOM in its collectors
        actor(observations(1))


def learn() -> None:
    """Make one update."""
    following = observations(BATCH)
    following["reward"] = torch.randn(BATCH, 1)
    for key in ("done", "terminated"):
        following[key] = torch.zeros(BATCH, 1, dtype=torch.bool)
    batch = observations(BATCH)
    batch["action"] = torch.randint(ACTIONS, (BATCH,))
    batch["next"] = following
    optimiser.zero_grad()
    loss(batch)["loss"].backward()
    optimiser.step()
    actor.apply(reset_noise)


# Passes of the audit's own, which nothing labels, are those of a collector.
with set_exploration_type(ExplorationType.RANDOM), separate_passes(loss) as networks:
    agent = audit_network(
        networks["online"],
        target=networks["target"],
        act=lambda: act(ExplorationType.RANDOM),
        learn=learn,
        evaluate=lambda: act(ExplorationType.DETERMINISTIC),
        sync=updater.step,
        contract="update",
        noise="factorised",
    )
with set_exploration_type(ExplorationType.RANDOM):
    layer = audit_layer(NoisyLinear, noise="factorised")
hand_over(
    metadata.version("torchrl"),
    layer=("`NoisyLinear`", "under `ExplorationType.RANDOM`, resampled by `reset_noise`", layer),
    agent=(
        "`DQNLoss` with `NoisyLinear`",
        "acts by `QValueActor` under `ExplorationType.RANDOM`, learns by `DQNLoss` and Adam, then "
        "`actor.apply(reset_noise)`; noise is due after every update",
        agent,
    ),
)
