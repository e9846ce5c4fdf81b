"""Libraries in JAX, whose noise was read in their source: the audit records PyTorch modules.

Evidence names the file and its lines at the commit.
"""

from __future__ import annotations

from typing import Any, Final

from noisynet.audit import Check, NoiseReport, checks

_DOPAMINE: Final = (
    Check(checks.ACTING, True, "a key for each action (full_rainbow_agent.py:86-92)"),
    Check(checks.LEARNING, True, "keys for all passes (full_rainbow_agent.py:141-156, 220-223)"),
    Check(checks.MODE, None, "`eval_mode` is an argument; JAX has no train()/eval()"),
    Check(checks.FRESH, True, "keys are split for every action and every update"),
    Check(checks.HELD, True, "one pass for each role and phase"),
    Check(checks.BATCH, True, "`vmap` over states, not over the key (full_rainbow_agent.py:98)"),
    Check(
        checks.ROLES,
        False,
        "`target_output` gives one key to target and selector (full_rainbow_agent.py:220-223)",
    ),
    Check(
        checks.LAYERS,
        False,
        "one key for all layers of a pass (networks.py:533-542, 588-594): the value and advantage "
        "streams have the same input noise",
    ),
    Check(checks.MOMENTS, True, "standard normals through f (networks.py:512-518)"),
    Check(checks.STRUCTURE, True, "factorised (networks.py:512-518)"),
    Check(checks.SCALE, True, "0.1/√inputs for both (networks.py:502-504)"),
    Check(checks.GRADIENT, True, "σ is a parameter of the loss (networks.py:521-529)"),
    Check(
        checks.EVALUATION,
        False,
        "`step` replaces the agent's key in `eval_mode`, too (full_rainbow_agent.py:539-543); the "
        "schedule of its configuration, `continuous_train`, has no evaluation",
    ),
    Check(checks.SAVED, True, "parameters are μ and σ"),
)
_DQN_ZOO: Final = (
    Check(checks.ACTING, True, "a key for each action (rainbow/agent.py:127-128)"),
    Check(checks.LEARNING, True, "keys for all passes (rainbow/agent.py:87-95)"),
    Check(checks.MODE, None, "JAX has no train()/eval()"),
    Check(checks.FRESH, True, "keys are split for every action and every update"),
    Check(checks.HELD, True, "one pass for each role and phase"),
    Check(checks.BATCH, True, "noise of shape [1, n] is broadcast (networks.py:168-170)"),
    Check(checks.ROLES, True, "a key for each of three passes (rainbow/agent.py:87-95)"),
    Check(checks.LAYERS, True, "`hk.next_rng_key` in each layer (networks.py:169-170)"),
    Check(
        checks.MOMENTS,
        False,
        "normals truncated to ±2 (networks.py:143): f(ε) has a variance of 0.72 instead of 0.80",
    ),
    Check(checks.STRUCTURE, True, "factorised (networks.py:172-176)"),
    Check(checks.SCALE, True, "one constant for both (networks.py:157-165)"),
    Check(checks.GRADIENT, True, "σ is a parameter of the loss (networks.py:160-175)"),
    Check(checks.EVALUATION, True, "a second actor with its own key (run_atari.py:237-258)"),
    Check(checks.SAVED, True, "parameters are μ and σ"),
)


def _entry(version: str, name: str, answers: tuple[Check, ...]) -> dict[str, Any]:
    agent = {"name": name, "driven": "read, not run", **NoiseReport(answers).to_dict()}
    return {"version": version, "agent": agent}


READINGS: Final = {
    "Dopamine": _entry("5873f54", "`JaxFullRainbowAgent`", _DOPAMINE),
    "dqn_zoo": _entry("45061f4", "`Rainbow`", _DQN_ZOO),
}
"""What a contestant would have handed over, by library."""
