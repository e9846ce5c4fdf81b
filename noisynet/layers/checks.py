"""The questions of the audit, each answered from a log of what happened."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from noisynet.layers.record import NoiseEvent, NoiseLog, NoiseSample, NoisyView

Contract = Literal["action", "update", "rollout"]
"""When acting noise is redrawn: at every action (Algorithm 1), after every update, or after every
update with learning using the very sample that acted (Algorithm 2)."""

ACTIONS_PER_UPDATE: Final = 4
"""How many actions the audit takes before each update."""

ACTING: Final = "noisy while acting"
LEARNING: Final = "noisy while learning"
MODE: Final = "noise does not depend on train()/eval()"
FRESH: Final = "fresh draws when due"
HELD: Final = "held between draws"
BATCH: Final = "one sample for a batch"
ROWS: Final = "environments side by side have samples of their own"
ROLES: Final = "acting, online, target and selector draws independent"
LAYERS: Final = "every layer has its own draw"
MOMENTS: Final = "noise is zero-mean, of the right variance"
STRUCTURE: Final = "factorised or independent as claimed"
SCALE: Final = "bias noise scaled by inputs"
GRADIENT: Final = "sigma receives gradient"
EVALUATION: Final = "evaluation leaves training draws alone"
SAVED: Final = "epsilon absent from saved state and target copies"

# Standard errors from the expected value at which chance is ruled out.
_SIGNIFICANT: Final = 5.5
# Fewer distinct draws than this say nothing about a distribution.
_FEWEST_DRAWS: Final = 50
# Two independent runs of four normals come this close once in a thousand million. A few repeats are
# forgiven: streams that were seeded alike (torch's global one and an agent's) may overlap once.
_SAME_STRETCH: Final = 1e-3
_CHANCE_REPEATS: Final = 0.02
_MOST_COMPARED: Final = 400


@dataclass(frozen=True)
class Check:
    """One question of the audit.

    Attributes:
        question: what was asked.
        passed: the answer; None where it could not be asked.
        evidence: the figures behind the answer.
    """

    question: str
    passed: bool | None
    evidence: str


def check_acting(log: NoiseLog) -> Check:
    """Every acting pass through a noisy layer uses noise."""
    return _check_noisy(ACTING, log, "act")


def check_learning(log: NoiseLog) -> Check:
    """Every online, target and selector pass of an update uses noise."""
    return _check_noisy(LEARNING, log, "learn")


def check_fresh(log: NoiseLog, contract: Contract) -> Check:
    """Each phase that is due a draw uses one that was never in force before."""
    phases = _phases(log, "act", "learn", "probe")
    if contract != "action":
        phases = _by_round(phases)
    if contract == "rollout":
        phases = {label: events for label, events in phases.items() if label.startswith("act")}
    if not phases:
        return Check(FRESH, None, "nothing was run")
    fresh, total = _fresh_draws(phases)
    evidence = f"{fresh} of {total} draws fresh over {len(phases)} phases"
    return Check(FRESH, total > 0 and fresh == total, evidence)


def check_held(log: NoiseLog, contract: Contract) -> Check:
    """Inside one phase a layer, in one role, meets one draw only."""
    groups: dict[str, list[NoiseEvent]] = {}
    for label, events in _phases(log, "act", "learn", "probe").items():
        kind, number = label.split(" ")
        for event in events:
            role = "gradient" if event.with_gradient else "value"
            key = f"{label} {role} {event.network}"
            if contract == "update" and kind == "act":
                key = number.split(".")[0]
            elif contract == "rollout":  # what acted must be what learns
                key = f"{number.split('.')[0]} {event.network}"
            groups.setdefault(key, []).append(event)
    changed = sum(
        len(set(draws)) > 1 for events in groups.values() for draws in _draws(events).values()
    )
    evidence = f"{changed} changes of noise on the way in {len(groups)} phases"
    return Check(HELD, changed == 0 if groups else None, evidence)


def check_batch(log: NoiseLog) -> Check:
    """Equal rows of a batch meet equal noise, where no per-row noise was asked for."""
    events = [event for event in log.events if event.rows is None and event.noisy]
    if not events:
        return Check(BATCH, None, "no noisy pass with a shared sample")
    split = sum(not event.sample.shared for event in events)
    return Check(BATCH, split == 0, f"{split} of {len(events)} passes differed between equal rows")


def check_rows(log: NoiseLog) -> Check:
    """Where each row has a sample of its own, it is unrelated to every other row's."""
    samples: dict[tuple[str, str, int], NoiseSample] = {}
    for event in log.events:
        if event.noisy and event.sample.others and event.label != "evaluate":
            samples.setdefault((event.network, event.layer, event.draw), event.sample)
    if not samples:
        return Check(ROWS, None, "no pass with a sample for each row")
    layers: dict[str, list[NoiseSample]] = {}
    for (_, layer, _), sample in samples.items():
        layers.setdefault(layer, []).append(sample)
    related, largest, pairs = [], 0.0, 0
    for layer, found in layers.items():
        rows = [[sample, *sample.others] for sample in found]
        for first, second in itertools.combinations(range(len(rows[0])), 2):
            pairs += 1
            for part in (_signature, _first_input):
                series = (torch.stack([part(row[i]) for row in rows]) for i in (first, second))
                r, z = _correlation(*series)
                largest = max(largest, abs(r))
                if z > _SIGNIFICANT:
                    related.append(f"{layer} rows {first}/{second} r={r:+.2f}")
    evidence = "; ".join(related[:4]) or f"largest correlation |r|={largest:.2f} of {pairs} pairs"
    return Check(ROWS, not related, evidence)


