"""The statistics of a study: every number of its tables and figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from noisynet import paper
from noisynet.reports.agents import FACTORISED_A3C, AgentKind, Contender
from noisynet.reports.load_runs import FAMILY_TITLES, NoiseMode
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

AGGREGATED_TASKS: Final = 3
"""Aggregates, profiles and the probability of improvement need at least this many environments."""


@dataclass(frozen=True)
class Analysis:
    """The statistics of a study.

    Scores of different environments are normalised: on Atari by human and random scores, elsewhere
    by the measured range.
    """

    study: Study
    reference_name: ReferenceName = "unrounded"

    # --- normalisation ---------------------------------------------------------------------------

    @cached_property
    def references(self) -> dict[str, Reference]:
        """By task; tasks in which every score is the same have none and are in no aggregate."""
        if self.study.family == "atari":
            known = atari_references(self.reference_name)
            return {task: known[task_game(task)[1]] for task in self.study.tasks}
        references = {}
        for task in self.study.tasks:
            curves = [
                self.study.curves(contender, runs).ravel()
                for (contender, found), runs in self.study.cells.items()
                if found == task
            ]
            scores = np.concatenate(curves)
            scores = scores[~np.isnan(scores)]
            if scores.size and scores.min() < scores.max():
                references[task] = Reference(float(scores.min()), float(scores.max()))
        return references

    @property
    def label(self) -> str:
        """Of an axis of normalised scores."""
        human = "human-" if self.study.family == "atari" else ""
        return f"{human}normalised score (%)"

    @property
    def normalisation(self) -> str:
        """A sentence that explains 0 and 100."""
        if self.study.family == "atari":
            return (
                "Scores are human-normalised by Eq. 18: 0 is a random agent, 100 a human "
                f"({REFERENCES[self.reference_name]})."
            )
        return (
            f"{FAMILY_TITLES[self.study.family]} has no human scores. Scores are normalised in "
            "each environment by what was measured here: 0 is the lowest and 100 the highest "
            "evaluation of any run. They compare agents within this report only."
        )

    def tasks(self, *contenders: Contender) -> list[str]:
        """The tasks with a reference on which each of the contenders has complete runs."""
        return [task for task in self.study.tasks_of(*contenders) if task in self.references]

    # --- one contender ---------------------------------------------------------------------------

    def published(self, contender: Contender, task: str) -> PublishedScore | None:
        """The published score of an agent on a game, for contenders without a variant."""
        if self.study.family != "atari" or contender.variant:
            return None
        # None with other options
        return published_scores().get(contender.agent, {}).get(table_label(task))

    def aggregated(self, *contenders: Contender) -> bool:
        """Whether contenders have complete runs on enough environments for aggregates."""
        return len(self.tasks(*contenders)) >= AGGREGATED_TASKS

    def scores(self, contender: Contender, task: str, *, published: bool = False) -> Floats:
        """The score of each complete run, or the published mean alone; empty without any."""
        if not published:
            return self.study.scores(contender, task)
        score = self.published(contender, task)
        return np.array([score.mean] if score else [])

    def normalised(
        self, contender: Contender, tasks: Sequence[str], *, published: bool = False
    ) -> list[Floats]:
        """Normalised scores of a contender on each task."""
        return [
            human_normalised(
                self.scores(contender, task, published=published), self.references[task]
            )
            for task in tasks
        ]

    def mean_curve(self, contender: Contender, task: str, noise: NoiseMode | None = None) -> Floats:
        """Mean score over complete runs at each evaluation: [K]."""
        runs = self.study.complete(contender, task)
        return mean_over_seeds(self.study.curves(contender, runs, noise))

    def median_curve(
        self, contender: Contender, tasks: Sequence[str], noise: NoiseMode | None = None
    ) -> Floats:
        """Median over tasks of the normalised mean curves: [K], as in Fig. 2."""
        curves = [
            human_normalised(self.mean_curve(contender, task, noise), self.references[task])
            for task in tasks
        ]
        return np.asarray(np.median(curves, axis=0))  # NaN if a task has no evaluation

    # --- two contenders --------------------------------------------------------------------------

    def compared_with(self, baseline: str, *, factorised_a3c: bool = False) -> list[Contender]:
        """The contenders of a baseline agent and of its NoisyNet version, if they have runs."""
        return [
            contender
            for contender in self.study.contenders
            if baseline in (contender.agent, contender.style.baseline)
            and (factorised_a3c or contender.agent != FACTORISED_A3C)
        ]

    def improvement(self, noisy: Contender, baseline: Contender) -> Estimate:
        """The probability that a run of `noisy` scores higher than one of `baseline`."""
        tasks = self.tasks(noisy, baseline)
        both = (self.normalised(contender, tasks) for contender in (noisy, baseline))
        return estimate(probability_of_improvement, *both)

    def relative(
        self, noisy: Contender, baseline: Contender, *, published: bool = False
    ) -> dict[str, float]:
        """Eq. 19 of measured or published scores, on tasks on which both have complete runs."""
        return {
            task: relative_score(*both, self.references[task])
            for task, both in self._mean_scores(noisy, baseline, published).items()
            if task in self.references
        }

    def tally(self, noisy: Contender, baseline: Contender, *, published: bool = False) -> str:
        """Wins/ties/losses of the mean score over tasks; a dash without tasks."""
        scores = self._mean_scores(noisy, baseline, published).values()
        return tally(*zip(*scores, strict=True)) if scores else "–"

    def _mean_scores(
        self, noisy: Contender, baseline: Contender, published: bool
    ) -> dict[str, tuple[float, float]]:
        """The mean scores of both, on each task on which both have complete runs."""
        found = {}
        for task in self.study.tasks_of(noisy, baseline):
            ours, theirs = (
                self.scores(contender, task, published=published) for contender in (noisy, baseline)
            )
            if ours.size and theirs.size:
                found[task] = (float(ours.mean()), float(theirs.mean()))
        return found
