"""The Markdown tables of the studies, and what their intervals say."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from result_figures import solved_episodes
from studies import (
    GROUP_TITLES,
    OF_VARIANTS,
    RunData,
    StudyData,
    baseline,
    curves,
    environment_title,
    layer_groups,
    maxima,
    means,
    noise_differences,
    short_title,
    sigma_ends,
    training_curves,
)
from verdicts import TEXTS, Verdict, compare, compare_with, iqm, sentence

from noisynet.reports.agents import Contender
from noisynet.reports.scores import Floats, estimate, probability_of_improvement, run_scores
from noisynet.reports.table_formats import Cell, Table, interval_cell, number_cell, render_table

PUBLISHED_FRAMES: Final = 500_000
PUBLISHED_MINATAR: Final = {
    "minatar/breakout": 8.3,
    "minatar/space_invaders": 28.0,
    "minatar/asterix": 1.0,
    "minatar/freeway": 34.0,
    "minatar/seaquest": 0.9,
}
"""DQN after 0.5M frames, read from the curves of Young and Tian 2019 (± 0.4)."""
RIVALS: Final = {
    "controls": Contender("dqn"),
    "controls-a3c": Contender("a3c"),
    "controls-freeway": Contender("dqn"),
    "deep-sea-fixed": Contender("dqn"),
    "deep-sea-random": Contender("dqn"),
    "rainbow": Contender("noisynet-dqn"),
    "sigma0": Contender("noisynet-dqn"),
}
"""The agent that all others of a study are compared with; elsewhere each one's baseline."""


def _control_pairs(noisy: str, greedy: Contender) -> tuple[tuple[Contender, Contender], ...]:
    """Noise in some uses against noise in all, and against none."""
    controls = {v: Contender(noisy, v) for v in ("frozen-sigma", "acting-only", "learning-only")}
    some = [controls["acting-only"], controls["learning-only"]]
    whole = Contender(noisy)
    return (*((one, whole) for one in controls.values()), *((one, greedy) for one in some))


_MORE_PAIRS: Final[dict[str, Sequence[tuple[Contender, Contender]]]] = {
    "controls": _control_pairs("noisynet-dqn", Contender("dqn", "epsilon-0")),
    "controls-a3c": (
        (Contender("noisynet-a3c"), Contender("a3c", "entropy-0")),
        *_control_pairs("noisynet-a3c", Contender("a3c", "entropy-0")),
    ),
    "controls-freeway": ((Contender("noisynet-dqn"), Contender("dqn", "epsilon-0")),),
    "rainbow": (
        (Contender("rainbow"), Contender("noisynet-c51")),
        (Contender("rainbow"), Contender("rainbow-without-noise")),
    ),
}


def markdown(table: Table) -> str:
    """A table without its title, which the page has."""
    return render_table(table, "markdown").split("\n\n", 1)[1]


# --- scores --------------------------------------------------------------------------------------


def score_table(study: StudyData, environments: Sequence[str]) -> Table:
    """Scores with intervals, with noise on and off, and verdicts against the baseline."""
    against = rival_title(study)
    table = Table(
        "scores",
        "Scores",
        (
            *("environment", "agent", "seeds", "score", "mean of the curve", "score, noise off"),
            *("noise on − off", f"score against {against}", f"curve against {against}"),
        ),
        ("Noise on − off: the same weights, mean over the second half of the evaluations.",),
    )
    for environment, contender in study.cells(environments):
        runs = study.of(contender, environment)
        noisy = "on" in runs[0].scores
        rival = rival_of(study, contender)
        other = study.of(rival, environment) if rival else []
        table.add(
            environment_title(environment),
            study.title(contender),
            len(runs),
            interval_cell(iqm(maxima(runs)), _digits(maxima(runs))),
            interval_cell(iqm(means(runs)), _digits(maxima(runs))),
            interval_cell(iqm(maxima(runs, "off")), _digits(maxima(runs))) if noisy else Cell("–"),
            interval_cell(iqm(noise_differences(runs)), 2) if noisy else Cell("–"),
            TEXTS[compare(maxima(runs), maxima(other))] if other else "–",
            TEXTS[compare(means(runs), means(other))] if other else "–",
        )
    return table


