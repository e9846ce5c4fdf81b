"""The agents: their titles, their baselines, and the style of their plots."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

AgentKind = Literal["value", "actor-critic"]


@dataclass(frozen=True)
class AgentStyle:
    """The title and plot style of an agent, and the `baseline` that a noisy one is compared with.

    Colours are safe for colour-blind readers (Wong 2011, then Tol 2021). Agents that are not
    `in_paper` have tables and figures of their own.
    """

    title: str
    kind: AgentKind
    colour: str
    baseline: str = ""
    in_paper: bool = True

    @property
    def noisy(self) -> bool:
        """Whether it explores by noise; other agents have thinner lines."""
        return bool(self.baseline)


STYLES: Final[dict[str, AgentStyle]] = {
    "dqn": AgentStyle("DQN", "value", "#0072B2"),
    "noisynet-dqn": AgentStyle("NoisyNet-DQN", "value", "#D55E00", "dqn"),
    "dueling": AgentStyle("Dueling", "value", "#56B4E9"),
    "noisynet-dueling": AgentStyle("NoisyNet-Dueling", "value", "#E69F00", "dueling"),
    "a3c": AgentStyle("A3C", "actor-critic", "#009E73"),
    "noisynet-a3c": AgentStyle("NoisyNet-A3C", "actor-critic", "#CC79A7", "a3c"),
    "noisynet-a3c-factorised": AgentStyle(
        "NoisyNet-A3C (factorised)", "actor-critic", "#000000", "a3c"
    ),
    "c51": AgentStyle("C51", "value", "#999933", in_paper=False),
    "noisynet-c51": AgentStyle("NoisyNet-C51", "value", "#CC3311", "c51", in_paper=False),
    "rainbow-without-noise": AgentStyle(
        "Rainbow without noise", "value", "#888888", in_paper=False
    ),
    "rainbow": AgentStyle("Rainbow", "value", "#762A83", "rainbow-without-noise", in_paper=False),
}
"""By the agent's name in a configuration: the order of the paper's Table 2, then the others."""

AGENTS: Final = tuple(STYLES)

_LONGEST_VARIANT: Final = 120  # characters

NOT_SETTINGS: Final = (
    *("agent", "environment", "environment_options", "seed", "frames", "evaluation"),
    *("max_episode_frames", "checkpoint_period_frames", "log_period_steps", "threads", "made_by"),
)
"""Settings on which runs of one contender may differ: identity, protocol and logging."""

FACTORISED_A3C: Final = "noisynet-a3c-factorised"
"""In Table 2 and Figure 5, but not in Table 1 and Figure 2."""


@dataclass(frozen=True)
class Contender:
    """An agent with its settings: what a report compares. Ordered as in `STYLES`.

    `variant` has the settings that differ from the agent's most common ones, as in
    "exploration.sigma0=0.1".
    """

    agent: str
    variant: str = ""

    def __lt__(self, other: Contender) -> bool:
        ranks = [(AGENTS.index(one.agent), one.variant) for one in (self, other)]
        return ranks[0] < ranks[1]

    @property
    def title(self) -> str:
        """Its name in tables and figures."""
        title = STYLES[self.agent].title
        return f"{title} [{self.variant}]" if self.variant else title

    @property
    def file_name(self) -> str:
        """Its agent and variant in the name of a file."""
        kept = "".join(c if c.isascii() and c.isalnum() else "-" for c in self.variant)
        return f"{self.agent}-{kept}" if kept else self.agent

    @property
    def style(self) -> AgentStyle:
        """The style of its agent."""
        return STYLES[self.agent]


def settings_difference(settings: Mapping[str, str], common: Mapping[str, str]) -> str:
    """The settings that differ from the common ones, as in "exploration.sigma0=0.1"."""
    keys = [key for key in {**common, **settings} if settings.get(key) != common.get(key)]
    text = ", ".join(f"{key}={settings.get(key, 'nothing')}".replace('"', "") for key in keys)
    if len(text) > _LONGEST_VARIANT:  # it is a title, and a part of file names
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        text = f"{text[:_LONGEST_VARIANT]}… ({len(keys)} settings, {digest})"
    return text