def check_roles(log: NoiseLog, contract: Contract) -> Check:
    """The noise of acting, online, target and selector passes is unrelated over many draws."""
    rounds = _roles(log, contract)
    results: dict[str, tuple[float, float]] = {}
    for part in (_signature, _diagonal):
        roles = {role: _parts_by_layer(found, part) for role, found in rounds.items()}
        for first, second in itertools.combinations(sorted(roles), 2):
            common = sorted(roles[first].keys() & roles[second].keys())
            found = [_correlation(roles[first][name], roles[second][name]) for name in common]
            pair = f"{first}/{second}"
            results[pair] = max([*found, results.get(pair, (0.0, 0.0))], key=lambda r: r[1])
    if not results and contract == "rollout":
        return Check(ROLES, None, "one sample for all of them, by contract")
    if not results:
        return Check(ROLES, None, "needs learn, and more than one noisy pass in it")
    evidence = ", ".join(f"{pair} r={r:+.2f}" for pair, (r, _) in results.items())
    related = [pair for pair, (_, z) in results.items() if z > _SIGNIFICANT]
    return Check(ROLES, not related, (f"related: {related}; " if related else "") + evidence)


def check_layers(log: NoiseLog) -> Check:
    """Layers share neither a draw nor, at whatever moment, a stretch of one random stream."""
    samples = {name: found for name, found in _samples(log).items() if len(found) >= _FEWEST_DRAWS}
    if len(samples) < 2:
        return Check(LAYERS, None, f"needs two layers with {_FEWEST_DRAWS} draws of each")
    related, largest = [], 0.0
    for first, second in itertools.combinations(samples, 2):
        count = min(len(samples[first]), len(samples[second]))
        a, b = samples[first][:count], samples[second][:count]
        for part in (_signature, _first_input):
            r, z = _correlation(*(torch.stack([part(x) for x in found]) for found in (a, b)))
            largest = max(largest, abs(r))
            if z > _SIGNIFICANT:
                related.append(f"{first}/{second} r={r:+.2f}")
        repeated = _repeated_stretches(a, b)
        if repeated > count * _CHANCE_REPEATS:
            related.append(f"{first}/{second} repeat each other's numbers {repeated} times")
    evidence = "; ".join(related) or f"largest correlation |r|={largest:.2f}, no stretch repeated"
    return Check(LAYERS, not related, evidence)


