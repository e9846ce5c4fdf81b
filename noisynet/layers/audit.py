"""Does an agent keep the noise contract? Runs it for a few steps and answers with evidence."""

from __future__ import annotations

import difflib
import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import get_args

import torch
from torch import Tensor, nn

from noisynet.layers import checks
from noisynet.layers.arguments import Noise, check_noise_name, check_size
from noisynet.layers.checks import ACTIONS_PER_UPDATE, Check, Contract
from noisynet.layers.record import NoiseLog, NoisyView, find_noisy_layers, record_noise


@dataclass(frozen=True)
class NoiseReport:
    """The answers of `check_noise`; prints as a table.

    Attributes:
        checks: the questions with their answers and evidence.
    """

    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether nothing failed, and something was really asked."""
        answers = [check.passed for check in self.checks]
        return False not in answers and True in answers

    @property
    def failures(self) -> list[str]:
        """The questions that failed."""
        return [check.question for check in self.checks if check.passed is False]

    def __getitem__(self, question: str) -> Check:
        """The check of that question."""
        for check in self.checks:
            if check.question == question:
                return check
        raise KeyError(f"no question {question!r}; asked were {[c.question for c in self.checks]}")

    def __str__(self) -> str:
        words = {True: "pass", False: "FAIL", None: "-"}
        width = max(len(check.question) for check in self.checks)
        lines = [
            f"{words[check.passed]:<5} {check.question:<{width}}  {check.evidence}"
            for check in self.checks
        ]
        asked = sum(check.passed is not None for check in self.checks)
        lines.append(
            f"The noise contract is kept: all {asked} questions asked passed."
            if self.passed
            else f"The noise contract is broken: {len(self.failures)} of {asked} checks failed."
        )
        return "\n".join(lines)


def check_noise(
    module: nn.Module,
    *,
    target: nn.Module | None = None,
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
    """Audit the noise of an agent, ours or anybody's.

    Noisy layers are recognised by their parameters: one whose name contains "sigma" next to one
    with "mu". The agent is really run, so give a copy if it must not learn.

    Args:
        module: the online network.
        target: the target network, if there is one.
        acting: the network that acts, if it is another than `module`.
        act: takes one action with exploration.
        learn: makes one update.
        evaluate: plays or queries as in an evaluation.
        sync: copies the online network to the target network.
        contract: when acting noise must be redrawn.
        noise: the kind that foreign layers claim to be; our own layers say it themselves.
        generators: the random streams of training, which evaluation must not touch (torch's
            global one is always watched).
        updates: how many updates to run, with four actions before each; the statistical checks
            need about a hundred.

    Returns:
        A report with a pass or fail, and the evidence, for each question. Without `act` and
        `learn` the layers are redrawn by their own means, and only they are judged.
    """
    _check_arguments(contract, noise, updates)
    views = find_noisy_layers(module)
    if not views:
        raise ValueError(
            "check_noise expected a module with noisy layers (parameters named like 'weight_mu' "
            f"and 'weight_sigma'), got a {type(module).__name__} without any."
        )
    kinds: dict[str, str | None] = {
        view.name: noise or getattr(view.layer, "noise", None) for view in views
    }
    scale = checks.check_initial_scale(views)  # before the agent learns anything
    networks = {"online": module}
    networks |= {} if target is None else {"target": target}
    networks |= {} if acting is None else {"acting": acting}
    audit = _Audit(networks, views, act, learn, evaluate, sync, dict(generators or {}))
    with record_noise(networks) as log:
        audit.run(log, updates)
    answers = [
        checks.check_acting(log) if act else Check(checks.ACTING, None, "no act given"),
        checks.check_learning(log) if learn else Check(checks.LEARNING, None, "no learn given"),
        _check_mode(module, views),
        checks.check_fresh(log, contract),
        checks.check_held(log, contract),
        checks.check_batch(log),
        checks.check_roles(log, contract),
        checks.check_layers(log),
        *checks.check_distribution(log, kinds),
        scale,
        checks.check_gradient(audit.gradients)
        if learn
        else Check(checks.GRADIENT, None, "no learn given"),
        checks.check_evaluation(audit.watched, audit.moved)
        if evaluate
        else Check(checks.EVALUATION, None, "no evaluate given"),
        checks.check_saved_state(module, views, audit.copied),
    ]
    rows = checks.check_rows(log)
    if rows.passed is not None or contract == "rollout":  # not asked where nobody has rows
        answers.append(rows)
    return NoiseReport(tuple(answers))


@dataclass
class _Audit:
    """Runs the agent, and watches what hooks on the layers cannot see."""

    networks: dict[str, nn.Module]
    views: list[NoisyView]
    act: Callable[[], object] | None
    learn: Callable[[], object] | None
    evaluate: Callable[[], object] | None
    sync: Callable[[], object] | None
    generators: dict[str, torch.Generator]
    gradients: dict[str, float] = field(default_factory=dict)
    watched: int = 0
    moved: list[str] = field(default_factory=list)
    copied: list[str] = field(default_factory=list)

    def run(self, log: NoiseLog, updates: int) -> None:
        if not self.act and not self.learn:
            self._redraw_and_probe(log, updates * ACTIONS_PER_UPDATE)
        for update in range(updates):
            for action in range(ACTIONS_PER_UPDATE if self.act else 0):
                log.label = f"act {update}.{action}"
                assert self.act is not None
                self.act()
            if self.learn:
                log.label = f"learn {update}"
                self._learn_watching_sigma(self.learn)
        if self.evaluate:
            log.label = "evaluate"
            self._evaluate_watching_training(self.evaluate)
        if self.sync and "target" in self.networks:
            before = _held(self.networks["target"])
            self.sync()
            self.copied = _differing(before, _held(self.networks["target"]))

    def _redraw_and_probe(self, log: NoiseLog, draws: int) -> None:
        """Without an agent: redraw by the layers' own means, and pass through each twice."""
        for draw in range(draws):
            log.label = f"probe {draw}"
            for view in self.views:
                _redraw(view.layer)
                _pass_through(view)
                _pass_through(view)

    def _learn_watching_sigma(self, learn: Callable[[], object]) -> None:
        """Note the gradient that reaches each σ, whatever the agent does with it afterwards.

        Where an agent learns through copies of its parameters, σ itself shows it by changing.
        """
        parameters = {
            f"{view.name}.{name}".lstrip("."): view.layer.get_parameter(name)
            for view in self.views
            for name in view.sigmas
        }
        before = {key: parameter.detach().clone() for key, parameter in parameters.items()}
        handles = []
        for key, parameter in parameters.items():
            self.gradients.setdefault(key, 0.0)

            def note(gradient: Tensor, key: str = key) -> None:
                self.gradients[key] = max(self.gradients[key], float(gradient.abs().max()))

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

    def _evaluate_watching_training(self, evaluate: Callable[[], object]) -> None:
        before = self._training_state()
        evaluate()
        self.watched = len(before)
        self.moved = _differing(before, self._training_state())

    def _training_state(self) -> dict[str, object]:
        """The random streams, and everything of every network that training goes on with."""
        state: dict[str, object] = {
            name: generator.get_state() for name, generator in self.generators.items()
        }
        state["torch's global stream"] = torch.get_rng_state()
        state["Python's global stream"] = random.getstate()
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            state["NumPy's global stream"] = repr(numpy.random.get_state())
        for name, network in self.networks.items():
            state |= {f"{name}: {key}": value for key, value in _held(network).items()}
            state |= {f"{name}: {k}": v.clone() for k, v in network.state_dict().items()}
            state[f"{name}: noise off"] = [
                getattr(layer, "_noise_off", 0) for layer in network.modules()
            ]
        return state


