"""TorchRL losses and training loops for the tests."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from noisynet.audit import NoiseLog

pytest.importorskip("torchrl", reason="pip install 'noisynet[torchrl]'")
pytest.importorskip("gymnasium", reason="pip install 'noisynet[gym]'")

import gymnasium
from tensordict import TensorDict
from torchrl import modules
from torchrl.data import LazyTensorStorage, ReplayBuffer
from torchrl.envs import GymWrapper
from torchrl.envs.utils import ExplorationType, set_exploration_type
from torchrl.modules import QValueActor
from torchrl.objectives import DQNLoss, SoftUpdate

from noisynet.integrations.torchrl import NoisyNetwork

from .deep_sea import DeepSea

with warnings.catch_warnings():  # importing the collectors warns of deprecated classes
    warnings.simplefilter("ignore", DeprecationWarning)
    from torchrl.collectors import Collector

INPUTS, ACTIONS, BATCH = 6, 3, 16


def network(inputs: int = INPUTS, actions: int = ACTIONS) -> nn.Module:
    return NoisyNetwork(nn.Sequential(nn.Linear(inputs, 32), nn.ReLU(), nn.Linear(32, actions)))


def torchrl_network(inputs: int = INPUTS, actions: int = ACTIONS) -> nn.Module:
    linear = modules.NoisyLinear
    return nn.Sequential(linear(inputs, 32), nn.ReLU(), linear(32, actions))


def make_loss(module: nn.Module, **options: Any) -> Any:
    actor = QValueActor(module, in_keys=["observation"], action_space="categorical")
    return DQNLoss(actor, action_space="categorical", **options)


def transitions() -> TensorDict:
    following = {
        "observation": torch.randn(BATCH, INPUTS),
        "reward": torch.randn(BATCH, 1),
        "done": torch.zeros(BATCH, 1, dtype=torch.bool),
        "terminated": torch.zeros(BATCH, 1, dtype=torch.bool),
    }
    action = torch.randint(ACTIONS, (BATCH,))
    fields = {"observation": torch.randn(BATCH, INPUTS), "action": action, "next": following}
    return TensorDict(fields, [BATCH])


def sigmas(module: nn.Module) -> list[Tensor]:
    return [p for name, p in module.named_parameters() if "sigma" in name]


def counts(log: NoiseLog, label: str, **selected: Any) -> tuple[int, int, int]:
    """Passes, noisy passes and distinct noise samples."""
    events = log.select(label, **selected)
    distinct = {(event.network, event.layer, event.sample_index) for event in events if event.noisy}
    return len(events), sum(event.noisy for event in events), len(distinct)


class Training:
    """DQN as in TorchRL's examples: collector, replay buffer, loss, optimiser, target updater."""

    def __init__(
        self,
        environment: Any,
        module: nn.Module,
        lr: float = 1e-3,
        tau: float = 0.02,
        **options: Any,
    ) -> None:
        self.environment = environment
        spec = environment.action_spec_unbatched
        self.actor = QValueActor(module, spec=spec, in_keys=["observation"])
        self.loss = DQNLoss(self.actor, loss_function="l2", **options)
        self.loss.make_value_estimator(gamma=0.99)
        self.updater = SoftUpdate(self.loss, tau=tau)
        self.optimiser = torch.optim.Adam(self.loss.parameters(), lr=lr)
        self.replay = ReplayBuffer(storage=LazyTensorStorage(10_000), batch_size=32)
        self.log: NoiseLog | None = None
        self.after_update: Callable[[], object] = lambda: None

    def label(self, label: str) -> None:
        if self.log is not None:
            self.log.label = label

    def run(self, frames: int, frames_per_batch: int, updates: int = 1, start: int = 32) -> None:
        collector = Collector(
            self.environment,
            self.actor,
            frames_per_batch=frames_per_batch,
            total_frames=frames,
            auto_register_policy_transforms=False,
        )
        self.label("acting")
        for steps in collector:
            self.replay.extend(steps.reshape(-1))
            self.label("learning")
            for _ in range(updates if len(self.replay) >= start else 0):
                self.optimiser.zero_grad()
                self.loss(self.replay.sample())["loss"].backward()
                self.optimiser.step()
                self.updater.step()
                self.after_update()
            self.label("acting")
        collector.shutdown(close_env=False)

    @torch.no_grad()
    def evaluate(self, steps: int) -> float:
        with set_exploration_type(ExplorationType.DETERMINISTIC):
            played = self.environment.rollout(steps, self.actor)
        return float(played["next", "reward"].sum())


def cart_pole() -> Any:
    environment = GymWrapper(gymnasium.make("CartPole-v1"), categorical_action_encoding=True)
    environment.set_seed(1)
    return environment


def deep_sea(size: int) -> Any:
    return GymWrapper(DeepSea(size), categorical_action_encoding=True)
