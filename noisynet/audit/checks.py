"""The questions of the audit, each answered from the log of an agent's passes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

from torch import nn

from noisynet.audit.detect import DetectedLayer
from noisynet.audit.log import NoiseEvent, NoiseLog, NoiseSample
from noisynet.audit.report import Check
from noisynet.audit.statistics import (
    SIGNIFICANT_Z,
    DeclaredNoise,
    are_signs,
    compare_moments,
    correlate,
    count_repeated_runs,
    noise_structure,
)

Contract = Literal["action", "update", "rollout"]
"""When the acting noise is resampled: before every action (Algorithm 1), after every update, or
after every update with learning using the sample that acted (Algorithm 2)."""

ACTIONS_PER_UPDATE: Final = 4
"""How many actions the audit takes before each update."""

ACTING: Final = "noisy while acting"
LEARNING: Final = "noisy while learning"
MODE: Final = "noise does not depend on train()/eval()"
FRESH: Final = "noise is resampled when due"
HELD: Final = "noise is held between resamplings"
BATCH: Final = "one noise sample per batch"
ROWS: Final = "parallel environments have independent noise"
ROLES: Final = "acting, online, target and selector noise independent"
LAYERS: Final = "layers have independent noise"
MOMENTS: Final = "noise has zero mean and the moments of its distribution"
STRUCTURE: Final = "noise is factorised or independent as declared"
SCALE: Final = "bias sigma scaled by the number of inputs"
GRADIENT: Final = "sigma receives a gradient"
EVALUATION: Final = "evaluation does not disturb training noise"
SAVED: Final = "noise is neither saved nor copied to the target"

# Fewer distinct samples than this are not enough for statistics.
_FEWEST_SAMPLES: Final = 50
# Of a thousand samples of so many signs, two are equal with a probability of one in two thousand.
_FEWEST_SIGNS: Final = 30
# A few repeated runs are tolerated: two streams with the same seed (torch's global one and an
# agent's) may overlap once.
_TOLERATED_REPEATS: Final = 0.02
_TOLERATED_SILENCE: Final = 0.02


def check_noisy(
    question: str,
    log: NoiseLog,
    phase: Literal["act", "learn"],
    declared: Mapping[str, DeclaredNoise],
) -> Check:
    """Every pass of acting, or of an update, through a noisy layer uses noise."""
    events = [event for events in _phases(log, phase).values() for event in events]
    if not events:
        return Check(question, False, "no pass went through a noisy layer")
    noisy = sum(event.noisy for event in events)
    evidence = f"{noisy} of {len(events)} passes noisy"
    if noisy == len(events):
        return Check(question, True, evidence)
    single = [event for event in events if _has_one_factor(event, declared[event.layer])]
    silent = sum(not event.noisy for event in single)
    by_chance = len(events) - noisy == silent
    by_chance &= silent <= _TOLERATED_SILENCE * sum(event.rows or 1 for event in single)
    evidence += ", the others have a single factor near 0" if by_chance else ""
    return Check(question, by_chance, evidence)


def _has_one_factor(event: NoiseEvent, declared: DeclaredNoise) -> bool:
    """Whether all noise of the layer is a multiple of one number, which f does not enlarge.

    Such a number, of a layer with one output, is now and then too small to be measured.
    """
    factorised = declared.kind == "factorised" and declared.f == "identity"
    return factorised and event.sample.weight.shape[0] == 1


def check_fresh(log: NoiseLog, contract: Contract) -> Check:
    """Each phase that requires a new sample uses one that was never used before."""
    phases: dict[str, list[NoiseEvent]] = {}
    for label, events in _phases(log, "act", "learn", "probe").items():
        if contract != "action":  # the actions "act 3.0" to "act 3.3" between two updates are one
            label = label.split(".")[0]
        if contract != "rollout" or label.startswith("act"):
            phases.setdefault(label, []).extend(events)
    if not phases:
        return Check(FRESH, None, "nothing was run")
    few = _layers_of_few_signs(log)
    seen: dict[str, set[int]] = {}
    fresh = total = 0
    for events in phases.values():
        for layer, used in _samples_used(e for e in events if e.layer not in few).items():
            total += 1
            fresh += not seen.setdefault(layer, set()) & used
            seen[layer] |= used
    evidence = f"{fresh} of {total} samples fresh over {len(phases)} phases"
    if few:
        evidence += f"; samples of few signs repeat by chance in {', '.join(few)}"
    if few and not total:
        return Check(FRESH, None, evidence)
    return Check(FRESH, total > 0 and fresh == total, evidence)  # without noise, nothing is fresh


def check_held(log: NoiseLog, contract: Contract) -> Check:
    """Within one phase, a layer in one role uses a single sample."""
    groups: dict[str, list[NoiseEvent]] = {}
    for label, events in _phases(log, "act", "learn", "probe").items():
        kind, number = label.split(" ")
        for event in events:
            gradient = "gradient" if event.with_gradient else "value"
            key = f"{label} {gradient} {event.network}"
            if contract == "update" and kind == "act":
                key = number.split(".")[0]
            elif contract == "rollout":  # learning must use the sample that acted
                key = f"{number.split('.')[0]} {event.network}"
            groups.setdefault(key, []).append(event)
    changed = sum(
        len(used) > 1 for events in groups.values() for used in _samples_used(events).values()
    )
    evidence = f"{changed} changes of noise within {len(groups)} phases"
    return Check(HELD, changed == 0 if groups else None, evidence)


def check_batch(log: NoiseLog) -> Check:
    """Equal rows of a batch receive equal noise, unless per-row noise was requested."""
    events = [event for event in log.events if event.rows is None and event.noisy]
    if not events:
        return Check(BATCH, None, "no noisy pass with a shared sample")
    split = sum(not event.sample.shared for event in events)
    return Check(BATCH, split == 0, f"{split} of {len(events)} passes differed between equal rows")


def check_rows(log: NoiseLog) -> Check:
    """Per-row noise samples are independent of each other."""
    layers: dict[str, dict[tuple[str, int], tuple[NoiseSample, ...]]] = {}
    for event in log.events:
        if event.noisy and event.sample.other_rows and event.label != "evaluate":
            rows = (event.sample, *event.sample.other_rows)
            layers.setdefault(event.layer, {})[event.network, event.sample_index] = rows
    if not layers:
        return Check(ROWS, None, "no pass with per-row noise")
    results = {
        f"{layer} rows {i}/{j}": correlate(first, second)
        for layer, found in layers.items()
        for (i, first), (j, second) in itertools.combinations(
            enumerate(zip(*found.values(), strict=True)), 2
        )
    }
    return _check_independent(ROWS, results)


def check_roles(log: NoiseLog, contract: Contract) -> Check:
    """The noise of acting, online, target and selector passes is independent (Eqs. 14-16)."""
    roles = _samples_by_role(log, contract)
    results = {}
    for first, second in itertools.combinations(sorted(roles), 2):
        common = sorted(roles[first].keys() & roles[second].keys())
        found = [correlate(roles[first][name], roles[second][name]) for name in common]
        results[f"{first}/{second}"] = max(found, key=lambda result: result[1], default=(0.0, 0.0))
    if not results:
        needed = "needs learn, and more than one noisy pass in it"
        by_contract = "one sample for all roles, by contract"
        return Check(ROLES, None, by_contract if contract == "rollout" else needed)
    check = _check_independent(ROLES, results)
    evidence = ", ".join(f"{pair} r={r:+.2f}" for pair, (r, _) in results.items())
    return Check(ROLES, True, evidence) if check.passed else check


def check_layers(log: NoiseLog) -> Check:
    """No two layers share a sample or, at any time, a sequence of random numbers."""
    samples = _training_samples(log)
    if len(samples) < 2:
        return Check(LAYERS, None, f"needs two layers with {_FEWEST_SAMPLES} samples each")
    results, repeats = {}, []
    for first, second in itertools.combinations(samples, 2):
        count = min(len(samples[first]), len(samples[second]))
        a, b = samples[first][:count], samples[second][:count]
        results[f"{first}/{second}"] = correlate(a, b)
        repeated = count_repeated_runs(a, b)
        if repeated > count * _TOLERATED_REPEATS:
            repeats.append(f"{first}/{second} repeat each other's numbers {repeated} times")
    return _check_independent(LAYERS, results, repeats)


def _check_independent(
    question: str, results: Mapping[str, tuple[float, float]], problems: Sequence[str] = ()
) -> Check:
    """No pair has a significant correlation, given its r and z-score; nor another problem."""
    related = [f"{pair} r={r:+.2f}" for pair, (r, z) in results.items() if z > SIGNIFICANT_Z]
    largest = max(abs(r) for r, _ in results.values())
    evidence = f"largest correlation |r|={largest:.2f} of {len(results)} pairs"
    if found := [*related, *problems]:
        more = f" and {len(found) - 4} more" if found[4:] else ""
        evidence = f"related: {'; '.join(found[:4])}{more}"
    return Check(question, not found, evidence)


def check_distribution(log: NoiseLog, noise: Mapping[str, DeclaredNoise]) -> list[Check]:
    """The noise has the moments and the structure that were declared for each layer."""
    samples = _training_samples(log)
    if not samples:
        few = f"fewer than {_FEWEST_SAMPLES} distinct samples"
        return [Check(MOMENTS, None, few), Check(STRUCTURE, None, few)]
    moments, structures, matches = [], [], []
    for layer, found in samples.items():
        declared, structure, name = noise[layer].kind, noise_structure(found), layer or "layer"
        text, right = compare_moments(found, declared or structure, noise[layer])
        moments.append((f"{name}: {text}", right))
        structures.append(f"{name}: {structure}" + (f" (declared {declared})" if declared else ""))
        if declared and structure != "unclear":
            matches.append(declared == structure)
    wrong = [text for text, right in moments if not right]
    return [
        Check(MOMENTS, not wrong, "; ".join(wrong or [text for text, _ in moments])),
        Check(STRUCTURE, all(matches) if matches else None, "; ".join(structures)),
    ]


def check_initial_scale(layers: list[DetectedLayer]) -> Check:
    """At initialisation σw and σb are the same constant: σ0/√p, or 0.017 (section 3.2)."""
    wrong, seen = [], 0
    for layer in layers:
        (_, weight), (_, bias) = layer.weights, layer.biases
        if bias is None or weight.min() != weight.max() or bias.min() != bias.max():
            continue  # without a bias, or after training, the initial scale is unknown
        seen += 1
        ratio = float(bias[0] / weight[0, 0])
        if abs(ratio - 1) > 1e-3:
            wrong.append(f"{layer.name or 'layer'}: σb is {ratio:.2g} × σw")
    if not seen:
        return Check(SCALE, None, "σ is not at its initial value, or there is no bias")
    return Check(SCALE, not wrong, "; ".join(wrong) or f"σb = σw in {seen} layers")


def check_gradient(gradients: Mapping[str, float]) -> Check:
    """Learning gives every σ a gradient."""
    without = [name for name, largest in gradients.items() if largest == 0]
    evidence = f"non-zero for {len(gradients)} parameters"
    return Check(GRADIENT, not without, f"none for {', '.join(without)}" if without else evidence)


def check_evaluation(compared: int, changed: list[str]) -> Check:
    """Evaluation changes no random stream, noise sample or parameter of training."""
    evidence = f"{compared} random streams and tensors unchanged"
    return Check(EVALUATION, not changed, f"changed: {', '.join(changed)}" if changed else evidence)


def check_saved_state(module: nn.Module, layers: list[DetectedLayer], copied: list[str]) -> Check:
    """Noise is neither in the state_dict nor `copied` to the target network."""
    saved = module.state_dict()
    found = []
    for layer in layers:
        prefix = f"{layer.name}.".lstrip(".")
        known = {f"{prefix}{name}" for name in layer.parameters}
        found += [
            key
            for key, value in saved.items()
            if key.startswith(prefix) and key not in known and value.numel() > 1
        ]
    evidence = f"saved: {', '.join(found)}" if found else f"{len(saved)} entries without noise"
    if copied:
        evidence += f"; copied to the target: {', '.join(copied)}"
    return Check(SAVED, not found and not copied, evidence)


def _phases(log: NoiseLog, *kinds: str) -> dict[str, list[NoiseEvent]]:
    """The events of each phase, such as "act 3.0" or "learn 3", in order."""
    phases: dict[str, list[NoiseEvent]] = {}
    for event in log.events:
        if event.label.split(" ")[0] in kinds:
            phases.setdefault(event.label, []).append(event)
    return phases


def _samples_used(events: Iterable[NoiseEvent]) -> dict[str, set[int]]:
    """The sample indices of each layer, without passes that had no noise."""
    used: dict[str, set[int]] = {}
    for event in events:
        if event.noisy:
            used.setdefault(f"{event.network}.{event.layer}", set()).add(event.sample_index)
    return used


def _layers_of_few_signs(log: NoiseLog) -> list[str]:
    """The layers whose samples are so few signs that equal ones are drawn again by chance."""
    layers: dict[str, list[NoiseSample]] = {}
    for event in log.events:
        outputs, inputs = event.sample.weight.shape
        if event.noisy and outputs + inputs < _FEWEST_SIGNS:
            layers.setdefault(event.layer, []).append(event.sample)
    return [layer for layer, samples in layers.items() if are_signs(samples)]


def _samples_by_role(log: NoiseLog, contract: Contract) -> dict[str, dict[str, list[NoiseSample]]]:
    """For each role and layer, the sample of its first pass in each update."""
    roles: dict[str, dict[str, list[NoiseSample]]] = {}
    acts = _phases(log, "act")
    for label, events in _phases(log, "learn").items():
        by_role: dict[str, list[NoiseEvent]] = {}
        for event in events:
            by_role.setdefault(_role(event, contract), []).append(event)
        last_act = acts.get(f"act {label.split(' ')[1]}.{ACTIONS_PER_UPDATE - 1}")
        if last_act and contract != "rollout":
            by_role["acting"] = last_act
        for role, found in by_role.items():
            if all(event.noisy for event in found):
                for layer, event in {event.layer: event for event in reversed(found)}.items():
                    roles.setdefault(role, {}).setdefault(layer, []).append(event.sample)
    return roles


def _role(event: NoiseEvent, contract: Contract) -> str:
    """The role of a pass within an update."""
    if event.network in ("target", "selector"):
        return event.network
    # Many agents select with the online network itself, without gradient. A roll-out's bootstrap
    # value has no gradient either, but uses the sample that acts and learns.
    return "online" if event.with_gradient or contract == "rollout" else "selector"


def _training_samples(log: NoiseLog) -> dict[str, list[NoiseSample]]:
    """The distinct samples of each layer but the target's, if there are enough for statistics."""
    samples: dict[str, dict[tuple[str, int], NoiseSample]] = {}
    for event in log.events:
        if event.noisy and event.network != "target" and event.label != "evaluate":
            key = (event.network, event.sample_index)
            samples.setdefault(event.layer, {}).setdefault(key, event.sample)
    return {
        layer: list(found.values())
        for layer, found in samples.items()
        if len(found) >= _FEWEST_SAMPLES
    }
