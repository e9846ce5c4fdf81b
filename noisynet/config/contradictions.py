"""Settings that are valid on their own but not together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from noisynet.config.agents import AGENT_SPECS, AgentSpec

__all__ = ["contradictions"]


def contradictions(settings: Mapping[str, Any]) -> list[str]:
    """Every contradiction between settings.

    Args:
        settings: valid values by dotted key. A rule applies only if all of its keys are here: a
            setting may be missing because it is invalid or belongs to another kind.

    Returns:
        A sentence for each contradiction.
    """
    found = []
    for keys, rule in _RULES:
        if all(key in settings for key in keys):
            found.append(rule(*(settings[key] for key in keys)))
    return [sentence for sentence in found if sentence is not None]


def _exploration_is_the_agents(agent: str, kind: str) -> str | None:
    spec = AGENT_SPECS[agent]
    if spec.noisy == (kind == "noisy-weights"):
        return None
    kinds = (None,) if spec.noisy else ("factorised", "independent")
    others = [other.name for noise in kinds if (other := spec.changed(noise=noise))]
    return f"{agent} does not explore by {kind}; choose the agent {' or '.join(others)} instead"


def _head_is_the_agents(agent: str, dueling: bool) -> str | None:
    spec = AGENT_SPECS[agent]
    if spec.dueling in (None, dueling):
        return None
    expected, given = str(not dueling).lower(), str(dueling).lower()
    return (
        f"{agent} expects network.dueling={expected}, got {given}; choose the agent "
        f"{_agent_with(spec, dueling=dueling)} instead"
    )


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


def _the_range_is_not_empty(v_min: float, v_max: float) -> str | None:
    if v_min < v_max:
        return None
    return f"network.v_min ({v_min:g}) is not below network.v_max ({v_max:g})"


def _distributions_have_the_cross_entropy(atoms: int | None, loss: str) -> str | None:
    if atoms is None or loss == "huber":
        return None
    return (
        f"learning.loss={loss} is for Q-values, network.atoms={atoms} learns distributions by "
        "their cross-entropy; remove one of them"
    )


def _noise_is_the_agents(agent: str, noise: str) -> str | None:
    spec = AGENT_SPECS[agent]
    other = spec.changed(noise=noise)  # the kind is free where the other kind has no agent
    if not spec.noisy or noise == spec.noise or other is None:
        return None
    return (
        f"{agent} expects exploration.noise={spec.noise}, got {noise}; choose the agent "
        f"{other.name} instead"
    )


def _f_shapes_factorised_noise(noise: str, f: str) -> str | None:
    if noise == "factorised" or f == "signed_sqrt":
        return None
    return (
        f"exploration.f={f} shapes factorised noise, exploration.noise={noise} has no f; remove "
        "one of them"
    )


def _a_noisy_lstm_needs_an_lstm_and_noise(
    agent: str, noisy_lstm: bool, recurrent: bool
) -> str | None:
    noisy = AGENT_SPECS[agent].noisy
    if not noisy_lstm or (recurrent and noisy):
        return None
    missing = [] if recurrent else ["recurrent=true"]
    missing += [] if noisy else ["an agent noisynet-…"]
    return f"noisy_lstm=true expects {' and '.join(missing)}, got {agent} without"


def _only_value_agents_compile(agent: str, compute: str) -> str | None:
    if compute != "compile" or AGENT_SPECS[agent].family == "value":
        return None
    return f"compute=compile is for value agents; {agent} expects compute=auto or compute=torch"


def _replay_holds_a_batch(capacity: int, batch: int) -> str | None:
    if capacity >= batch:
        return None
    return f"replay.capacity_steps ({capacity}) is below learning.batch_size ({batch})"


def _learning_starts_within_capacity(starts: int, capacity: int) -> str | None:
    if starts <= capacity:
        return None
    return (
        f"learning.starts_steps ({starts}) is above replay.capacity_steps ({capacity}): the replay "
        "never holds that many"
    )


def _learning_starts_with_a_batch(starts: int, batch: int) -> str | None:
    if starts >= batch:
        return None
    return f"learning.starts_steps ({starts}) is below learning.batch_size ({batch})"


def _learning_starts_with_n_step_returns(starts: int, num_envs: int, n_step: int) -> str | None:
    if starts >= num_envs * n_step:
        return None
    return (
        f"learning.starts_steps ({starts}) is below num_envs × learning.n_step "
        f"({num_envs * n_step}): the first batch would have no complete n-step return"
    )


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


_RULES: Final[tuple[tuple[tuple[str, ...], Callable[..., str | None]], ...]] = (
    (("agent", "exploration.kind"), _exploration_is_the_agents),
    (("agent", "network.dueling"), _head_is_the_agents),
    (("agent", "network.atoms"), _distributions_are_the_agents),
    (("network.v_min", "network.v_max"), _the_range_is_not_empty),
    (("network.atoms", "learning.loss"), _distributions_have_the_cross_entropy),
    (("agent", "exploration.noise"), _noise_is_the_agents),
    (("exploration.noise", "exploration.f"), _f_shapes_factorised_noise),
    (("agent", "noisy_lstm", "recurrent"), _a_noisy_lstm_needs_an_lstm_and_noise),
    (("agent", "compute"), _only_value_agents_compile),
    (("replay.capacity_steps", "learning.batch_size"), _replay_holds_a_batch),
    (("learning.starts_steps", "replay.capacity_steps"), _learning_starts_within_capacity),
    (("learning.starts_steps", "learning.batch_size"), _learning_starts_with_a_batch),
    (
        ("learning.starts_steps", "num_envs", "learning.n_step"),
        _learning_starts_with_n_step_returns,
    ),
    (
        ("exploration.redraw", "exploration.used_in", "num_envs"),
        _noise_per_episode_needs_one_environment,
    ),
)
