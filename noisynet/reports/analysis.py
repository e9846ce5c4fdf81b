"""A study with its normalisation: the numbers that tables and figures show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from noisynet import paper
from noisynet.reports.agents import AgentKind, Contender
from noisynet.reports.load_metrics import Noise
from noisynet.reports.load_runs import SUITES
from noisynet.reports.published import (
    REFERENCES,
    PublishedScore,
    ReferenceName,
    atari_references,
    published_scores,
)
from noisynet.reports.scores import (
    Estimate,
    Floats,
    Reference,
    Statistic,
    Strata,
    Tally,
    estimate,
    estimate_improvement,
    human_normalised,
    mean_over_seeds,
    relative_score,
    tally,
)
from noisynet.reports.study import Study

PUBLISHED_FRAMES: Final[dict[AgentKind, int]] = {
    "value": paper.TRAINING_FRAMES,
    "actor-critic": paper.A3C_TRAINING_FRAMES,
}
"""How long the published agents were trained."""


FAMILIES: Final = {"DQN": "dqn", "Dueling": "dueling", "A3C": "a3c"}
"""The three comparisons of the paper, by the agent that both of each are built on."""


@dataclass(frozen=True)
class Normaliser:
    """How the scores of different environments are made comparable.

    Attributes:
        label: of an axis, as in "human-normalised score (%)".
        sentence: what 0 and 100 are.
        references: by task; tasks without one take no part in aggregates.
    """

    label: str
    sentence: str
    references: Mapping[str, Reference]


def normaliser_of(study: Study, references: ReferenceName = "unrounded") -> Normaliser:
    """The paper's on Atari; elsewhere what was measured, for nobody published references."""
    if study.suite == "atari":
        known = {f"atari/{game}": found for game, found in atari_references(references).items()}
        return Normaliser(
            "human-normalised score (%)",
            "Scores are human-normalised by Eq. 18: 0 is a random agent, 100 a human "
            f"({REFERENCES[references]}).",
            {
                task: known[task.split(" ")[0]]
                for task in study.tasks
                if task.split(" ")[0] in known
            },
        )
    measured = {task: _range(study, task) for task in study.tasks}
    return Normaliser(
        "normalised score (%)",
        f"{SUITES[study.suite]} has no human scores. Scores are normalised in each environment by "
        "what was measured here: 0 is the lowest and 100 the highest evaluation of any run. They "
        "compare agents within this report and mean nothing beside another one.",
        {task: found for task, found in measured.items() if found is not None},
    )


def _range(study: Study, task: str) -> Reference | None:
    """The lowest and the highest evaluation on a task; None where they are equal."""
    curves = [study.curves(who, task, unfinished=True).ravel() for who in study.contenders]
    scores = np.concatenate(curves)
    scores = scores[~np.isnan(scores)]
    if not scores.size or scores.min() == scores.max():
        return None
    return Reference(float(scores.min()), float(scores.max()))


@dataclass(frozen=True)
class Analysis:
    """What is computed from a study, each number in one place.

    Attributes:
        study: the runs.
        normaliser: of their scores.
        seed: of every bootstrap.
    """

    study: Study
    normaliser: Normaliser
    seed: int = 0

    def tasks(self, *who: Contender) -> list[str]:
        """Where all of these contenders have complete runs and scores can be normalised."""
        known = self.normaliser.references
        return [task for task in self.study.tasks_of(*who) if task in known]

    @cached_property
    def not_normalised(self) -> list[str]:
        """Tasks without a reference."""
        return [task for task in self.study.tasks if task not in self.normaliser.references]

    def family(self, agent: str) -> list[Contender]:
        """An agent and its NoisyNet version, variants included, as far as they have runs."""
        both = (agent, f"noisynet-{agent}")
        return [who for who in self.study.contenders if who.agent in both]

    # --- one contender ---------------------------------------------------------------------------

    def strata(self, who: Contender, tasks: Sequence[str], noise: Noise | None = None) -> Strata:
        """Normalised scores of the complete runs on some tasks."""
        references = self.normaliser.references
        return Strata.of(
            [
                human_normalised(self.study.scores(who, task, noise), references[task])
                for task in tasks
            ]
        )

    def estimate(self, statistic: Statistic, who: Contender, tasks: Sequence[str]) -> Estimate:
        """A statistic of a contender's normalised scores, with its interval."""
        return estimate(statistic, self.strata(who, tasks), seed=self.seed)

    def mean_curve(self, who: Contender, task: str, noise: Noise | None = None) -> Floats:
        """Scores averaged over complete seeds at each evaluation: [K]."""
        return mean_over_seeds(self.study.curves(who, task, noise=noise))

    def median_curve(
        self, who: Contender, tasks: Sequence[str], noise: Noise | None = None
    ) -> Floats:
        """The median over tasks of normalised curves, seeds averaged first: [K], as in Fig. 2."""
        references = self.normaliser.references
        curves = [
            human_normalised(self.mean_curve(who, task, noise), references[task]) for task in tasks
        ]
        return np.asarray(np.median(curves, axis=0))  # NaN where a task has no evaluation

    # --- two contenders --------------------------------------------------------------------------

    def relative(self, noisy: Contender, baseline: Contender) -> dict[str, float]:
        """Eq. 19 on each task that both have."""
        return {
            task: relative_score(
                float(self.study.scores(noisy, task).mean()),
                float(self.study.scores(baseline, task).mean()),
                self.normaliser.references[task],
            )
            for task in self.tasks(noisy, baseline)
        }

    def tally(self, noisy: Contender, baseline: Contender) -> Tally:
        """On how many tasks the mean score is higher, equal and lower."""
        pairs = [
            [float(self.study.scores(who, task).mean()) for who in (noisy, baseline)]
            for task in self.study.tasks_of(noisy, baseline)
        ]
        return tally([pair[0] for pair in pairs], [pair[1] for pair in pairs])

    def improvement(self, noisy: Contender, baseline: Contender) -> Estimate:
        """How likely a run of `noisy` is to score higher than one of `baseline`."""
        tasks = self.tasks(noisy, baseline)
        both = (self.strata(who, tasks) for who in (noisy, baseline))
        return estimate_improvement(*both, seed=self.seed)

    # --- published -------------------------------------------------------------------------------

    def published(self, who: Contender, task: str) -> PublishedScore | None:
        """What the paper has for this agent and game, at its usual settings."""
        if self.study.suite != "atari" or who.variant:
            return None
        return published_scores().get(who.agent, {}).get(task.removeprefix("atari/"))

    def published_strata(self, who: Contender, tasks: Sequence[str]) -> Strata | None:
        """Published scores on these tasks, one for each; None unless all are published."""
        found = [self.published(who, task) for task in tasks]
        if not tasks or any(score is None for score in found):
            return None
        references = self.normaliser.references
        return Strata.of(
            [
                human_normalised(score.mean, references[task])
                for score, task in zip(found, tasks, strict=True)
                if score is not None
            ]
        )

    def published_relative(
        self, noisy: Contender, baseline: Contender, tasks: Sequence[str]
    ) -> dict[str, float]:
        """Eq. 19 for published scores, where both are published."""
        found = {}
        for task in tasks:
            scores = self.published(noisy, task), self.published(baseline, task)
            if scores[0] is not None and scores[1] is not None:
                reference = self.normaliser.references[task]
                found[task] = relative_score(scores[0].mean, scores[1].mean, reference)
        return found