def check_distribution(log: NoiseLog, kinds: Mapping[str, str | None]) -> list[Check]:
    """The moments of the noise, and whether it has the structure that its layer claims."""
    samples = {name: found for name, found in _samples(log).items() if len(found) >= _FEWEST_DRAWS}
    if not samples:
        few = f"fewer than {_FEWEST_DRAWS} distinct draws were seen"
        return [Check(MOMENTS, None, few), Check(STRUCTURE, None, few)]
    moments, claims, kept = [], [], []
    for layer, found in samples.items():
        claimed, shape = kinds[layer], _structure(found)
        moments.append(_moments(layer or "layer", found, claimed or shape))
        claims.append(f"{layer or 'layer'}: {shape}" + (f" (claimed {claimed})" if claimed else ""))
        if claimed and shape != "unclear":
            kept.append(claimed == shape)
    wrong = [text for text, right in moments if not right]
    return [
        Check(MOMENTS, not wrong, "; ".join(wrong or [text for text, _ in moments])),
        Check(STRUCTURE, all(kept) if kept else None, "; ".join(claims)),
    ]


def check_initial_scale(views: list[NoisyView]) -> Check:
    """At initialisation σw and σb are one and the same constant, σ0/√p or 0.017."""
    wrong, seen = [], 0
    for view in views:
        weight, bias = view.get(view.weight_sigma), view.get(view.bias_sigma)
        assert weight is not None
        if bias is None or weight.min() != weight.max() or bias.min() != bias.max():
            continue  # no bias, or σ has been trained: the initial scale cannot be seen
        seen += 1
        ratio = float(bias[0] / weight[0, 0])
        if abs(ratio - 1) > 1e-3:
            wrong.append(f"{view.name or 'layer'}: σb is {ratio:.2g} × σw")
    if not seen:
        return Check(SCALE, None, "σ is not at its initial value, or there is no bias")
    return Check(SCALE, not wrong, "; ".join(wrong) or f"σb = σw in {seen} layers")


def check_gradient(gradients: Mapping[str, float]) -> Check:
    """Learning gives every σ a gradient."""
    without = [name for name, largest in gradients.items() if largest == 0]
    if without:
        return Check(GRADIENT, False, f"none for {', '.join(without)}")
    return Check(GRADIENT, True, f"non-zero for {len(gradients)} deviations")


def check_evaluation(watched: int, moved: list[str]) -> Check:
    """Evaluating moves no random stream of training and no sample that a layer holds."""
    evidence = f"moved: {', '.join(moved)}" if moved else f"{watched} streams and samples unmoved"
    return Check(EVALUATION, not moved, evidence)


def check_saved_state(module: nn.Module, views: list[NoisyView], copied: list[str]) -> Check:
    """Nothing of a noisy layer is saved, or copied to a target, but its means and deviations.

    Args:
        module: the online network.
        views: its noisy layers.
        copied: noise of the target network that changed when it was copied to.
    """
    saved = module.state_dict()
    found = []
    for view in views:
        prefix = f"{view.name}.".lstrip(".")
        known = {f"{prefix}{name}" for name in view.parameters}
        found += [
            key
            for key, value in saved.items()
            if key.startswith(prefix) and key not in known and value.numel() > 1
        ]
    evidence = (
        f"saved: {', '.join(found)}" if found else f"{len(saved)} entries, none of them noise"
    )
    if copied:
        evidence += f"; copied to the target: {', '.join(copied)}"
    return Check(SAVED, not found and not copied, evidence)


def _check_noisy(question: str, log: NoiseLog, phase: str) -> Check:
    events = [event for events in _phases(log, phase).values() for event in events]
    if not events:
        return Check(question, False, "no pass went through a noisy layer")
    noisy = sum(event.noisy for event in events)
    return Check(question, noisy == len(events), f"{noisy} of {len(events)} passes noisy")


