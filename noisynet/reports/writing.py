"""From run folders to a folder with the page, the figures and the tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

from noisynet.extras import import_extra

if TYPE_CHECKING:
    from noisynet.reports.analysis import Analysis
    from noisynet.reports.page import Section
    from noisynet.reports.published import ReferenceName
    from noisynet.reports.reading import Unreadable
    from noisynet.reports.study import Study

MANIFEST: Final = "report.json"
"""Lists what a report wrote, so that the next one to the same folder can replace it."""

# What the page shows, from the most to the least asked for; items by the beginning of their names.
_ORDER: Final = (
    *("table-1", "table-2", "figure-1", "figure-2", "figure-5", "comparison", "improvement"),
    *("aggregates", "profiles", "table-3", "relative", "figure-3", "figure-6", "figure-7"),
    *("figure-8", "noise", "cost", "missing", "runs"),
)


@dataclass(frozen=True)
class ReportSummary:
    """What was written, and what must be said about it.

    Attributes:
        page: the HTML page.
        runs: how many runs are in the report.
        studies: one line for each group of runs that are compared with each other.
        left_out: folders that could not be read, each with the reason.
        notes: what was separated, and what is missing.
        files: how many files were written, the page included.
    """

    page: Path
    runs: int
    studies: tuple[str, ...]
    left_out: tuple[str, ...]
    notes: tuple[str, ...]
    files: int


def write_report(
    runs: Sequence[Path],
    out: Path,
    *,
    references: ReferenceName = "unrounded",
    at_frames: int | None = None,
    seed: int = 0,
    say: Callable[[str], None] = lambda _: None,
) -> ReportSummary:
    """Read run folders and write the report.

    Args:
        runs: run folders, or folders that hold some, at any depth.
        out: where to; a new or empty folder, or one that holds an earlier report.
        references: what Atari scores are normalised by.
        at_frames: compare after so many frames of training instead of at the end of the budget, so
            that unfinished runs take part.
        seed: of the bootstrap.
        say: is told how it goes.

    Raises:
        ReportError: No runs, none that can be read, the same run twice, a folder that cannot be
            written to or holds something else. Nothing has been written then.
    """
    for module in ("jinja2", "matplotlib"):
        import_extra(module, "report")
    from noisynet.reports.analysis import Analysis, normaliser_of
    from noisynet.reports.page import LeftOut, render_page
    from noisynet.reports.reading import ReportError, find_runs, read_runs
    from noisynet.reports.study import make_studies

    old = _check_output(out)
    folders = find_runs([Path(path) for path in runs])
    say(f"reading {len(folders):,} runs")
    read, unreadable = read_runs(folders)
    if not read:
        listed = "\n".join(f"  {one.path}: {one.reason}" for one in unreadable[:5])
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
        analysis = Analysis(study, normaliser_of(study, references), seed)
        sections.append(_section(analysis, content, say))
    left_out = [_said(one) for one in unreadable]
    agents = sum(len(study.contenders) for study in studies)
    counted = f"{_count(len(read), 'run')} of {_count(agents, 'agent')}"
    page = render_page(
        "Noisy networks: report",
        [
            f"{counted} in {len(studies)} {'study' if len(studies) == 1 else 'studies'}. "
            "Every number is computed from the run folders; where the paper published one, it "
            "stands beside it. Headings sort their tables."
        ],
        sections,
        [LeftOut(path, reason) for path, reason in left_out],
        f"Made by noisynet {metadata.version('noisynet')}.",
    )
    content["index.html"] = page.encode()
    _write(out, content, old)
    return ReportSummary(
        page=out / "index.html",
        runs=len(read),
        studies=tuple(_heading(study) for study in studies),
        left_out=tuple(f"{path}: {reason}" for path, reason in left_out),
        notes=tuple(dict.fromkeys(note for section in sections for note in section.notes)),
        files=len(content) + 1,
    )


def _said(one: Unreadable) -> tuple[str, str]:
    import os

    return os.fsencode(one.path).decode("utf-8", "replace"), one.reason


# --- one study -----------------------------------------------------------------------------------


def _section(analysis: Analysis, content: dict[str, bytes], say: Callable[[str], None]) -> Section:
    """Make the tables and figures of a study; their files go into `content`."""
    from noisynet.reports.comparisons import aggregates, comparison, noise_on_and_off
    from noisynet.reports.drawing import render as draw
    from noisynet.reports.figures import paper_figures
    from noisynet.reports.formats import render
    from noisynet.reports.grid_figures import grid_figures
    from noisynet.reports.interval_figures import interval_figures
    from noisynet.reports.ledger import cost, missing, runs
    from noisynet.reports.page import Section, figure_item, table_item
    from noisynet.reports.sigma_figures import sigma_figures
    from noisynet.reports.tables import raw_scores, relative_scores, table_1, table_2

    study = analysis.study
    items = []
    tables = (table_1, table_2, comparison, aggregates, raw_scores, relative_scores)
    for make in (*tables, noise_on_and_off, cost, missing, runs):
        table = make(analysis)
        if not table.rows:
            continue
        paths = []
        for label, form, ending in (
            ("Markdown", "markdown", "md"),
            ("CSV", "csv", "csv"),
            ("LaTeX", "latex", "tex"),
        ):
            path = f"tables/{study.name}/{table.name}.{ending}"
            content[path] = render(table, form).encode()  # type: ignore[arg-type]
            paths.append((label, path))
        items.append(table_item(table, paths))
    for figures in (paper_figures, sigma_figures, grid_figures, interval_figures):
        for drawing in figures(analysis):
            say(f"drawing {drawing.title}")
            image = draw(drawing)
            path = f"figures/{study.name}/{drawing.name}"
            content |= {f"{path}.png": image.png, f"{path}.svg": image.svg}
            items.append(figure_item(image, [("PNG", f"{path}.png"), ("SVG", f"{path}.svg")]))
    ordered = sorted(items, key=lambda item: (_rank(item.name), item.table is None))
    lines, notes = _lines(analysis), _notes(analysis)
    return Section(study.name, _heading(study), tuple(lines), tuple(notes), tuple(ordered))


def _rank(name: str) -> int:
    return next(i for i, beginning in enumerate(_ORDER) if name.startswith(beginning))


def _heading(study: Study) -> str:
    from noisynet.reports.reading import SUITES

    number = study.name.removeprefix(study.suite).removeprefix("-")
    title = f"{SUITES[study.suite]} {number}".strip()
    return (
        f"{title}: {_count(len(study.contenders), 'agent')}, "
        f"{_count(len(study.tasks), 'environment')}, {_count(len(study.seeds), 'seed')}, "
        f"{_count(len(study.runs), 'run')}"
    )


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "s")


def _lines(analysis: Analysis) -> list[str]:
    """The protocol and the normalisation, in words."""
    study = analysis.study
    names = {"value": "DQN and Dueling agents", "actor-critic": "A3C agents"}
    lines = []
    for kind, protocol in sorted(study.protocols.items(), reverse=True):
        cut = ""
        if study.horizons[kind] < protocol.budget_frames:
            cut = f" Compared at {study.horizons[kind]:,} frames."
        lines.append(f"{names[kind]}: {protocol}.{cut}")
    return [*lines, analysis.normaliser.sentence]


def _notes(analysis: Analysis) -> list[str]:
    """What was separated, and what is missing."""
    study, notes = analysis.study, list(analysis.study.notes)
    complete = sum(study.is_complete(run) for run in study.runs)
    if complete < len(study.runs):
        notes.append(
            f"{len(study.runs) - complete} of {len(study.runs)} runs have not reached their last "
            "evaluation and count only in the curves of single environments."
        )
    if not complete:
        notes.append(
            "No run is complete, so there are no tables of scores; compare at fewer frames "
            "(at_frames) to use what there is."
        )
    elif not any(analysis.tasks(*pair) for pair in study.pairs):
        notes.append(
            "No NoisyNet agent has complete runs on the same environment as its baseline, so "
            "there is nothing to compare in Tables 1 and 2 and Figure 1."
        )
    absent = sum(len(one.absent) for one in study.missing())
    if absent:
        notes.append(f"{absent} runs of these agents, environments and seeds are not there.")
    games = study.missing_games()
    if games:
        shown = ", ".join(games) if len(games) <= 10 else f"{', '.join(games[:10])}, …"
        notes.append(f"{len(games)} of the paper's 57 games have no run: {shown}.")
    if analysis.not_normalised:
        notes.append(
            "Not normalised and in no aggregate, for want of references or because every score is "
            f"the same: {', '.join(analysis.not_normalised)}."
        )
    return notes


# --- the folder ----------------------------------------------------------------------------------


def _check_output(out: Path) -> list[str]:
    """The files of an earlier report in this folder; refuses a folder of anything else."""
    from noisynet.reports.reading import ReportError

    if out.exists() and not out.is_dir():
        raise ReportError(f"expected a folder for the report, {out} is a file; choose another")
    if not out.exists() or not any(out.iterdir()):
        return []
    try:
        listed = json.loads((out / MANIFEST).read_text())["files"]
        return [str(name) for name in listed]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ReportError(
            f"{out} is not empty and holds no earlier report ({MANIFEST}); choose a new folder, so "
            "that nothing of yours is overwritten"
        ) from error


def _write(out: Path, content: dict[str, bytes], old: Sequence[str]) -> None:
    """Replace an earlier report's files by these; nothing else in the folder is touched."""
    from noisynet.reports.reading import ReportError

    try:
        for name in old:
            path = out / name
            # The list is data: it must not lead out of the folder.
            if path.resolve().is_relative_to(out.resolve()) and name not in content:
                path.unlink(missing_ok=True)
                with suppress(OSError):  # other files are left in it
                    path.parent.rmdir()
        for name, data in content.items():
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_bytes(data)
        manifest = {"made_by": "noisynet report", "files": sorted(content)}
        (out / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")
    except OSError as error:
        raise ReportError(f"cannot write {error.filename}: {error.strerror}") from error
