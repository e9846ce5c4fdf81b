"""The commands on many runs: `sweep`, `report`, `dashboard` and `paper`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from noisynet.cli.messages import fail, failing, say, show
from noisynet.cli.options import Device, Out, TensorBoard, check_choice, count
from noisynet.experiments import PLANS
from noisynet.extras import extra

_FORMS = ("text", "markdown", "csv", "latex")


def sweep(
    plan: Annotated[
        str, typer.Argument(metavar="PLAN", help=f"{', '.join(PLANS)}, or a TOML file.")
    ],
    agents: Annotated[str | None, typer.Option(help="Names or patterns, comma-separated.")] = None,
    environments: Annotated[str | None, typer.Option(help="Names, comma-separated.")] = None,
    seeds: Annotated[str | None, typer.Option(help="How many (3), or which (0,7 or 3-5).")] = None,
    frames: Annotated[str | None, typer.Option(help="Budget of every run, such as 10M.")] = None,
    out: Out = Path("runs"),
    on: Annotated[str, typer.Option(help="local or ray.")] = "local",
    address: Annotated[str | None, typer.Option(help="Address of the Ray cluster.")] = None,
    jobs: Annotated[
        int | None, typer.Option(help="Runs at once; default: as many as the cores allow.")
    ] = None,
    device: Device = "auto",
    tensorboard: TensorBoard = True,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only list what is left and estimate the time.")
    ] = False,
) -> None:
    """Run a plan of many runs; the same command resumes it."""
    from noisynet.experiments import PlanError, ProcessOptions, build_plan, run_sweep

    with failing(PlanError, code=2), failing(ImportError, ConnectionError):
        built = build_plan(
            plan, out=out, agents=agents, environments=environments, seeds=seeds, frames=frames
        )
        options = ProcessOptions(device, tensorboard)
        summary = run_sweep(
            built, dry_run=dry_run, on=on, address=address, jobs=jobs, options=options
        )
    show(str(summary))
    if summary.exit_code:
        raise typer.Exit(summary.exit_code)


Runs = Annotated[
    list[Path], typer.Argument(metavar="RUNS…", help="Run folders, or folders of them.")
]


def report(
    runs: Runs,
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
    check_choice("--references", references, ("unrounded", "printed"))
    frames = count("--at-frames", at_frames)
    with failing(ImportError), extra("report"):
        from noisynet.reports import ReportError, write_report

    with failing(ReportError, ImportError):
        summary = write_report(
            runs,
            output,
            references=references,  # type: ignore[arg-type]
            at_frames=frames,
            on_progress=say,
        )
    for line in (*summary.studies, *summary.skipped, *summary.notes):
        say(line)
    show(f"{summary.runs:,} runs, {summary.files:,} files: open {summary.page}")


def dashboard(
    runs: Runs,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 for any free port.")] = 8765,
    host: Annotated[
        str, typer.Option(help="Address to listen on; all but loopback need a token.")
    ] = "127.0.0.1",
    token: Annotated[
        str,
        typer.Option(
            envvar="NOISYNET_TOKEN", help="Token; made if needed. Better in the variable."
        ),
    ] = "",
) -> None:
    """Show runs in the browser while they train: state, curves, comparison, videos."""
    with failing(ImportError), extra("dashboard"):
        from noisynet.dashboard.server import serve

    with failing(ValueError, code=2):
        try:
            serve(runs, host, port, token, lambda address: say(f"{address} (Ctrl-C stops it)"))
        except OSError as error:
            fail(
                f"cannot listen on {host}, port {port}: {error.strerror}; choose another --port or "
                "--host"
            )


def paper(
    form: Annotated[str, typer.Option("--form", help="text, markdown, csv or latex.")] = "text",
) -> None:
    """Print the paper's tables, recomputed from its published scores, beside what it prints."""
    check_choice("--form", form, _FORMS)
    with failing(ImportError), extra("report"):
        from noisynet.reports import print_paper

    print_paper(form=form)  # type: ignore[arg-type]
