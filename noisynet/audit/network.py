"""The audit of an agent given by its networks and functions that act, learn and evaluate."""

from __future__ import annotations

import difflib
import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import get_args

import torch
from torch import Tensor, nn

from noisynet.audit import checks
from noisynet.audit.checks import ACTIONS_PER_UPDATE, Contract
from noisynet.audit.detect import DetectedLayer, find_noisy_layers, require_noisy_layers
from noisynet.audit.log import NoiseLog
from noisynet.audit.record import record_noise
from noisynet.audit.report import Check, NoiseReport
from noisynet.layers import Noise
from noisynet.layers.arguments import check_choice, check_size


def audit_network(
    module: nn.Module,
    *,
    target: nn.Module | None = None,
    selector: nn.Module | None = None,
    acting: nn.Module | None = None,
    act: Callable[[], object] | None = None,
    learn: Callable[[], object] | None = None,
    evaluate: Callable[[], object] | None = None,
    sync: Callable[[], object] | None = None,
    contract: Contract = "action",
    noise: Noise | None = None,
    generators: Mapping[str, torch.Generator] | None = None,
    updates: int = 100,
) -> NoiseReport:
    """Check that an agent keeps the noise contract.

    Noisy layers are detected by their parameters: one whose name contains "sigma" and one with "mu"
    in its place. The agent is run and trained, so pass a copy if it must not change.

    Without `act` and `learn`, only the layers are checked: they are resampled by their own method.

    Args:
        module: the online network.
        target: the target network, if any.
        selector: the network that selects actions for double Q-learning, if not `module` itself.
        acting: the network that acts, if not `module` itself.
        act: takes one action with exploration.
        learn: performs one update.
        evaluate: plays or queries the agent as in an evaluation.
        sync: copies the online network to the target network.
        contract: when the acting noise must be resampled.
        noise: the declared kind of noise for layers of other libraries; `NoisyLinear` has its own.
        generators: the random streams of training, which evaluation must not advance. The global
            streams of torch, NumPy and Python are always checked.
        updates: how many updates to run, with four actions before each. The statistical checks
            need about a hundred.

    Returns:
        The answer to each question, with evidence.

    Raises:
        ValueError: an argument is invalid, or a network has no noisy layers.
    """
    _check_arguments(contract, noise, updates)
    layers = require_noisy_layers(module, "check_noise")
    kinds: dict[str, str | None] = {
        layer.name: noise or getattr(layer.module, "noise", None) for layer in layers
    }
    scale = checks.check_initial_scale(layers)  # before the agent learns
    given = {"online": module, "target": target, "selector": selector, "acting": acting}
    networks = {name: network for name, network in given.items() if network is not None}
    run = _AuditRun(networks, layers, act, learn, evaluate, sync, dict(generators or {}))
    with record_noise(networks) as log:
        run.execute(log, updates)
    answers = [
        checks.check_acting(log) if act else Check(checks.ACTING, None, "no act given"),
        checks.check_learning(log) if learn else Check(checks.LEARNING, None, "no learn given"),
        _check_mode(module, layers),
        checks.check_fresh(log, contract),
        checks.check_held(log, contract),
        checks.check_batch(log),
        checks.check_roles(log, contract),
        checks.check_layers(log),
        *checks.check_distribution(log, kinds),
        scale,
        checks.check_gradient(run.gradients)
        if learn
        else Check(checks.GRADIENT, None, "no learn given"),
        checks.check_evaluation(run.compared, run.changed)
        if evaluate
        else Check(checks.EVALUATION, None, "no evaluate given"),
        checks.check_saved_state(module, layers, run.copied),
    ]
    rows = checks.check_rows(log)
    if rows.passed is not None or contract == "rollout":  # omitted if there is no per-row noise
        answers.append(rows)
    return NoiseReport(tuple(answers))