def _held(network: nn.Module) -> dict[str, object]:
    """Copies of what the noisy layers hold beside their parameters."""
    return {
        f"{view.name}.{name}".lstrip("."): buffer.clone()
        for view in find_noisy_layers(network)
        for name, buffer in view.layer.named_buffers()
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
        check_noise_name(noise)
    check_size("updates", updates)


def _redraw(layer: nn.Module) -> None:
    for method in ("resample_noise", "reset_noise", "sample_noise", "sample", "resample"):
        redraw = getattr(layer, method, None)
        if callable(redraw):
            redraw()
            return


def _pass_through(view: NoisyView) -> None:
    """Send something through the layer; the recorder does the looking."""
    mean = view.get(view.weight_mu)
    assert mean is not None
    rows = getattr(view.layer, "rows", None) or 1
    with torch.no_grad():
        view.layer(mean.new_zeros(rows, mean.shape[1]))


def _check_mode(module: nn.Module, views: list[NoisyView]) -> Check:
    """A layer that is gated by `.training` is silent in one of the two modes."""
    modes = [(layer, layer.training) for layer in module.modules()]
    silent = []
    try:
        for mode in ("train", "eval"):
            module.train(mode == "train")
            with record_noise(module) as log:
                for view in views:
                    _pass_through(view)
            if not all(event.noisy for event in log.events):
                silent.append(mode)
    finally:
        for layer, training in modes:
            layer.training = training
    evidence = f"silent in {' and '.join(silent)} mode" if silent else "noisy in both modes"
    return Check(checks.MODE, not silent, evidence)
