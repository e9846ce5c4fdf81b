"""What intervals say about two agents. Where they overlap, nothing was shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import numpy as np

from noisynet.reports.scores import Estimate, Floats, estimate, interquartile_mean

MIN_SEEDS: Final = 3
"""With fewer there is no verdict."""

Verdict = Literal["higher", "lower", "overlap", "too few seeds"]

TEXTS: Final[dict[Verdict, str]] = {
    "higher": "higher",
    "lower": "lower",
    "overlap": "nothing shown",
    "too few seeds": f"fewer than {MIN_SEEDS} seeds",
}
"""The verdicts in tables."""


def iqm(scores: Floats) -> Estimate:
    """The interquartile mean of one score per seed, with its 95 % bootstrap interval."""
    return estimate(interquartile_mean, [scores])


def compare(ours: Floats, theirs: Floats) -> Verdict:
    """Whether the interval of one agent's scores is above or below that of another's."""
    if min(len(ours), len(theirs)) < MIN_SEEDS:
        return "too few seeds"
    (our_low, our_high), (their_low, their_high) = (_interval(one) for one in (ours, theirs))
    if our_low > their_high:
        return "higher"
    return "lower" if our_high < their_low else "overlap"


def compare_with(values: Floats, reference: float) -> Verdict:
    """Whether the interval of one value per seed is above or below a number."""
    if len(values) < MIN_SEEDS:
        return "too few seeds"
    low, high = _interval(values)
    if low > reference:
        return "higher"
    return "lower" if high < reference else "overlap"


def _interval(scores: Floats) -> tuple[float, float]:
    found = iqm(scores).interval
    assert found is not None  # there are at least two scores
    low, high = np.asarray(found, float)
    return float(low), float(high)


def sentence(
    subject: str,
    verdicts: Mapping[str, Verdict],
    words: Sequence[str] = ("higher", "lower"),
    *,
    what: str = "games",
) -> str:
    """A sentence that counts verdicts, as in "X: higher in 1 of 3 games (Breakout), …".

    Args:
        subject: what is compared.
        verdicts: by the name of each environment; at least one.
        words: for "higher" and "lower".
        what: the environments are.
    """
    texts: dict[Verdict, str] = {
        "higher": words[0],
        "lower": words[1],
        "overlap": "nothing was shown",
        "too few seeds": f"no verdict with {TEXTS['too few seeds']}",
    }
    parts = []
    for verdict, text in texts.items():
        names = [name for name, found in verdicts.items() if found == verdict]
        if names and len(verdicts) == 1:
            parts.append(f"{text} ({names[0]})")
        elif names and len(names) == len(verdicts):
            every = "both" if len(names) == 2 else f"all {len(names)}"
            if verdict == "overlap":
                every = f"any of the {len(names)}"
            parts.append(f"{text} in {every} {what}")
        elif names:
            parts.append(f"{text} in {len(names)} of {len(verdicts)} {what} ({', '.join(names)})")
    return f"{subject}: {'; '.join(parts)}."
