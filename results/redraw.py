"""Draws every figure and table of `docs/results.md` from the data of the studies, without training.

python results/redraw.py
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import claims
import result_figures as figures
import result_tables as tables
from matplotlib.figure import Figure
from studies import OF_VARIANTS, RESULTS, STUDIES, WITH_TRAINING, StudyData, digest, load_study

from noisynet.reports.plotting import figure_style

PAGE: Final = RESULTS.parent / "docs" / "results.md"
FIGURES: Final = "results"
"""The folder of the figures, next to the page."""
DEEP_SEA: Final = ("deep-sea-fixed", "deep-sea-random")
NOT_RUN: Final = "Not run yet: this study has no data."
_BLOCK: Final = re.compile(r"(?<=<!-- results: )([\w-]+)( -->\n).*?(?=<!-- end -->)", re.DOTALL)

Studies = dict[str, StudyData]


def load(results: Path = RESULTS) -> Studies:
    """The studies that have data."""
    found = {name: load_study(name, results) for name in STUDIES}
    return {name: study for name, study in found.items() if study is not None}


# --- blocks of the page --------------------------------------------------------------------------


def render(name: str, studies: Studies) -> str:
    """A block of the page: a study's results, a claim's answer, or that it was not run yet."""
    if name == "published":
        return f"\n{tables.markdown(tables.published_table(studies.get('minatar')))}\n"
    if name == "simple-policies":
        rows = json.loads((RESULTS / f"{name}.json").read_text())
        return f"\n{tables.markdown(tables.simple_policies_table(rows))}\n"
    if name in claims.CLAIMS:
        lines = claims.CLAIMS[name](studies)
        return "\n".join(["", *(f"- {line}" for line in lines or [NOT_RUN]), "\n"])
    names = DEEP_SEA if name == "deep-sea" else (name,)
    shown = [studies[one] for one in names if one in studies]
    if not shown:
        return f"\n{NOT_RUN}\n\n"
    parts = [_provenance(study) for study in shown]
    parts += [f"![{alt}]({FIGURES}/{file}.png)" for file, alt in _pictures(name, studies)]
    for study in shown:
        parts += list(_study_tables(study))
        parts.append("What it says:\n\n" + "\n".join(f"- {line}" for line in _says(study)))
    return "\n" + "\n\n".join(parts) + "\n\n"


def _provenance(study: StudyData) -> str:
    source = study.provenance
    left = [f"{len(source[key])} {key}" for key in ("unfinished", "missing") if source[key]]
    origins = [_origin(one) for one in source["collections"]]
    if len(origins) > 1:
        counts = [one["runs"] for one in source["collections"]]
        origins = [f"{n} from {text}" for n, text in zip(counts, origins, strict=True)]
    return (
        f"*{STUDIES[study.name]}: {source['finished']} of {source['planned']} planned runs "
        f"finished{''.join(f', {text}' for text in left)}; {'; '.join(origins)}. "
        f"Data: [`results/{study.name}/`](../results/{study.name}/).*"
    )


def _origin(collection: Mapping[str, Any]) -> str:
    machine, where = collection["machine"], collection.get("from_study")
    hours = sum(collection["hours"].values())
    commits = [collection["commit"]]
    for name, runs in collection["other_commits"].items():
        commits.append(f"{name} ({len(runs)} {'run' if len(runs) == 1 else 'runs'})")
    return (
        f"{f'the study {where}' if where else f'{hours:.1f} hours of runs'} on {machine['cpu']}, "
        f"{machine['cores']} cores, torch {collection['versions']['torch']}, commit "
        f"{', '.join(commits)}"
    )


def _study_tables(study: StudyData) -> Iterator[str]:
    if study.name in DEEP_SEA:
        yield f"{STUDIES[study.name]}:"
        yield tables.markdown(tables.deep_sea_table(study)).rstrip()
        return
    games = [e for e in study.environments if not e.startswith("deep_sea")]
    grids = [e for e in study.environments if e.startswith("deep_sea")]
    found = [tables.score_table(study, games)]
    found += [tables.training_table(study)] if study.name in WITH_TRAINING else []
    found.append((tables.seed_table if study.name in OF_VARIANTS else tables.sigma_table)(study))
    if grids:
        found.append(tables.deep_sea_table(study.on(grids)))
    yield from (tables.markdown(table).rstrip() for table in found if table.rows)


def _says(study: StudyData) -> list[str]:
    if study.name in DEEP_SEA:
        return tables.deep_sea_sentences(study)
    lines = tables.score_sentences(study)
    grids = [e for e in study.environments if e.startswith("deep_sea")]
    lines += tables.deep_sea_sentences(study.on(grids)) if grids else []
    return lines or ["No agent has finished runs on the same environment as its baseline yet."]


def updated(page: str, studies: Studies) -> str:
    """The text of the page with every block between "results: name" and "end" rendered anew."""
    return _BLOCK.sub(lambda match: f"{match[1]}{match[2]}{render(match[1], studies)}", page)


# --- figures -------------------------------------------------------------------------------------


def _pictures(name: str, studies: Studies) -> list[tuple[str, str]]:
    """The figures of a block: file without its suffix, and alternative text."""
    found = [(name, f"{STUDIES.get(name, 'Deep Sea')}: learning and intervals")]
    if name in _WITH_SIGMA and figures.has_sigma(studies[name]):
        found.append((f"{name}-sigma", f"{STUDIES[name]}: mean |σ| over training"))
    return found


_WITH_SIGMA: Final = ("minatar", "minatar-a3c", "rainbow", "pong", "pong-2m")
_DRAWN: Final[dict[str, Callable[[StudyData], Figure]]] = {
    "sigma0": figures.sigma0_figure,
    "controls": figures.controls_figure,
    "controls-freeway": figures.controls_figure,
    "controls-a3c": figures.controls_figure,
    "presets": figures.variants_by_agent,
    "batched-workers": figures.variants_by_agent,
    "pong": figures.training_and_evaluations,
    "pong-2m": figures.training_and_evaluations,
}


def draw(studies: Studies, results: Path = RESULTS) -> dict[str, bytes]:
    """Every figure for which there are data, as PNG, by the name of its file."""
    sources = {name: digest(name, results) for name in studies}
    found = {}
    with figure_style():
        for name, study in studies.items():
            if name in DEEP_SEA:
                continue
            for file, _ in _pictures(name, studies):
                drawn = (
                    figures.sigma_figure(study)
                    if file.endswith("-sigma")
                    else _DRAWN.get(name, figures.learning_curves)(study)
                )
                found[f"{file}.png"] = figures.render(drawn, sources[name])
        seas = [name for name in DEEP_SEA if name in studies]
        if seas:
            drawn = figures.deep_sea([studies[name] for name in seas])
            source = " ".join(sources[name] for name in seas)
            found["deep-sea.png"] = figures.render(drawn, source)
    return found


def main(results: Path = RESULTS, page: Path = PAGE) -> None:
    """Write the figures and the page."""
    studies = load(results)
    folder = page.parent / FIGURES
    drawn = draw(studies, results)
    for old in folder.glob("*.png"):
        if old.name not in drawn:
            old.unlink()
    if drawn:
        folder.mkdir(exist_ok=True)
    for name, data in drawn.items():
        (folder / name).write_bytes(data)
    page.write_text(updated(page.read_text(), studies))
    print(f"{len(studies)} of {len(STUDIES)} studies have data; {len(drawn)} figures, {page.name}")


if __name__ == "__main__":
    main()
