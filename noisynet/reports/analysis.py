"""The statistics of a study: every number of its tables and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from noisynet import paper
from noisynet.reports.agents import BASELINE, FACTORISED_A3C, AgentKind, Contender
from noisynet.reports.load_metrics import NoiseMode
from noisynet.reports.load_runs import FAMILY_TITLES
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
    human_normalised,
    mean_over_seeds,
    probability_of_improvement,
    relative_score,
    tally,
)
from noisynet.reports.study import Study, table_label, task_game

PUBLISHED_FRAMES: Final[dict[AgentKind, int]] = {
    "value": paper.TRAINING_FRAMES,
    "actor-critic": paper.A3C_TRAINING_FRAMES,
}
"""Training frames of the published agents."""

BASELINES: Final = {"DQN": "dqn", "Dueling": "dueling", "A3C": "a3c"}
"""The baselines of the paper's three comparisons, by title."""

OTHER_BASELINES: Final = {"C51": "c51", "Rainbow": "rainbow-without-noise"}
"""The baselines of agents that are not in the paper, by title."""


@dataclass(frozen=True)
class Normaliser:
    """Normalises scores of different environments.

    Attributes:
        label: of an axis, as in "human-normalised score (%)".
        sentence: explains 0 and 100.
        references: by task; tasks without one are in no aggregate.
    """

    label: str
    sentence: str
    references: Mapping[str, Reference]


def make_normaliser(study: Study, references: ReferenceName = "unrounded") -> Normaliser:
    """Human and random scores for Atari; the measured range elsewhere."""
    if study.family == "atari":
        known = atari_references(references)
        return Normaliser(
            "human-normalised score (%)",
            "Scores are human-normalised by Eq. 18: 0 is a random agent, 100 a human "
            f"({REFERENCES[references]}).",
            {task: known[task_game(task)[1]] for task in study.tasks},
        )
    measured = {task: _range(study, task) for task in study.tasks}
    return Normaliser(
        "normalised score (%)",
        f"{FAMILY_TITLES[study.family]} has no human scores. Scores are normalised in each "
        "environment by what was measured here: 0 is the lowest and 100 the highest evaluation of "
        "any run. They compare agents within this report only.",
        {task: found for task, found in measured.items() if found is not None},
    )


def _range(study: Study, task: str) -> Reference | None:
    """The lowest and the highest evaluation on a task; None if they are equal."""
    curves = [
        study.curves(contender, task, unfinished=True).ravel() for contender in study.contenders
    ]
    scores = np.concatenate(curves)
    scores = scores[~np.isnan(scores)]
    if not scores.size or scores.min() == scores.max():
        return None
    return Reference(float(scores.min()), float(scores.max()))


@dataclass(frozen=True)
class Analysis:
    """The statistics of a study.

    Attributes:
        study: the runs.
        normaliser: of their scores.
        seed: of the bootstrap.
    """

    study: Study
    normaliser: Normaliser
    seed: int = 0

    def tasks(self, *contenders: Contender) -> list[str]:
        """The tasks with a reference on which each of the contenders has complete runs."""
        known = self.normaliser.references
        return [task for task in self.study.tasks_of(*contenders) if task in known]

    @cached_property
    def not_normalised(self) -> list[str]:
        """Tasks without a reference."""
        return [task for task in self.study.tasks if task not in self.normaliser.references]

    def compared_with(self, baseline: str, *, factorised_a3c: bool = False) -> list[Contender]:
        """The contenders of a baseline agent and of its NoisyNet version, if they have runs.

        Args:
            baseline: its name.
            factorised_a3c: whether to include NoisyNet-A3C with factorised noise.
        """
        return [
            contender
            for contender in self.study.contenders
            if baseline in (contender.agent, BASELINE.get(contender.agent))
            and (factorised_a3c or contender.agent != FACTORISED_A3C)
        ]

    # --- one contender ---------------------------------------------------------------------------

    def strata(
        self, contender: Contender, tasks: Sequence[str], noise: NoiseMode | None = None
    ) -> Strata:
        """Normalised scores of a contender's complete runs."""
        references = self.normaliser.references
        return Strata.of(
            [
                human_normalised(self.study.scores(contender, task, noise), references[task])
                for task in tasks
            ]
        )

    def estimate(
        self, statistic: Statistic, contender: Contender, tasks: Sequence[str]
    ) -> Estimate:
        """A statistic of a contender's normalised scores, with its confidence interval."""
        return estimate(statistic, self.strata(contender, tasks), seed=self.seed)

    def mean_curve(self, contender: Contender, task: str, noise: NoiseMode | None = None) -> Floats:
        """Mean score over complete runs at each evaluation: [K]."""
        return mean_over_seeds(self.study.curves(contender, task, noise=noise))

    def median_curve(
        self, contender: Contender, tasks: Sequence[str], noise: NoiseMode | None = None
    ) -> Floats:
        """Median over tasks of the normalised mean curves: [K], as in Fig. 2."""
        references = self.normaliser.references
        curves = [
            human_normalised(self.mean_curve(contender, task, noise), references[task])
            for task in tasks
        ]
        return np.asarray(np.median(curves, axis=0))  # NaN if a task has no evaluation

    # --- two contenders --------------------------------------------------------------------------

    def relative(self, noisy: Contender, baseline: Contender) -> dict[str, float]:
        """Eq. 19 on each task on which both have complete runs."""
        return {
            task: relative_score(
                float(self.study.scores(noisy, task).mean()),
                float(self.study.scores(baseline, task).mean()),
                self.normaliser.references[task],
            )
            for task in self.tasks(noisy, baseline)
        }

    def tally(self, noisy: Contender, baseline: Contender) -> Tally:
        """Wins, ties and losses of the mean score over tasks."""
        pairs = [
            [float(self.study.scores(contender, task).mean()) for contender in (noisy, baseline)]
            for task in self.study.tasks_of(noisy, baseline)
        ]
        return tally([pair[0] for pair in pairs], [pair[1] for pair in pairs])

    def improvement(self, noisy: Contender, baseline: Contender) -> Estimate:
        """The probability that a run of `noisy` scores higher than one of `baseline`."""
        tasks = self.tasks(noisy, baseline)
        both = (self.strata(contender, tasks) for contender in (noisy, baseline))
        return estimate(probability_of_improvement, *both, seed=self.seed)

    # --- published -------------------------------------------------------------------------------

    def published(self, contender: Contender, task: str) -> PublishedScore | None:
        """The published score of an agent on a game, for contenders without a variant."""
        if self.study.family != "atari" or contender.variant:
            return None
        return (
            published_scores().get(contender.agent, {}).get(table_label(task))
        )  # None with other options

    def published_strata(self, contender: Contender, tasks: Sequence[str]) -> Strata | None:
        """Normalised published scores, one per task; None unless all are published."""
        found = [self.published(contender, task) for task in tasks]
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
        """Eq. 19 of published scores, on tasks for which both are published."""
        found = {}
        for task in tasks:
            scores = self.published(noisy, task), self.published(baseline, task)
            if scores[0] is not None and scores[1] is not None:
                reference = self.normaliser.references[task]
                found[task] = relative_score(scores[0].mean, scores[1].mean, reference)
        return found