def _phases(log: NoiseLog, *kinds: str) -> dict[str, list[NoiseEvent]]:
    """The events of each call, in order of the calls."""
    phases: dict[str, list[NoiseEvent]] = {}
    for event in log.events:
        if event.label.split(" ")[0] in kinds:
            phases.setdefault(event.label, []).append(event)
    return phases


def _by_round(phases: Mapping[str, list[NoiseEvent]]) -> dict[str, list[NoiseEvent]]:
    """Actions "act 3.0" to "act 3.3" together: what happened between two updates."""
    rounds: dict[str, list[NoiseEvent]] = {}
    for label, events in phases.items():
        rounds.setdefault(label.split(".")[0], []).extend(events)
    return rounds


def _draws(events: Iterable[NoiseEvent]) -> dict[str, list[int]]:
    """The draws of each layer, in order; passes without noise are left out."""
    draws: dict[str, list[int]] = {}
    for event in events:
        if event.noisy:
            draws.setdefault(f"{event.network}.{event.layer}", []).append(event.draw)
    return draws


def _fresh_draws(phases: Mapping[str, list[NoiseEvent]]) -> tuple[int, int]:
    """Over layers and phases: how often the draw was new, and how often there was one."""
    seen: dict[str, set[int]] = {}
    fresh = total = 0
    for events in phases.values():
        for layer, draws in _draws(events).items():
            total += 1
            fresh += not seen.setdefault(layer, set()) & set(draws)
            seen[layer] |= set(draws)
    return fresh, total


def _roles(log: NoiseLog, contract: Contract) -> dict[str, list[list[NoiseEvent]]]:
    """The noisy events of each role, one list for each update."""
    roles: dict[str, list[list[NoiseEvent]]] = {}
    acts = _phases(log, "act")
    for label, events in _phases(log, "learn").items():
        by_role: dict[str, list[NoiseEvent]] = {}
        for event in events:
            # In a roll-out the bootstrap, without gradient, uses what acts and learns.
            own = event.with_gradient or contract == "rollout"
            role = "online" if own else "selector"
            by_role.setdefault("target" if event.network == "target" else role, []).append(event)
        last_act = acts.get(f"act {label.split(' ')[1]}.{ACTIONS_PER_UPDATE - 1}")
        if last_act and contract != "rollout":
            by_role["acting"] = last_act
        for role, found in by_role.items():
            if all(event.noisy for event in found):
                roles.setdefault(role, []).append(found)
    return roles


def _signature(sample: NoiseSample) -> Tensor:
    """Entries of one draw that are independent of each other: εb, or a diagonal of εw."""
    return sample.bias if sample.bias is not None else _diagonal(sample)


def _diagonal(sample: NoiseSample) -> Tensor:
    """Entries of εw that share neither an input nor an output."""
    size = min(sample.weight.shape)
    return sample.weight[:size, :size].diagonal()


def _first_input(sample: NoiseSample) -> Tensor:
    """The noise on the first input of the first output, as one entry."""
    return sample.weight[:1, 0]


def _repeated_stretches(first: list[NoiseSample], second: list[NoiseSample]) -> int:
    """How many stretches of output noise stand in both series, up to a factor."""
    a, b = _stretches(first), _stretches(second)
    if not len(a) or not len(b):
        return 0
    return int((torch.cdist(a, b, p=math.inf) < _SAME_STRETCH).sum())


def _stretches(found: list[NoiseSample]) -> Tensor:
    """Every run of four neighbouring outputs' noise, as unit vectors [runs, 4]."""
    columns = [x.weight[:, 0] if x.bias is None else x.bias for x in found[:_MOST_COMPARED]]
    noise = torch.stack(columns)  # [draws, outputs]
    if noise.shape[1] < 4:
        return noise.new_empty(0, 4)
    runs = noise.unfold(1, 4, 1).reshape(-1, 4)
    return F.normalize(runs, dim=1) * runs[:, :1].sign()


