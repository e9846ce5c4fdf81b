"""Writes a report: a folder with a page, figures and tables, from run folders."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import Any, Final

from noisynet.reports.analysis import Analysis
from noisynet.reports.curve_figures import curve_figures
from noisynet.reports.load_runs import ReportError, find_runs, read_runs
from noisynet.reports.page import figure_item, render_page, table_item
from noisynet.reports.plotting import figure_style
from noisynet.reports.published import ReferenceName
from noisynet.reports.run_tables import run_tables
from noisynet.reports.score_figures import score_figures
from noisynet.reports.score_tables import score_tables
from noisynet.reports.study import Study, count, make_studies

MANIFEST: Final = "report.json"
"""Lists the files of a report, so that the next one in the same folder can replace them."""

# The order of the page, by the beginning of each item's name.
_ORDER: Final = (
    *("figure-6", "figure-7", "figure-8", "curves", "table-1", "table-2", "figure-1", "figure-2"),
    *("figure-5", "other-agents", "medians", "comparison", "improvement", "aggregates", "profiles"),
    *("table-3", "relative", "figure-3", "sigma", "noise", "cost", "missing", "configuration"),
    *("versions", "runs"),
)


@dataclass(frozen=True)
class ReportSummary:
    """What a report contains: a line for each study, skipped folder and note."""

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
    on_progress: Callable[[str], None] = lambda _: None,
) -> ReportSummary:
    """Read run folders and write the report.

    Args:
        runs: run folders, or folders that contain some at any depth.
        out: a new or empty folder, or one with an earlier report.
        references: by which Atari scores are normalised.
        at_frames: compare runs after this many frames instead of at the end of the budget, so that
            unfinished runs are included.
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
        listed = "\n".join(f"  {name}: {reason}" for name, reason in list(skipped.items())[:5])
        raise ReportError(
            f"found {len(folders)} folders with a config.json, but none can be read as a run:\n"
            f"{listed}\ngive the --out of your runs"
        )
    if at_frames is not None and at_frames <= 0:
        raise ReportError(f"at_frames must be positive, got {at_frames}")
    studies = make_studies(read, at_frames)
    sections = [_make_section(Analysis(study, references), out, on_progress) for study in studies]
    agents = len({run.agent for run in read})
    opening = (
        f"{count(len(read), 'run')} of {count(agents, 'agent')} in {len(studies)} "
        f"{'study' if len(studies) == 1 else 'studies'}. Every number is computed from the run "
        "folders; published numbers are shown next to it. Click a heading to sort its table."
    )
    closing = f"Made by noisynet {metadata.version('noisynet')}."
    items = [item for section in sections for item in section["contents"]]
    content = {path: data for item in items for _, path, data in item["files"]}
    page = render_page(opening=opening, sections=sections, skipped=skipped, closing=closing)
    content["index.html"] = page.encode()
    _write(out, content, old)
    return ReportSummary(
        page=out / "index.html",
        runs=len(read),
        studies=tuple(section["heading"] for section in sections),
        skipped=tuple(f"{name}: {reason}" for name, reason in skipped.items()),
        notes=tuple(dict.fromkeys(note for section in sections for note in section["notes"])),
        files=len(content) + 1,
    )


# --- one study -----------------------------------------------------------------------------------


def _make_section(
    analysis: Analysis, out: Path, on_progress: Callable[[str], None]
) -> dict[str, Any]:
    """The section of a study, for the template of the page."""
    study = analysis.study
    tables = chain(score_tables(analysis), run_tables(analysis, out))
    items = [table_item(table, study.name) for table in tables if table.rows]
    with figure_style():
        # Each is drawn when the one before is done: all at once would fill the memory.
        for figure in chain(score_figures(analysis), curve_figures(analysis)):
            on_progress(f"drawing {figure.title}")
            items.append(figure_item(figure, study.name))
    items.sort(key=lambda item: (_rank(item["name"]), "table" not in item))
    return {
        "name": study.name,
        "heading": _heading(study),
        "lines": _protocol_lines(analysis),
        "notes": _notes(analysis),
        "contents": items,
    }


def _rank(name: str) -> int:
    return next(i for i, beginning in enumerate(_ORDER) if name.startswith(beginning))


def _heading(study: Study) -> str:
    agents = len({contender.agent for contender in study.contenders})
    variants = f" in {len(study.contenders)} variants" if len(study.contenders) > agents else ""
    return (
        f"{study.title}: {count(agents, 'agent')}{variants}, "
        f"{count(len(study.tasks), 'environment')}, {count(len(study.seeds), 'seed')}, "
        f"{count(len(study.runs), 'run')}"
    )


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
    return [*lines, analysis.normalisation]


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
    absent = sum(len(study.absent(one, task)) for one in study.contenders for task in study.tasks)
    if absent:
        notes.append(f"Missing: {count(absent, 'run')} of these agents, environments and seeds.")
    games = study.missing_games()
    if games:
        shown = ", ".join(games) if len(games) <= 10 else f"{', '.join(games[:10])}, …"
        notes.append(f"{len(games)} of the paper's 57 games have no run: {shown}.")
    constant = [task for task in study.tasks if task not in analysis.references]
    if constant:
        notes.append(
            "Not normalised and in no aggregate, because every score is the same: "
            f"{', '.join(constant)}."
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