def seed_table(study: StudyData) -> Table:
    """The best and the last evaluation of every seed."""
    table = Table(
        "seeds",
        "Seeds",
        ("environment", "agent", "best evaluation of each seed", "last evaluation of each seed"),
        ("Evaluations of the run's score: with noise, for agents that have it.",),
    )
    for environment, contender in study.cells():
        found = curves(study.of(contender, environment))
        both = (
            ", ".join(number_cell(float(score), 1).text for score in of)
            for of in (run_scores(found), found[:, -1])
        )
        table.add(environment_title(environment), study.title(contender), *both)
    return table


def training_table(study: StudyData) -> Table:
    """Returns at the end of training, and how many evaluations had no completed game."""
    table = Table(
        "training",
        "Training",
        (
            *("environment", "agent", "frames", "last 100 training games"),
            *("evaluations", "without a completed game"),
        ),
        (
            "The last 100 games of training are played with the agent's own exploration. An "
            "evaluation that completes no game has the partial return of the game that it began.",
        ),
    )
    for environment, contender in study.cells():
        runs = study.of(contender, environment)
        last = training_curves(runs)[:, -1]
        without = {
            mode: sum(len(run.incomplete.get(mode, ())) for run in runs) for mode in runs[0].scores
        }
        table.add(
            environment_title(environment),
            study.title(contender),
            f"{runs[0].frames:,}",
            interval_cell(iqm(last), _digits(last)),
            sum(run.points for run in runs),
            ", ".join(f"{count} with noise {mode}" for mode, count in without.items())
            if len(without) > 1
            else str(without["off"]),
        )
    return table


def _digits(scores: Floats) -> int:
    return 1 if np.abs(scores).max() >= 10 else 2


def rival_of(study: StudyData, contender: Contender) -> Contender | None:
    """What the table compares a contender with.

    Its baseline, one agent of the whole study, or the same agent without its variant.
    """
    if study.name in OF_VARIANTS:
        return Contender(contender.agent) if contender.variant else None
    if study.name in RIVALS:
        return None if contender == RIVALS[study.name] else RIVALS[study.name]
    return baseline(contender) if contender.style.noisy else None


def rival_title(study: StudyData) -> str:
    """The name of what contenders are compared with, in headings."""
    if study.name in OF_VARIANTS:
        return study.variant_title(study.contenders[0])
    return study.title(RIVALS[study.name]) if study.name in RIVALS else "baseline"


def pairs(study: StudyData) -> list[tuple[Contender, Contender]]:
    """What the sentences compare, as far as there are runs."""
    found = [(one, rival_of(study, one)) for one in study.contenders]
    return [
        (ours, theirs)
        for ours, theirs in (*found, *_MORE_PAIRS.get(study.name, ()))
        if theirs is not None and {ours, theirs} <= set(study.contenders)
    ]


def greedy_maxima(runs: Sequence[RunData]) -> Floats:
    """The scores of runs in evaluations with mean weights: [S]."""
    return maxima(runs, "off")


def score_verdicts(
    study: StudyData,
    ours: Contender,
    theirs: Contender,
    number: Callable[[Sequence[RunData]], Floats],
) -> dict[str, Verdict]:
    """The verdict on each environment, by its title, from one number of each run."""
    found: dict[str, Verdict] = {}
    for environment in study.environments:
        both = study.of(ours, environment), study.of(theirs, environment)
        if all(both) and not environment.startswith("deep_sea"):
            found[short_title(environment)] = compare(*map(number, both))
    return found


