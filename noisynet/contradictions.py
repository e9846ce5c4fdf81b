"""Settings that are each valid but do not go together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

__all__ = ["contradictions"]


def contradictions(settings: Mapping[str, Any]) -> list[str]:
    """Everything that does not go together.

    Args:
        settings: valid values by dotted key. What is missing, because it has an error of its own
            or belongs to another kind, contradicts nothing.

    Returns:
        A sentence for each contradiction.
    """
    found = []
    for keys, judge in _RULES:
        if all(key in settings for key in keys):
            found.append(judge(*(settings[key] for key in keys)))
    return [sentence for sentence in found if sentence is not None]


def _explores_in_its_own_way(agent: str, kind: str) -> str | None:
    if agent.startswith("noisynet") == (kind == "noisy-weights"):
        return None
    return f"{agent} does not explore by {kind}"


def _has_the_head_of_its_name(agent: str, dueling: bool) -> str | None:
    if ("dueling" in agent) == dueling:
        return None
    return (
        f"{agent} expects network.dueling={str(not dueling).lower()}, got {str(dueling).lower()}; "
        "choose the agent instead"
    )


def _has_the_noise_of_its_name(agent: str, noise: str) -> str | None:
    if "a3c" not in agent or agent.endswith("factorised") == (noise == "factorised"):
        return None
    other = "noisynet-a3c-factorised" if noise == "factorised" else "noisynet-a3c"
    expected = "independent" if noise == "factorised" else "factorised"
    return (
        f"{agent} expects exploration.noise={expected}, got {noise}; choose the agent {other} "
        "instead"
    )


def _a_noisy_lstm_is_there_and_of_a_noisy_agent(
    agent: str, noisy_lstm: bool, recurrent: bool
) -> str | None:
    if not noisy_lstm or (recurrent and agent.startswith("noisynet")):
        return None
    missing = [] if recurrent else ["recurrent=true"]
    missing += [] if agent.startswith("noisynet") else ["an agent noisynet-…"]
    return f"noisy_lstm=true expects {' and '.join(missing)}: {agent} has no LSTM to be noisy"


def _the_replay_holds_a_batch(capacity: int, batch: int) -> str | None:
    if capacity >= batch:
        return None
    return f"replay.capacity_steps ({capacity}) is below learning.batch_size ({batch})"


def _learning_starts_before_the_replay_is_full(starts: int, capacity: int) -> str | None:
    if starts <= capacity:
        return None
    return (
        f"learning.starts_steps ({starts}) is above replay.capacity_steps ({capacity}): "
        "learning could not start from a full batch"
    )


def _learning_starts_from_a_batch(starts: int, batch: int) -> str | None:
    if starts >= batch:
        return None
    return f"learning.starts_steps ({starts}) is below learning.batch_size ({batch})"


def _learning_starts_from_complete_returns(starts: int, num_envs: int, n_step: int) -> str | None:
    if starts >= num_envs * n_step:
        return None
    return (
        f"learning.starts_steps ({starts}) is below num_envs × learning.n_step "
        f"({num_envs * n_step}): learning could not start from complete returns"
    )


def _noise_of_episodes_is_for_one_environment(
    redraw: str, used_in: str, num_envs: int
) -> str | None:
    if redraw != "episode" or "acting" not in used_in or num_envs == 1:
        return None
    return (
        f"exploration.redraw=episode expects num_envs=1, got {num_envs}: an episode that begins in "
        "one environment would redraw the noise of all in the midst of theirs; set num_envs=1, or "
        "exploration.redraw=action or update"
    )


_RULES: Final[tuple[tuple[tuple[str, ...], Callable[..., str | None]], ...]] = (
    (("agent", "exploration.kind"), _explores_in_its_own_way),
    (("agent", "network.dueling"), _has_the_head_of_its_name),
    (("agent", "exploration.noise"), _has_the_noise_of_its_name),
    (("agent", "noisy_lstm", "recurrent"), _a_noisy_lstm_is_there_and_of_a_noisy_agent),
    (("replay.capacity_steps", "learning.batch_size"), _the_replay_holds_a_batch),
    (
        ("learning.starts_steps", "replay.capacity_steps"),
        _learning_starts_before_the_replay_is_full,
    ),
    (("learning.starts_steps", "learning.batch_size"), _learning_starts_from_a_batch),
    (
        ("learning.starts_steps", "num_envs", "learning.n_step"),
        _learning_starts_from_complete_returns,
    ),
    (
        ("exploration.redraw", "exploration.used_in", "num_envs"),
        _noise_of_episodes_is_for_one_environment,
    ),
)
