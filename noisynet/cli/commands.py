"""The application `noisynet` with all of its commands."""

from __future__ import annotations

import typer

from noisynet.cli import studies
from noisynet.cli.checks import audit, doctor
from noisynet.cli.runs import evaluate, list_runs, watch
from noisynet.cli.train import train

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Noisy Networks for Exploration: train, evaluate, watch, audit, sweep and report.",
)

for command in (train, evaluate, watch, audit):
    app.command()(command)
studies.add_to(app)
app.command(name="list")(list_runs)
app.command()(doctor)