def improvement(study: StudyData, ours: Contender, theirs: Contender) -> str:
    """The probability that a run of one scores higher than one of the other, over environments."""
    common = [e for e in study.environments if study.of(ours, e) and study.of(theirs, e)]
    if len(common) < 3:
        return ""
    scores = [[maxima(study.of(one, e)) for e in common] for one in (ours, theirs)]
    found = interval_cell(estimate(probability_of_improvement, *scores), 2).text
    return f" Probability of improvement over the {len(common)} environments: {found}."


def score_sentences(study: StudyData) -> list[str]:
    """What the scores say about every pair."""
    lines = []
    for ours, theirs in pairs(study):
        subject = f"{study.title(ours)} against {study.title(theirs)}"
        score, curve, greedy = (
            score_verdicts(study, ours, theirs, number) for number in (maxima, means, greedy_maxima)
        )
        chance = improvement(study, ours, theirs)
        if score and score == curve:
            lines.append(sentence(f"{subject}, score and mean of the curve", score) + chance)
        elif score:
            lines.append(sentence(f"{subject}, score", score) + chance)
            lines.append(sentence(f"{subject}, mean of the curve", curve))
        if greedy != score:
            lines.append(sentence(f"{subject}, score with noise off", greedy))
    return lines


# --- noise on and off ----------------------------------------------------------------------------


def noise_sentences(study: StudyData) -> list[str]:
    """Whether weights score higher with noise or without, for every noisy contender."""
    lines = []
    for contender in study.contenders:
        found: dict[str, Verdict] = {}
        for environment in study.environments:
            runs = [run for run in study.of(contender, environment) if "on" in run.scores]
            if runs and not environment.startswith("deep_sea"):
                verdict = compare_with(noise_differences(runs), 0.0)
                found[short_title(environment)] = verdict
        if found:
            words = ("higher with noise", "lower with noise")
            lines.append(sentence(study.title(contender), found, words))
    return lines


# --- Σ̄ ------------------------------------------------------------------------------------------


def sigma_table(study: StudyData) -> Table:
    """Σ̄ of each group of layers at the end of training, relative to its beginning."""
    noisy = [run for run in study.runs if run.sigma]
    present = [g for g in GROUP_TITLES if any(g in layer_groups(run.sigma) for run in noisy)]
    table = Table(
        "sigma",
        "Σ̄",
        ("environment", "agent", *(f"Σ̄ of the {GROUP_TITLES[g]}: end ÷ start" for g in present)),
        (
            "Σ̄ is the mean |σ| of a layer's weights (Eq. 20), mean over the streams of a dueling "
            "network.",
        ),
    )
    for environment, contender in study.cells():
        found = sigma_ratios(study.of(contender, environment))
        if found:
            cells = (interval_cell(iqm(found[g]), 2) if g in found else "–" for g in present)
            table.add(environment_title(environment), study.title(contender), *cells)
    return table


def sigma_ratios(runs: Sequence[RunData]) -> dict[str, Floats]:
    """Σ̄ at the end of each run ÷ at its beginning, by the group of layers."""
    noisy = [run for run in runs if run.sigma]
    groups = layer_groups(noisy[0].sigma) if noisy else {}
    ends = {group: sigma_ends(noisy, layers) for group, layers in groups.items()}
    return {group: end / start for group, (start, end) in ends.items()}


def sigma_sentences(study: StudyData) -> list[str]:
    """Whether Σ̄ of each group of layers falls or rises, for every noisy contender."""
    lines = []
    for contender in study.contenders:
        if contender.variant in ("frozen-sigma", "acting-only"):
            continue  # σ is constant
        found: dict[str, dict[str, Verdict]] = {}
        for environment in study.environments:
            for group, ratios in sigma_ratios(study.of(contender, environment)).items():
                verdict = compare_with(ratios, 1.0)
                found.setdefault(group, {})[short_title(environment)] = verdict
        for group, verdicts in found.items():
            subject = f"{study.title(contender)}, Σ̄ of the {GROUP_TITLES[group]}"
            lines.append(sentence(subject, verdicts, ("rises", "falls")))
    return lines


# --- Deep Sea ------------------------------------------------------------------------------------


