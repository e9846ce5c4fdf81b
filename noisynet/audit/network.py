"""The audit of an agent given by its networks and functions that act, learn and evaluate."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial

import torch
from torch import Tensor, nn

from noisynet.audit import checks
from noisynet.audit.checks import ACTIONS_PER_UPDATE, Contract
from noisynet.audit.detect import DetectedLayer, find_noisy_layers, require_noisy_layers
from noisynet.audit.log import NoiseLog
from noisynet.audit.record import record_noise
from noisynet.audit.report import Check, NoiseReport
from noisynet.audit.statistics import DeclaredNoise
from noisynet.layers import Distribution, Noise, NoiseFunction, NoisyLinear
from noisynet.layers.arguments import check_choice, check_size

_Step = Callable[[], object] | None


def audit_network(
    module: nn.Module,
    *,
    target: nn.Module | None = None,
    selector: nn.Module | None = None,
    acting: nn.Module | None = None,
    act: _Step = None,
    learn: _Step = None,
    evaluate: _Step = None,
    sync: _Step = None,
    contract: Contract = "action",
    noise: Noise | None = None,
    distribution: Distribution | None = None,
    f: NoiseFunction | None = None,
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
        noise: the declared kind of noise. None: what each `NoisyLinear` declares itself, and
            unknown for layers of other libraries.
        distribution: the declared distribution of ε; None: likewise, Gaussian for other libraries.
        f: the declared function of factorised noise; None: likewise, the paper's for others.
        generators: the random streams of training, which evaluation must not advance. The global
            streams of torch, NumPy and Python are always checked.
        updates: how many updates to run, with four actions before each. The statistical checks
            need about a hundred.

    Returns:
        The answer to each question, with evidence.

    Raises:
        ValueError: an argument is invalid, or a network has no noisy layers.
    """
    check_choice("contract", contract, Contract)
    for name, value, choices in (
        ("noise", noise, Noise),
        ("distribution", distribution, Distribution),
        ("f", f, NoiseFunction),
    ):
        if value is not None:
            check_choice(name, value, choices)
    check_size("updates", updates)
    layers = require_noisy_layers(module, "check_noise")
    declared = {layer.name: _declared(layer.module, noise, distribution, f) for layer in layers}
    scale = checks.check_initial_scale(layers)  # before the agent learns
    given = {"online": module, "target": target, "selector": selector, "acting": acting}
    networks = {name: network for name, network in given.items() if network is not None}
    with record_noise(networks) as log:
        gradients = _run_agent(log, layers, act, learn, updates)
        log.label = "evaluate"
        compared, changed = _changed_by_evaluation(networks, generators or {}, evaluate)
        copied = _copied_noise(target, sync)
    answers = [
        checks.check_noisy(checks.ACTING, log, "act", declared)
        if act
        else _missing(checks.ACTING, "act"),
        checks.check_noisy(checks.LEARNING, log, "learn", declared)
        if learn
        else _missing(checks.LEARNING, "learn"),
        _check_mode(module, layers),
        checks.check_fresh(log, contract),
        checks.check_held(log, contract),
        checks.check_batch(log),
        checks.check_roles(log, contract),
        checks.check_layers(log),
        *checks.check_distribution(log, declared),
        scale,
        checks.check_gradient(gradients) if learn else _missing(checks.GRADIENT, "learn"),
        checks.check_evaluation(compared, changed)
        if evaluate
        else _missing(checks.EVALUATION, "evaluate"),
        checks.check_saved_state(module, layers, copied),
    ]
    rows = checks.check_rows(log)
    if rows.passed is not None or contract == "rollout":  # omitted if there is no per-row noise
        answers.append(rows)
    return NoiseReport(tuple(answers))


def _missing(question: str, argument: str) -> Check:
    return Check(question, None, f"no {argument} given")


def _run_agent(
    log: NoiseLog, layers: list[DetectedLayer], act: _Step, learn: _Step, updates: int
) -> dict[str, float]:
    """Act and learn; without an agent, resample each layer by its own method and run it twice.

    Returns:
        The largest gradient of each σ. If an agent learns through copies of its parameters, the
        largest change of σ in an update.
    """
    sigmas = {
        f"{layer.name}.{name}".lstrip("."): layer.module.get_parameter(name)
        for layer in layers
        for name in layer.sigmas
    }
    gradients = dict.fromkeys(sigmas, 0.0)

    def note(key: str, change: Tensor) -> None:
        gradients[key] = max(gradients[key], float(change.detach().abs().max()))

    for update in range(0 if act or learn else updates * ACTIONS_PER_UPDATE):
        log.label = f"probe {update}"
        for layer in layers:
            _resample(layer.module)
            _run(layer)
            _run(layer)
    for update in range(updates):
        for action in range(ACTIONS_PER_UPDATE if act else 0):
            log.label = f"act {update}.{action}"
            act()  # type: ignore[misc]
        if learn:
            log.label = f"learn {update}"
            before = {key: sigma.detach().clone() for key, sigma in sigmas.items()}
            with ExitStack() as hooks:
                for key, sigma in sigmas.items():
                    if sigma.requires_grad:
                        hooks.callback(sigma.register_hook(partial(note, key)).remove)
                learn()
            for key, sigma in sigmas.items():
                note(key, sigma - before[key])
    return gradients


def _changed_by_evaluation(
    networks: Mapping[str, nn.Module], generators: Mapping[str, torch.Generator], evaluate: _Step
) -> tuple[int, list[str]]:
    """How much of the training state was compared, and what of it an evaluation changed."""
    if evaluate is None:
        return 0, []
    before = _training_state(networks, generators)
    evaluate()
    return len(before), _differing(before, _training_state(networks, generators))


def _training_state(
    networks: Mapping[str, nn.Module], generators: Mapping[str, torch.Generator]
) -> dict[str, object]:
    """The random streams, and the state of every network that training depends on."""
    state: dict[str, object] = {name: stream.get_state() for name, stream in generators.items()}
    state["torch's global stream"] = torch.get_rng_state()
    state["Python's global stream"] = random.getstate()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        state["NumPy's global stream"] = repr(numpy.random.get_state())
    for name, network in networks.items():
        state |= {f"{name}: {key}": value for key, value in _noise_buffers(network).items()}
        state |= {f"{name}: {key}": value.clone() for key, value in network.state_dict().items()}
        state[f"{name}: noise off"] = [
            getattr(layer, "_noise_off", 0) for layer in network.modules()
        ]
    return state


def _copied_noise(target: nn.Module | None, sync: _Step) -> list[str]:
    """The noise of the target network that changes when it is synchronised."""
    if target is None or sync is None:
        return []
    before = _noise_buffers(target)
    sync()
    return _differing(before, _noise_buffers(target))


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


def _declared(
    layer: nn.Module,
    noise: Noise | None,
    distribution: Distribution | None,
    f: NoiseFunction | None,
) -> DeclaredNoise:
    """What the caller declares, else the layer itself, else the paper's."""
    if isinstance(layer, NoisyLinear):
        return DeclaredNoise(noise or layer.noise, distribution or layer.distribution, f or layer.f)
    kind = noise or getattr(layer, "noise", None)
    return DeclaredNoise(kind, distribution or "gaussian", f or "signed_sqrt")


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
