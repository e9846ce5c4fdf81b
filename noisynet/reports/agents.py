"""The agents: their titles, their baselines, and the style of their plots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

AgentKind = Literal["value", "actor-critic"]


@dataclass(frozen=True)
class AgentStyle:
    """The title and plot style of an agent.

    Attributes:
        title: its name in tables and figures.
        kind: value and actor-critic agents may have different budgets.
        colour: of its lines and bars, safe for colour-blind readers (Wong 2011, then Tol 2021).
        noisy: whether it explores by noise; other agents have thinner lines.
        in_paper: whether it is an agent of the paper; the others have tables and figures of their
            own.
    """

    title: str
    kind: AgentKind
    colour: str
    noisy: bool
    in_paper: bool = True


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
    "c51": AgentStyle("C51", "value", "#999933", noisy=False, in_paper=False),
    "noisynet-c51": AgentStyle("NoisyNet-C51", "value", "#CC3311", noisy=True, in_paper=False),
    "rainbow-without-noise": AgentStyle(
        "Rainbow without noise", "value", "#888888", noisy=False, in_paper=False
    ),
    "rainbow": AgentStyle("Rainbow", "value", "#762A83", noisy=True, in_paper=False),
}
"""By the agent's name in a configuration: the order of the paper's Table 2, then the others."""

AGENTS: Final = tuple(STYLES)

FACTORISED_A3C: Final = "noisynet-a3c-factorised"
"""In Table 2 and Figure 5, but not in Table 1 and Figure 2."""

BASELINE: Final[dict[str, str]] = {
    "noisynet-dqn": "dqn",
    "noisynet-dueling": "dueling",
    "noisynet-a3c": "a3c",
    "noisynet-a3c-factorised": "a3c",
    "noisynet-c51": "c51",
    "rainbow": "rainbow-without-noise",
}
"""The agent that each noisy agent is compared with."""


@dataclass(frozen=True, order=True)
class Contender:
    """An agent with its settings: what a report compares.

    Attributes:
        rank: of the agent, in the order of `STYLES`.
        agent: the name of the agent.
        variant: the settings that differ from the agent's most common ones, as in
            "exploration.sigma0=0.1"; empty for the most common ones.
    """

    rank: int
    agent: str
    variant: str = ""

    @property
    def title(self) -> str:
        """Its name in tables and figures."""
        title = STYLES[self.agent].title
        return f"{title} [{self.variant}]" if self.variant else title

    @property
    def file_name(self) -> str:
        """Its agent and variant in the name of a file."""
        kept = "".join(c if c.isalnum() else "-" for c in self.variant)
        return f"{self.agent}-{kept}" if kept else self.agent

    @property
    def style(self) -> AgentStyle:
        """The style of its agent."""
        return STYLES[self.agent]


def make_contender(agent: str, variant: str = "") -> Contender:
    """A contender, ranked by its agent."""
    return Contender(AGENTS.index(agent), agent, variant)