def _parts_by_layer(
    rounds: list[list[NoiseEvent]], part: Callable[[NoiseSample], Tensor]
) -> dict[str, Tensor]:
    """For each layer, a part of the noise of its first pass in each round [rounds, entries]."""
    stacks: dict[str, list[Tensor]] = {}
    for events in rounds:
        first = {event.layer: event for event in reversed(events)}
        for layer, event in first.items():
            stacks.setdefault(layer, []).append(part(event.sample))
    return {name: torch.stack(found) for name, found in stacks.items() if len(found) == len(rounds)}


def _correlation(first: Tensor, second: Tensor) -> tuple[float, float]:
    """The correlation of two series of draws that is furthest from chance, and its z-score.

    Values and magnitudes are both compared: two products that share one factor are uncorrelated
    in value, but not in size.
    """
    count = min(len(first), len(second))
    width = min(first.shape[1], second.shape[1])
    found = []
    for transform in (torch.Tensor.clone, _log_magnitude):
        a, b = transform(first[:count, :width]), transform(second[:count, :width])
        a, b = a - a.mean(), b - b.mean()
        norm = float(a.norm() * b.norm())
        r = float((a * b).sum()) / norm if norm > 0 else 1.0
        found.append((r, abs(r) * math.sqrt(a.numel())))
    return max(found, key=lambda result: result[1])


def _log_magnitude(values: Tensor) -> Tensor:
    return values.abs().clamp_min(1e-6).log()


def _samples(log: NoiseLog) -> dict[str, list[NoiseSample]]:
    """One sample for each distinct training draw of each layer, the target network's aside."""
    samples: dict[str, dict[tuple[str, int], NoiseSample]] = {}
    for event in log.events:
        if event.noisy and event.network != "target" and event.label != "evaluate":
            draw = (event.network, event.draw)
            samples.setdefault(event.layer, {}).setdefault(draw, event.sample)
    return {layer: list(found.values()) for layer, found in samples.items()}


def _moments(layer: str, found: list[NoiseSample], kind: str) -> tuple[str, bool]:
    """The mean and the variance of the noise, against those of section 3."""
    values = torch.stack([_signature(sample) for sample in found]).flatten()
    mean, variance = float(values.mean()), float(values.var())
    text = f"{layer}: mean {mean:+.2f}, variance {variance:.2f}"
    if abs(mean) > _SIGNIFICANT * math.sqrt(variance / len(values)):
        return text, False
    # Var f(ε) = E|ε| = √(2/π) and E f(ε)⁴ = 1; without a bias the entries are products of two such.
    # A standard normal has variance 1 and fourth moment 3.
    f_variance = math.sqrt(2 / math.pi)
    factorised = (f_variance if found[0].bias is not None else f_variance**2, 1.0)
    expected, fourth = {"factorised": factorised, "independent": (1.0, 3.0)}.get(kind, (None, 0.0))
    if expected is None:
        return text, True
    spread = math.sqrt((fourth - expected**2) / len(values))
    return f"{text} (expected {expected:.2f})", abs(variance - expected) <= _SIGNIFICANT * spread


def _structure(found: list[NoiseSample]) -> str:
    """Whether εw is an outer product, with εb for its output factor where there is a bias."""
    outputs, inputs = found[0].weight.shape
    if outputs < 2 or (inputs < 2 and found[0].bias is None):
        return "unclear"  # one output, or one column: it is a multiple of any other
    for sample in found[:20]:
        factor = sample.weight[:, :1] if sample.bias is None else sample.bias[:, None]
        columns = sample.weight
        fit = factor @ (factor.t() @ columns) / factor.square().sum().clamp_min(1e-12)
        if (columns - fit).norm() > 0.02 * columns.norm():
            return "independent"
    return "factorised"
