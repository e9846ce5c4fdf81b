"""Writes a report: a folder with a page, figures and tables, from run folders."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

from noisynet.reports.analysis import Analysis, make_normaliser
from noisynet.reports.comparison_tables import aggregates, comparison, noise_on_and_off
from noisynet.reports.curve_figures import curve_figures
from noisynet.reports.interval_figures import interval_figures
from noisynet.reports.load_runs import FAMILY_TITLES, ReportError, find_runs, read_runs
from noisynet.reports.measured_tables import (
    other_agents,
    raw_scores,
    relative_scores,
    table_1,
    table_2,
)
from noisynet.reports.page import PageItem, Section, figure_item, render_page, table_item
from noisynet.reports.paper_figures import paper_figures
from noisynet.reports.plotting import render_figure
from noisynet.reports.published import ReferenceName
from noisynet.reports.run_tables import cost, missing, runs_table
from noisynet.reports.sigma_figures import sigma_figures
from noisynet.reports.study import Study, make_studies
from noisynet.reports.table_formats import Table, TableFormat, render_table

MANIFEST: Final = "report.json"
"""Lists the files of a report, so that the next one in the same folder can replace them."""

# The order of the page, by the beginning of each item's name.
_ORDER: Final = (
    *("table-1", "table-2", "figure-1", "figure-2", "figure-5", "other-agents", "medians"),
    *("comparison", "improvement", "aggregates", "profiles", "table-3", "relative", "figure-3"),
    *("sigma", "figure-6", "figure-7", "figure-8", "curves", "noise", "cost", "missing", "runs"),
)
_TABLES: Final[tuple[Callable[[Analysis], Table], ...]] = (
    *(table_1, table_2, other_agents, comparison, aggregates, raw_scores, relative_scores),
    *(noise_on_and_off, cost, missing, runs_table),
)
_FIGURES: Final = (paper_figures, sigma_figures, curve_figures, interval_figures)
_TABLE_FILES: Final[tuple[tuple[str, TableFormat, str], ...]] = (
    ("Markdown", "markdown", "md"),
    ("CSV", "csv", "csv"),
    ("LaTeX", "latex", "tex"),
)


@dataclass(frozen=True)
class ReportSummary:
    """What a report contains.

    Attributes:
        page: the HTML page.
        runs: how many runs are in the report.
        studies: one line for each study.
        skipped: folders that could not be read, each with the reason.
        notes: on separated and missing runs.
        files: how many files were written, the page included.
    """

    page: Path
    runs: int
    studies: tuple[str, ...]
    skipped: tuple[str, ...]
    notes: tuple[str, ...]
    files: int


def write_report(
    runs: Sequence[Path],
    out: Path,
    *,
    references: ReferenceName = "unrounded",
    at_frames: int | None = None,
    seed: int = 0,
    on_progress: Callable[[str], None] = lambda _: None,
) -> ReportSummary:
    """Read run folders and write the report.

    Args:
        runs: run folders, or folders that contain some at any depth.
        out: a new or empty folder, or one with an earlier report.
        references: by which Atari scores are normalised.
        at_frames: compare runs after this many frames instead of at the end of the budget, so that
            unfinished runs are included.
        seed: of the bootstrap.
        on_progress: called with a message before every step.

    Raises:
        ReportError: there are no readable runs, one exists twice, or `out` cannot be written to or
            contains other files. Nothing is written.
    """
    old = _check_output(out)
    folders = find_runs([Path(path) for path in runs])
    on_progress(f"reading {len(folders):,} runs")
    read, skipped = read_runs(folders)
    if not read:
        listed = "\n".join(f"  {folder.path}: {folder.reason}" for folder in skipped[:5])
        raise ReportError(
            f"found {len(folders)} folders with a config.json, but none can be read as a run:\n"
            f"{listed}\ngive the --out of your runs"
        )
    if at_frames is not None and at_frames <= 0:
        raise ReportError(f"at_frames must be positive, got {at_frames}")
    content: dict[str, bytes] = {}
    sections = []
    studies = make_studies(read, at_frames)
    for study in studies:
        analysis = Analysis(study, make_normaliser(study, references), seed)
        sections.append(_make_section(analysis, content, on_progress))
    agents = sum(len(study.contenders) for study in studies)
    page = render_page(
        "Noisy networks: report",
        [
            f"{_count(len(read), 'run')} of {_count(agents, 'agent')} in {len(studies)} "
            f"{'study' if len(studies) == 1 else 'studies'}. Every number is computed from the run "
            "folders; published numbers are shown next to it. Click a heading to sort its table."
        ],
        sections,
        skipped,
        f"Made by noisynet {metadata.version('noisynet')}.",
    )
    content["index.html"] = page.encode()
    _write(out, content, old)
    return ReportSummary(
        page=out / "index.html",
        runs=len(read),
        studies=tuple(_heading(study) for study in studies),
        skipped=tuple(f"{folder.name}: {folder.reason}" for folder in skipped),
        notes=tuple(dict.fromkeys(note for section in sections for note in section.notes)),
        files=len(content) + 1,
    )


# --- one study -----------------------------------------------------------------------------------


def _make_section(
    analysis: Analysis, content: dict[str, bytes], on_progress: Callable[[str], None]
) -> Section:
    """The section of a study; the files of its tables and figures are added to `content`."""
    study = analysis.study
    items: list[PageItem] = []
    for make_table in _TABLES:
        table = make_table(analysis)
        if not table.rows:
            continue
        paths = []
        for label, form, extension in _TABLE_FILES:
            path = f"tables/{study.name}/{table.name}.{extension}"
            content[path] = render_table(table, form).encode()
            paths.append((label, path))
        items.append(table_item(table, paths))
    for make_figures in _FIGURES:
        for figure in make_figures(analysis):
            on_progress(f"drawing {figure.title}")
            image = render_figure(figure)
            path = f"figures/{study.name}/{figure.name}"
            content |= {f"{path}.png": image.png, f"{path}.svg": image.svg}
            items.append(figure_item(image, [("PNG", f"{path}.png"), ("SVG", f"{path}.svg")]))
    items.sort(key=lambda item: (_rank(item.name), item.table is None))
    lines, notes = _protocol_lines(analysis), _notes(analysis)
    return Section(study.name, _heading(study), tuple(lines), tuple(notes), tuple(items))


def _rank(name: str) -> int:
    return next(i for i, beginning in enumerate(_ORDER) if name.startswith(beginning))


def _heading(study: Study) -> str:
    number = study.name.removeprefix(study.family).removeprefix("-")
    title = f"{FAMILY_TITLES[study.family]} {number}".strip()
    return (
        f"{title}: {_count(len(study.contenders), 'agent')}, "
        f"{_count(len(study.tasks), 'environment')}, {_count(len(study.seeds), 'seed')}, "
        f"{_count(len(study.runs), 'run')}"
    )


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "s")


def _protocol_lines(analysis: Analysis) -> list[str]:
    """The protocols and the normalisation."""
    study = analysis.study
    names = {"value": "Value agents", "actor-critic": "A3C agents"}
    lines = []
    for kind, protocol in sorted(study.protocols.items(), reverse=True):
        horizon = ""
        if study.horizons[kind] < protocol.budget_frames:
            horizon = f" Compared at {study.horizons[kind]:,} frames."
        lines.append(f"{names[kind]}: {protocol}.{horizon}")
    return [*lines, analysis.normaliser.sentence]


def _notes(analysis: Analysis) -> list[str]:
    """Notes on separated, unfinished and missing runs."""
    study, notes = analysis.study, list(analysis.study.notes)
    complete = sum(study.is_complete(run) for run in study.runs)
    if complete < len(study.runs):
        notes.append(
            f"{len(study.runs) - complete} of {len(study.runs)} runs are unfinished and "
            "appear in the curves of their environments only."
        )
    if not complete:
        notes.append(
            "No run is complete, so that there are no tables of scores; use --at-frames to compare "
            "unfinished runs."
        )
    elif not any(analysis.tasks(*pair) for pair in study.pairs):
        notes.append(
            "No NoisyNet agent has complete runs on the same environment as its baseline, so that "
            "there are no Tables 1 and 2 and no Figure 1."
        )
    absent = sum(len(one.absent) for one in study.missing())
    if absent:
        notes.append(f"{absent} runs of these agents, environments and seeds are missing.")
    games = study.missing_games()
    if games:
        shown = ", ".join(games) if len(games) <= 10 else f"{', '.join(games[:10])}, …"
        notes.append(f"{len(games)} of the paper's 57 games have no run: {shown}.")
    if analysis.not_normalised:
        notes.append(
            "Not normalised and in no aggregate, because every score is the same: "
            f"{', '.join(analysis.not_normalised)}."
        )
    return notes


# --- files ---------------------------------------------------------------------------------------


def _check_output(out: Path) -> list[str]:
    """The files of an earlier report in this folder. A folder with other files is refused."""
    if out.exists() and not out.is_dir():
        raise ReportError(f"expected a folder for the report, got the file {out}")
    if not out.exists() or not any(out.iterdir()):
        return []
    try:
        listed = json.loads((out / MANIFEST).read_text())["files"]
        return [str(name) for name in listed]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ReportError(
            f"{out} is not empty and contains no earlier report ({MANIFEST}); choose a new folder, "
            "so that none of your files is overwritten"
        ) from error


def _write(out: Path, content: dict[str, bytes], old: Sequence[str]) -> None:
    """Replace the files of an earlier report; other files in the folder are not touched."""
    try:
        for name in old:
            path = out / name
            # The manifest may be damaged: delete nothing outside the folder.
            if path.resolve().is_relative_to(out.resolve()) and name not in content:
                path.unlink(missing_ok=True)
                with suppress(OSError):  # not empty
                    path.parent.rmdir()
        for name, data in content.items():
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_bytes(data)
        manifest = {"made_by": "noisynet report", "files": sorted(content)}
        (out / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")
    except OSError as error:
        raise ReportError(f"cannot write {error.filename}: {error.strerror}") from error
