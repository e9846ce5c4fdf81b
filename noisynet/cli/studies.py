"""The commands on many runs: `sweep`, `report` and `paper`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from noisynet.cli.messages import fail
from noisynet.config import parse_count
from noisynet.experiments import PLANS
from noisynet.extras import extra


def add_to(app: typer.Typer) -> None:
    """Register the commands with `app`."""
    for command in (sweep, report, paper):
        app.command()(command)


def sweep(
    plan: Annotated[
        str, typer.Argument(metavar="PLAN", help=f"{', '.join(PLANS)}, or a TOML file.")
    ],
    agents: Annotated[str | None, typer.Option(help="Names or patterns, comma-separated.")] = None,
    environments: Annotated[str | None, typer.Option(help="Names, comma-separated.")] = None,
    seeds: Annotated[str | None, typer.Option(help="How many (3), or which (0,7 or 3-5).")] = None,
    frames: Annotated[str | None, typer.Option(help="Budget of every run, such as 10M.")] = None,
    out: Annotated[Path, typer.Option(help="Parent of the run folders.")] = Path("runs"),
    on: Annotated[str, typer.Option(help="local or ray.")] = "local",
    address: Annotated[str | None, typer.Option(help="Address of the Ray cluster.")] = None,
    jobs: Annotated[
        int | None, typer.Option(help="Runs at once; default: as many as the cores allow.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, …")] = "auto",
    tensorboard: Annotated[bool, typer.Option(help="Write TensorBoard events.")] = True,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only list what is left and estimate the time.")
    ] = (False),
) -> None:
    """Run a plan of many runs; the same command resumes it."""
    from noisynet.experiments import PlanError, run_sweep

    try:
        summary = run_sweep(
            plan,
            out=out,
            agents=agents,
            environments=environments,
            seeds=seeds,
            frames=frames,
            dry_run=dry_run,
            on=on,
            address=address,
            jobs=jobs,
            device=device,
            tensorboard=tensorboard,
        )
    except PlanError as error:
        fail(str(error), code=2)
    except (ImportError, ConnectionError) as error:
        fail(str(error))
    typer.echo(str(summary))
    if summary.exit_code:
        raise typer.Exit(summary.exit_code)


def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUNS…", help="Run folders, or folders of them.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder to write to.")] = Path(
        "report"
    ),
    references: Annotated[
        str, typer.Option(help="References of Atari scores: unrounded or printed.")
    ] = "unrounded",
    at_frames: Annotated[
        str | None, typer.Option(help="Compare runs after this many frames, such as 10M.")
    ] = None,
) -> None:
    """Write the paper's tables and figures from runs, next to the published scores."""
    if references not in ("unrounded", "printed"):
        fail(f"--references expected unrounded or printed, got {references!r}", code=2)
    frames = None
    if at_frames is not None:
        try:
            frames = parse_count(at_frames)
        except ValueError as error:
            fail(f"--at-frames {error}", code=2)
    try:
        with extra("report"):
            from noisynet.reports import ReportError, write_report
    except ImportError as error:
        fail(str(error))

    try:
        summary = write_report(
            runs,
            output,
            references=references,  # type: ignore[arg-type]
            at_frames=frames,
            on_progress=lambda text: typer.echo(text, err=True),
        )
    except (ReportError, ImportError) as error:
        fail(str(error))
    for line in (*summary.studies, *summary.skipped, *summary.notes):
        typer.echo(line, err=True)
    typer.echo(f"{summary.runs:,} runs, {summary.files:,} files: open {summary.page}")


def paper(
    form: Annotated[str, typer.Option("--form", help="text, markdown, csv or latex.")] = "text",
) -> None:
    """Print the paper's tables, recomputed from its published scores, beside what it prints."""
    try:
        with extra("report"):
            from noisynet.reports import print_paper
    except ImportError as error:
        fail(str(error))

    forms = ("text", "markdown", "csv", "latex")
    if form not in forms:
        fail(f"--form expected {', '.join(forms)}, got {form!r}", code=2)
    print_paper(form=form)  # type: ignore[arg-type]
