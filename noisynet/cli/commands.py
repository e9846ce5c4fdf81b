"""The application `noisynet` with all of its commands."""

from __future__ import annotations

from importlib import metadata
from typing import Annotated

import typer

from noisynet.cli.checks import audit, doctor
from noisynet.cli.lists import agents, envs, settings
from noisynet.cli.messages import show
from noisynet.cli.runs import evaluate, list_runs, show_run, watch
from noisynet.cli.share import export, push
from noisynet.cli.studies import dashboard, paper, report, sweep
from noisynet.cli.train import train

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Noisy Networks for Exploration: train, evaluate, watch, audit, sweep and report.",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        show(f"noisynet {metadata.version('noisynet')}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_show_version)
    ] = False,
) -> None:
    """Options without a command."""


_RUNS = (train, evaluate, watch, audit, sweep, report, dashboard, paper, export, push)
for command in (*_RUNS, agents, envs, settings):
    app.command()(command)
app.command(name="runs")(list_runs)
app.command(name="show")(show_run)
app.command()(doctor)