def deep_sea_table(study: StudyData) -> Table:
    """Episodes until solved, with intervals, and how many seeds solve it."""
    budget = max(run.budget_episodes for run in study.runs)
    table = Table(
        "deep-sea",
        "Episodes until solved",
        ("size", *map(study.title, study.contenders)),
        (
            "Episodes from which on every evaluation with mean weights reaches the treasure, and "
            "how many seeds get there. Evaluations are 20 episodes apart. The others count "
            f"as {budget:,} episodes.",
        ),
    )
    for environment in sorted(study.environments, key=lambda e: int(e.split("/")[1])):
        cells = []
        for contender in study.contenders:
            runs = study.of(contender, environment)
            cells.append(_solved_cell(runs) if runs else Cell("–"))
        table.add(environment.split("/")[1], *cells)
    return table


def _solved_cell(runs: Sequence[RunData]) -> Cell:
    solved = sum(math.isfinite(run.solved_episodes) for run in runs)
    text = interval_cell(iqm(solved_episodes(runs)), 0).text
    return Cell(f"{text}, {solved}/{len(runs)}")


def deep_sea_sentences(study: StudyData) -> list[str]:
    """The largest size that all seeds solve, and comparisons of episodes until solved."""
    lines = []
    for contender in study.contenders if len(study.environments) > 1 else ():
        cells = [study.of(contender, environment) for environment in study.environments]
        solved = [
            runs[0].size
            for runs in cells
            if runs and all(math.isfinite(run.solved_episodes) for run in runs)
        ]
        if any(cells):
            largest = f"the largest size is {max(solved)}" if solved else "there is none"
            lines.append(f"Solved by every seed of {study.title(contender)}: {largest}.")
    plain = RIVALS[study.name]
    for contender in study.contenders:
        if contender == plain or plain not in study.contenders:
            continue
        found: dict[str, Verdict] = {}
        for environment in study.environments:
            both = study.of(contender, environment), study.of(plain, environment)
            if all(both):
                found[short_title(environment)] = compare(*map(solved_episodes, both))
        if len(found) == 1:
            found = {f"Deep Sea {size}": verdict for size, verdict in found.items()}
        if found:
            subject = f"{study.title(contender)} against {study.title(plain)}"
            words = ("more episodes", "fewer episodes")
            lines.append(sentence(subject, found, words, what="sizes"))
    return lines


# --- other numbers ---------------------------------------------------------------------------


def simple_policies_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """What playing without an agent returns, from `simple-policies.json`."""
    table = Table("simple", "Simple policies", ("environment", "policy", "return", "range"))
    for row in rows:
        found = np.array(row["returns"])
        mean = f"{found.mean():.2f} ± {found.std():.2f}"
        extremes = f"{found.min():.0f} to {found.max():.0f}"
        table.add(environment_title(row["environment"]), row["policy"], mean, extremes)
    return table


def published_table(study: StudyData | None) -> Table:
    """Our DQN beside that of MinAtar's authors."""
    frames = max(run.frames for run in study.runs) if study else 0
    ours = f"ours, {frames:,} frames" if frames else "ours"
    table = Table(
        "published",
        "DQN on MinAtar",
        ("game", f"published, {PUBLISHED_FRAMES:,} frames", ours, "seeds"),
        (
            "Published: Young and Tian 2019, 30 seeds, return during training (ε = 0.1), read from "
            "their curves, ± 0.4; Seaquest before a fix of its oxygen. Ours: last evaluation of "
            "the greedy policy (ε = 0), a shorter budget. The two are not the same quantity.",
        ),
    )
    for environment, score in PUBLISHED_MINATAR.items():
        runs = study.of(Contender("dqn"), environment) if study else []
        last = np.array([run.curve[-1] for run in runs])
        cell = interval_cell(iqm(last), _digits(last)) if runs else Cell("not run yet")
        table.add(environment_title(environment), number_cell(score, 1), cell, len(runs))
    return table