@dataclass
class _AuditRun:
    """Runs the agent and observes what the recorder cannot: gradients, streams and copies."""

    networks: dict[str, nn.Module]
    layers: list[DetectedLayer]
    act: Callable[[], object] | None
    learn: Callable[[], object] | None
    evaluate: Callable[[], object] | None
    sync: Callable[[], object] | None
    generators: dict[str, torch.Generator]
    gradients: dict[str, float] = field(default_factory=dict)
    compared: int = 0
    changed: list[str] = field(default_factory=list)
    copied: list[str] = field(default_factory=list)

    def execute(self, log: NoiseLog, updates: int) -> None:
        if not self.act and not self.learn:
            self._resample_layers(log, updates * ACTIONS_PER_UPDATE)
        for update in range(updates):
            for action in range(ACTIONS_PER_UPDATE if self.act else 0):
                log.label = f"act {update}.{action}"
                assert self.act is not None
                self.act()
            if self.learn:
                log.label = f"learn {update}"
                self._learn(self.learn)
        if self.evaluate:
            log.label = "evaluate"
            before = self._training_state()
            self.evaluate()
            self.compared = len(before)
            self.changed = _differing(before, self._training_state())
        if self.sync and "target" in self.networks:
            noise = _noise_buffers(self.networks["target"])
            self.sync()
            self.copied = _differing(noise, _noise_buffers(self.networks["target"]))

    def _resample_layers(self, log: NoiseLog, count: int) -> None:
        """Without an agent: resample each layer by its own method and run it twice."""
        for index in range(count):
            log.label = f"probe {index}"
            for layer in self.layers:
                _resample(layer.module)
                _run(layer)
                _run(layer)

    def _learn(self, learn: Callable[[], object]) -> None:
        """Perform an update and note the largest gradient of each σ.

        If an agent learns through copies of its parameters, the change of σ is used instead.
        """
        parameters = {
            f"{layer.name}.{name}".lstrip("."): layer.module.get_parameter(name)
            for layer in self.layers
            for name in layer.sigmas
        }
        before = {key: parameter.detach().clone() for key, parameter in parameters.items()}
        handles = []
        for key, parameter in parameters.items():
            self.gradients.setdefault(key, 0.0)

            def note(gradient: Tensor, key: str = key) -> None:
                self.gradients[key] = max(self.gradients[key], float(gradient.detach().abs().max()))

            if parameter.requires_grad:
                handles.append(parameter.register_hook(note))
        try:
            learn()
        finally:
            for handle in handles:
                handle.remove()
        for key, parameter in parameters.items():
            change = float((parameter.detach() - before[key]).abs().max())
            self.gradients[key] = max(self.gradients[key], change)

    def _training_state(self) -> dict[str, object]:
        """The random streams, and the state of every network that training depends on."""
        state: dict[str, object] = {
            name: generator.get_state() for name, generator in self.generators.items()
        }
        state["torch's global stream"] = torch.get_rng_state()
        state["Python's global stream"] = random.getstate()
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            state["NumPy's global stream"] = repr(numpy.random.get_state())
        for name, network in self.networks.items():
            state |= {f"{name}: {key}": value for key, value in _noise_buffers(network).items()}
            state |= {f"{name}: {k}": v.clone() for k, v in network.state_dict().items()}
            state[f"{name}: noise off"] = [
                getattr(layer, "_noise_off", 0) for layer in network.modules()
            ]
        return state


def _noise_buffers(network: nn.Module) -> dict[str, object]:
    """Copies of the buffers of the noisy layers."""
    return {
        f"{layer.name}.{name}".lstrip("."): buffer.clone()
        for layer in find_noisy_layers(network)
        for name, buffer in layer.module.named_buffers()
    }


def _differing(before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    def same(first: object, second: object) -> bool:
        if isinstance(first, Tensor) and isinstance(second, Tensor):
            return torch.equal(first, second)
        return first == second

    return [key for key in before if key not in after or not same(before[key], after[key])]


def _check_arguments(contract: str, noise: str | None, updates: int) -> None:
    contracts = get_args(Contract)
    if contract not in contracts:
        near = difflib.get_close_matches(str(contract), contracts, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise ValueError(f"contract expected one of {contracts}, got {contract!r}{hint}")
    if noise is not None:
        check_choice("noise", noise, Noise)
    check_size("updates", updates)


def _resample(layer: nn.Module) -> None:
    for name in ("resample_noise", "reset_noise", "sample_noise", "sample", "resample"):
        method = getattr(layer, name, None)
        if callable(method):
            method()
            return


def _run(layer: DetectedLayer) -> None:
    """Run the layer on zeros, for the recorder."""
    mu, _ = layer.weights
    rows = getattr(layer.module, "rows", None) or 1
    with torch.no_grad():
        layer.module(mu.new_zeros(rows, mu.shape[1]))


def _check_mode(module: nn.Module, layers: list[DetectedLayer]) -> Check:
    """The layers are noisy in train mode and in eval mode."""
    modes = [(layer, layer.training) for layer in module.modules()]
    silent = []
    try:
        for mode in ("train", "eval"):
            module.train(mode == "train")
            with record_noise(module) as log:
                for layer in layers:
                    _run(layer)
            if not all(event.noisy for event in log.events):
                silent.append(mode)
    finally:
        for submodule, training in modes:
            submodule.training = training
    evidence = f"no noise in {' and '.join(silent)} mode" if silent else "noisy in both modes"
    return Check(checks.MODE, not silent, evidence)
