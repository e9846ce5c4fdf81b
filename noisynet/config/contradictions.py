"""Settings that are valid on their own but not together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from noisynet.config.agents import AGENT_SPECS, AgentSpec

_Rule = TypeVar("_Rule", bound=Callable[..., str | None])


_RULES: Final[list[tuple[tuple[str, ...], Callable[..., str | None]]]] = []


def contradictions(settings: Mapping[str, Any]) -> list[str]:
    """A sentence for each contradiction between valid settings, given by dotted key.

    A rule applies only if all of its keys are here: a setting may be missing because it is invalid
    or belongs to another kind.
    """
    known = [(keys, rule) for keys, rule in _RULES if all(key in settings for key in keys)]
    found = [rule(*(settings[key] for key in keys)) for keys, rule in known]
    return [sentence for sentence in found if sentence is not None]


def _rule(*keys: str) -> Callable[[_Rule], _Rule]:
    """Make a function a rule, which is called with the values of these keys."""

    def add(rule: _Rule) -> _Rule:
        _RULES.append((keys, rule))
        return rule

    return add


@_rule("agent", "exploration.kind")
def _exploration_is_the_agents(agent: str, kind: str) -> str | None:
    spec = AGENT_SPECS[agent]
    if spec.noisy == (kind == "noisy-weights"):
        return None
    kinds = (None,) if spec.noisy else ("factorised", "independent")
    others = [other.name for noise in kinds if (other := spec.changed(noise=noise))]
    return f"{agent} does not explore by {kind}; choose the agent {' or '.join(others)} instead"


@_rule("agent", "network.dueling")
def _head_is_the_agents(agent: str, dueling: bool) -> str | None:
    spec = AGENT_SPECS[agent]
    if spec.dueling in (None, dueling):
        return None
    expected, given = str(not dueling).lower(), str(dueling).lower()
    return (
        f"{agent} expects network.dueling={expected}, got {given}; choose the agent "
        f"{_agent_with(spec, dueling=dueling)} instead"
    )


@_rule("agent", "network.atoms")
def _distributions_are_the_agents(agent: str, atoms: int | None) -> str | None:
    spec, given = AGENT_SPECS[agent], atoms is not None
    if spec.categorical in (None, given):
        return None
    expected = "network.atoms=null" if given else "a number of network.atoms"
    return (
        f"{agent} expects {expected}, got {'null' if atoms is None else atoms}; choose the agent "
        f"{_agent_with(spec, categorical=given)} instead"
    )


def _agent_with(spec: AgentSpec, **fields: bool) -> str:
    """The agent with another head; Rainbow, whose head is a setting, if no other has it."""
    other = spec.changed(**fields) or spec.changed(dueling=None, categorical=None)
    assert other is not None
    return other.name


@_rule("network.v_min", "network.v_max")
def _the_range_is_not_empty(v_min: float, v_max: float) -> str | None:
    if v_min < v_max:
        return None
    return f"network.v_min ({v_min:g}) is not below network.v_max ({v_max:g})"


@_rule("network.atoms", "learning.loss")
def _distributions_have_the_cross_entropy(atoms: int | None, loss: str) -> str | None:
    if atoms is None or loss == "huber":
        return None
    return (
        f"learning.loss={loss} is for Q-values, network.atoms={atoms} learns distributions by "
        "their cross-entropy; remove one of them"
    )


@_rule("agent", "exploration.noise")
def _noise_is_the_agents(agent: str, noise: str) -> str | None:
    spec = AGENT_SPECS[agent]
    other = spec.changed(noise=noise)  # the kind is free where the other kind has no agent
    if not spec.noisy or noise == spec.noise or other is None:
        return None
    return (
        f"{agent} expects exploration.noise={spec.noise}, got {noise}; choose the agent "
        f"{other.name} instead"
    )


@_rule("exploration.noise", "exploration.f")
def _f_shapes_factorised_noise(noise: str, f: str) -> str | None:
    if noise == "factorised" or f == "signed_sqrt":
        return None
    return (
        f"exploration.f={f} shapes factorised noise, exploration.noise={noise} has no f; remove "
        "one of them"
    )


@_rule("agent", "noisy_lstm", "recurrent")
def _a_noisy_lstm_needs_an_lstm_and_noise(
    agent: str, noisy_lstm: bool, recurrent: bool
) -> str | None:
    noisy = AGENT_SPECS[agent].noisy
    if not noisy_lstm or (recurrent and noisy):
        return None
    missing = [] if recurrent else ["recurrent=true"]
    missing += [] if noisy else ["an agent noisynet-…"]
    return f"noisy_lstm=true expects {' and '.join(missing)}, got {agent} without"


@_rule("agent", "compute")
def _only_value_agents_compile(agent: str, compute: str) -> str | None:
    if compute != "compile" or AGENT_SPECS[agent].family == "value":
        return None
    return f"compute=compile is for value agents; {agent} expects compute=auto or compute=torch"


@_rule("replay.capacity_steps", "learning.batch_size")
def _replay_holds_a_batch(capacity: int, batch: int) -> str | None:
    if capacity >= batch:
        return None
    return f"replay.capacity_steps ({capacity}) is below learning.batch_size ({batch})"


@_rule("learning.starts_steps", "replay.capacity_steps")
def _learning_starts_within_capacity(starts: int, capacity: int) -> str | None:
    if starts <= capacity:
        return None
    return (
        f"learning.starts_steps ({starts}) is above replay.capacity_steps ({capacity}): the replay "
        "never holds that many"
    )


@_rule("learning.starts_steps", "learning.batch_size")
def _learning_starts_with_a_batch(starts: int, batch: int) -> str | None:
    if starts >= batch:
        return None
    return f"learning.starts_steps ({starts}) is below learning.batch_size ({batch})"


@_rule("learning.starts_steps", "num_envs", "learning.n_step")
def _learning_starts_with_n_step_returns(starts: int, num_envs: int, n_step: int) -> str | None:
    if starts >= num_envs * n_step:
        return None
    return (
        f"learning.starts_steps ({starts}) is below num_envs × learning.n_step "
        f"({num_envs * n_step}): the first batch would have no complete n-step return"
    )


@_rule("exploration.redraw", "exploration.used_in", "num_envs")
def _noise_per_episode_needs_one_environment(
    redraw: str, used_in: str, num_envs: int
) -> str | None:
    if redraw != "episode" or "acting" not in used_in or num_envs == 1:
        return None
    return (
        f"exploration.redraw=episode expects num_envs=1, got {num_envs}: a new episode in one "
        "environment would resample the noise of all others within their episodes; set num_envs=1, "
        "or exploration.redraw=action or update"
    )
