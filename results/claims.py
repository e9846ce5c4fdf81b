"""The paper's claims, each answered from the studies that have data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from result_tables import greedy_maxima, noise_sentences, score_verdicts, sigma_sentences
from studies import STUDIES, RunData, StudyData, baseline, maxima, means
from verdicts import sentence

from noisynet.reports.agents import Contender
from noisynet.reports.scores import Floats

Studies = Mapping[str, StudyData]
# Studies of agents with the paper's settings, not of variants.
_COMPARISONS: Final = ("minatar", "minatar-a3c", "rainbow", "pong")
INDEPENDENT: Final = Contender("noisynet-a3c")
FACTORISED: Final = Contender("noisynet-a3c-factorised")


def _against_baseline(studies: Studies, number: Callable[[Sequence[RunData]], Floats]) -> list[str]:
    lines = []
    for name in _COMPARISONS:
        study = studies.get(name)
        for noisy in study.contenders if study else []:
            if study and noisy.style.noisy:
                plain = baseline(noisy)
                found = score_verdicts(study, noisy, plain, number)
                if found:
                    subject = f"{study.title(noisy)} against {study.title(plain)}"
                    lines.append(sentence(subject, found))
    return lines


def faster(studies: Studies) -> list[str]:
    """Does noise speed up learning? By the mean of the curve."""
    return _against_baseline(studies, means)


def higher(studies: Studies) -> list[str]:
    """Does noise raise the score? By the maximum of the curve."""
    return _against_baseline(studies, maxima)


def higher_off(studies: Studies) -> list[str]:
    """Does having learnt with noise raise the score of mean weights?"""
    return _against_baseline(studies, greedy_maxima)


def sigma(studies: Studies) -> list[str]:
    """Does Σ̄ fall in the last layers, and not always in the hidden ones?"""
    return [
        line for name in _COMPARISONS if name in studies for line in sigma_sentences(studies[name])
    ]


def factorised(studies: Studies) -> list[str]:
    """Is factorised noise as good as independent noise, for A3C?"""
    lines = []
    for name in ("minatar-a3c", "pong"):
        study = studies.get(name)
        for number, title in ((maxima, "score"), (means, "mean of the curve")):
            if study:
                found = score_verdicts(study, FACTORISED, INDEPENDENT, number)
                if found:
                    subject = f"{STUDIES[name]}, factorised against independent, {title}"
                    lines.append(sentence(subject, found))
    return lines


def on_off(studies: Studies) -> list[str]:
    """Do the same weights score higher with noise or without?"""
    return [
        line for name in _COMPARISONS if name in studies for line in noise_sentences(studies[name])
    ]


CLAIMS: Final[dict[str, Callable[[Studies], list[str]]]] = {
    "claim-faster": faster,
    "claim-higher": higher,
    "claim-higher-off": higher_off,
    "claim-sigma": sigma,
    "claim-factorised": factorised,
    "claim-noise": on_off,
}
"""By the name of the block of the page."""
