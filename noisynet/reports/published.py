"""The paper's published scores, the references of its normalisation, and its tables."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Final, Literal, NamedTuple

from noisynet.reports.agents import AGENTS
from noisynet.reports.scores import Reference

ReferenceName = Literal["unrounded", "printed"]


class PublishedScore(NamedTuple):
    """One entry of Table 3: mean and standard deviation of the maximal scores of three seeds."""

    mean: float
    std: float


class PrintedRow(NamedTuple):
    """One row of Table 2, whose first three rows are Table 1; in per cent."""

    baseline_mean: int
    baseline_median: int
    noisy_mean: int
    noisy_median: int
    improvement: int


PRINTED: Final[dict[str, PrintedRow]] = {
    "noisynet-dqn": PrintedRow(319, 83, 379, 123, 48),
    "noisynet-dueling": PrintedRow(524, 132, 633, 172, 30),
    "noisynet-a3c": PrintedRow(293, 80, 347, 94, 18),
    "noisynet-a3c-factorised": PrintedRow(293, 80, 276, 99, 24),
}
"""Tables 1 and 2 as printed, by noisy agent."""

REFERENCES: Final[dict[ReferenceName, str]] = {
    "unrounded": "references of Wang et al. 2016, unrounded, but 0 for Video Pinball's random",
    "printed": "references as printed in Table 3: rounded, with two digit slips",
}
"""The two sets of references; only the first reproduces the paper's Table 1."""


def _read_csv(name: str) -> list[dict[str, str]]:
    text = (files("noisynet") / "data" / name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


@cache
def published_scores() -> Mapping[str, Mapping[str, PublishedScore]]:
    """Table 3, by agent and game; without factorised NoisyNet-A3C."""
    rows = _read_csv("paper_scores.csv")
    columns = {agent: agent.replace("-", "_") for agent in AGENTS}
    return {
        agent: {
            row["game"]: PublishedScore(float(row[column]), float(row[f"{column}_std"]))
            for row in rows
        }
        for agent, column in columns.items()
        if column in rows[0]
    }


@cache
def atari_references(name: ReferenceName | Literal["source"]) -> Mapping[str, Reference]:
    """The random and human scores of the 57 games; "source" for all as Wang et al. published."""
    file = "paper_scores.csv" if name == "printed" else "reference_scores.csv"
    random = "random_used_for_means" if name == "unrounded" else "random"
    return {
        row["game"]: Reference(float(row[random]), float(row["human"])) for row in _read_csv(file)
    }
