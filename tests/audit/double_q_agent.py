"""A small noisy double-Q agent that keeps the noise contract. Tests break one rule at a time."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from noisynet.audit import NoiseReport, audit_network
from noisynet.layers import NoisyLinear, resample_noise


def q_network(layer: Callable[..., nn.Module] = NoisyLinear, **options: Any) -> nn.Sequential:
    return nn.Sequential(layer(12, 10, **options), nn.ReLU(), layer(10, 6, **options))


class DoubleQAgent:
    def __init__(self, online: nn.Module) -> None:
        self.online, self.target = online, copy.deepcopy(online)
        self.evaluated = copy.deepcopy(online)
        self.optimiser = torch.optim.SGD(online.parameters(), lr=1e-3)
        self.streams = {
            role: torch.Generator().manual_seed(seed)
            for seed, role in enumerate(("act", "online", "target", "select", "eval"))
        }
        self.x = torch.randn(16, 12)

    def resample(self, network: nn.Module, role: str) -> None:
        resample_noise(network, self.streams[role])

    def act(self) -> None:
        self.resample(self.online, "act")
        self.online.eval()
        with torch.no_grad():
            self.online(self.x[:1])

    def select(self) -> Tensor:
        self.resample(self.online, "select")
        with torch.no_grad():
            chosen: Tensor = self.online(self.x).argmax(1, keepdim=True)
        return chosen

    def bootstrap(self, chosen: Tensor) -> Tensor:
        self.resample(self.target, "target")
        with torch.no_grad():
            values: Tensor = 1 + self.target(self.x).gather(1, chosen)
        return values

    def learn(self) -> None:
        self.online.train()
        target = self.bootstrap(self.select())
        self.resample(self.online, "online")
        loss = (self.online(self.x)[:, :1] - target).square().mean()
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()

    def sync(self) -> None:
        self.target.load_state_dict(self.online.state_dict())

    def evaluate(self) -> None:
        self.evaluated.load_state_dict(self.online.state_dict())
        self.resample(self.evaluated, "eval")
        with torch.no_grad():
            self.evaluated(self.x[:1])

    def audit(self, **options: Any) -> NoiseReport:
        training = {role: stream for role, stream in self.streams.items() if role != "eval"}
        defaults: dict[str, Any] = {"target": self.target, "act": self.act, "learn": self.learn}
        defaults |= {"evaluate": self.evaluate, "generators": training, "sync": self.sync}
        defaults["updates"] = 25  # enough samples for the statistical checks
        return audit_network(self.online, **(defaults | options))


class SelectorViewAgent(DoubleQAgent):
    """Selects with a view of the online network: the same parameters, but its own noise."""

    def __init__(self, online: nn.Module) -> None:
        super().__init__(online)
        shared = {id(parameter): parameter for parameter in online.parameters()}
        self.selector = copy.deepcopy(online, shared)

    def select(self) -> Tensor:
        self.resample(self.selector, "select")
        with torch.no_grad():
            chosen: Tensor = self.selector(self.x).argmax(1, keepdim=True)
        return chosen

    def audit(self, **options: Any) -> NoiseReport:
        return super().audit(**({"selector": self.selector} | options))
