"""The agents of the paper: what they are called, which are compared, and how each is drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

AgentKind = Literal["value", "actor-critic"]


@dataclass(frozen=True)
class AgentStyle:
    """How an agent is named and drawn, the same everywhere.

    Attributes:
        title: its name in the paper.
        kind: value agents and actor-critic agents have budgets of their own.
        colour: of everything drawn for it, told apart by colour-blind readers (Wong 2011).
        noisy: whether it explores by noise; plain agents have thinner lines.
    """

    title: str
    kind: AgentKind
    colour: str
    noisy: bool


STYLES: Final[dict[str, AgentStyle]] = {
    "dqn": AgentStyle("DQN", "value", "#0072B2", noisy=False),
    "noisynet-dqn": AgentStyle("NoisyNet-DQN", "value", "#D55E00", noisy=True),
    "dueling": AgentStyle("Dueling", "value", "#56B4E9", noisy=False),
    "noisynet-dueling": AgentStyle("NoisyNet-Dueling", "value", "#E69F00", noisy=True),
    "a3c": AgentStyle("A3C", "actor-critic", "#009E73", noisy=False),
    "noisynet-a3c": AgentStyle("NoisyNet-A3C", "actor-critic", "#CC79A7", noisy=True),
    "noisynet-a3c-factorised": AgentStyle(
        "NoisyNet-A3C (factorised)", "actor-critic", "#000000", noisy=True
    ),
}
"""By the name that the command line has, in the order of the paper's Table 2."""

AGENTS: Final = tuple(STYLES)

BASELINE: Final[dict[str, str]] = {
    "noisynet-dqn": "dqn",
    "noisynet-dueling": "dueling",
    "noisynet-a3c": "a3c",
    "noisynet-a3c-factorised": "a3c",
}
"""The agent that each noisy one is compared with."""


@dataclass(frozen=True, order=True)
class Contender:
    """An agent with its settings, as the report compares it.

    Attributes:
        rank: of the agent, in the paper's order.
        agent: the name of the agent.
        variant: the settings that tell it from the other contenders of the same agent, as in
            "exploration.sigma0=0.1"; empty for the usual settings.
    """

    rank: int
    agent: str
    variant: str = ""

    @property
    def title(self) -> str:
        """Its name for people."""
        title = STYLES[self.agent].title
        return f"{title} [{self.variant}]" if self.variant else title

    @property
    def style(self) -> AgentStyle:
        """How the agent is drawn."""
        return STYLES[self.agent]


def contender(agent: str, variant: str = "") -> Contender:
    """The contender of an agent that `STYLES` knows."""
    return Contender(AGENTS.index(agent), agent, variant)
