"""The agents, and what their names stand for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, Literal

ValueAgentName = Literal[
    "dqn",
    "dueling",
    "noisynet-dqn",
    "noisynet-dueling",
    "c51",
    "noisynet-c51",
    "rainbow",
    "rainbow-without-noise",
]
ActorCriticAgentName = Literal["a3c", "noisynet-a3c", "noisynet-a3c-factorised"]


@dataclass(frozen=True)
class AgentSpec:
    """What an agent's name stands for.

    Attributes:
        name: as on the command line.
        family: which configuration, agent class and training loop it has.
        noise: the kind of noise on its weights; None for an agent that explores without.
        dueling: whether it has the dueling head (Eq. 3); None: as `network.dueling` says.
        categorical: whether it learns distributions over returns; None: as `network.atoms` says.
    """

    name: str
    family: Literal["value", "actor-critic"]
    noise: Literal["factorised", "independent"] | None = None
    dueling: bool | None = False
    categorical: bool | None = False

    @property
    def noisy(self) -> bool:
        """Whether it explores by noise on its weights."""
        return self.noise is not None

    @property
    def learns(self) -> str:
        """What it learns, for a list of agents."""
        if self.family == "actor-critic":
            return "policy and value, in parallel processes"
        if self.categorical is None:
            return "distributions, dueling, double, n-step, prioritised replay"
        values = "distributions over returns" if self.categorical else "Q-values"
        return f"dueling {values}, double" if self.dueling else values

    @property
    def explores_by(self) -> str:
        """How it explores, for a list of agents."""
        if self.noise:
            return f"{self.noise} noise on its weights"
        return "entropy bonus" if self.family == "actor-critic" else "epsilon-greedy actions"

    def changed(self, **fields: Any) -> AgentSpec | None:
        """The agent that differs from this one in these fields only; None if it has no name."""
        wanted = replace(self, **fields)
        others = AGENT_SPECS.values()
        return next((o for o in others if replace(o, name=wanted.name) == wanted), None)


AGENT_SPECS: Final[dict[str, AgentSpec]] = {
    spec.name: spec
    for spec in (
        AgentSpec("dqn", "value"),
        AgentSpec("dueling", "value", dueling=True),
        AgentSpec("noisynet-dqn", "value", "factorised"),
        AgentSpec("noisynet-dueling", "value", "factorised", dueling=True),
        AgentSpec("c51", "value", categorical=True),
        AgentSpec("noisynet-c51", "value", "factorised", categorical=True),
        # The ablations of Rainbow are settings, except for the one without noise.
        AgentSpec("rainbow", "value", "factorised", dueling=None, categorical=None),
        AgentSpec("rainbow-without-noise", "value", dueling=None, categorical=None),
        AgentSpec("a3c", "actor-critic"),
        AgentSpec("noisynet-a3c", "actor-critic", "independent"),
        AgentSpec("noisynet-a3c-factorised", "actor-critic", "factorised"),
    )
}
AGENTS: Final = tuple(AGENT_SPECS)
VALUE_AGENTS: Final = tuple(s.name for s in AGENT_SPECS.values() if s.family == "value")
ACTOR_CRITIC_AGENTS: Final = tuple(
    s.name for s in AGENT_SPECS.values() if s.family == "actor-critic"
)
