"""Synthetic run folders, analyses of them, and a browser for the page.

The folder is a package because mypy cannot tell two conftest.py modules apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from noisynet.reports import ReportSummary, write_report
from noisynet.reports.analysis import Analysis
from noisynet.reports.curve_figures import curve_figures
from noisynet.reports.load_runs import find_runs, read_runs
from noisynet.reports.plotting import ReportFigure, figure_style
from noisynet.reports.score_figures import score_figures
from noisynet.reports.study import make_studies
from noisynet.reports.table_formats import Cell, Table

from . import synthetic_study
from .browser import CHROMIUM, Browser

WriteRun = Callable[..., Path]


@pytest.fixture
def write_run(tmp_path: Path) -> WriteRun:
    """Write a run of an agent, environment and seed below `tmp_path / "runs"`.

    Its budget is one period for each score, unless `settings` override it.
    """

    def write(
        agent: str,
        environment: str,
        seed: int,
        scores: list[float],
        *,
        name: str | None = None,
        settings: dict[str, Any] | None = None,
        **more: Any,
    ) -> Path:
        folder = tmp_path / "runs" / (name or f"{environment}/{agent}/seed-{seed}")
        protocol = {
            "frames": 100 * len(scores),
            "evaluation.period_frames": 100,
            "evaluation.frames": 50,
        }
        return synthetic_study.write_run(
            folder,
            agent,
            environment,
            seed,
            scores,
            settings={**protocol, **(settings or {})},
            **more,
        )

    return write


def analyse(folder: Path) -> Analysis:
    """The analysis of the only study below `folder / "runs"`."""
    (study,) = make_studies(read_runs(find_runs([folder / "runs"]))[0])
    return Analysis(study)


# --- tables --------------------------------------------------------------------------------------


def cell_texts(row: Sequence[Cell]) -> list[str]:
    """The texts of a row of a table."""
    return [cell.text for cell in row]


def row_of(table: Table, heading: str) -> tuple[Cell, ...]:
    """The row of a table with this heading."""
    (row,) = (row for row in table.rows if row[0].text == heading)
    return row


@pytest.fixture
def pong_and_boxing(write_run: WriteRun, tmp_path: Path) -> Analysis:
    """Two games, two agents, two seeds; Pong is normalised from −20.7 to 14.6."""
    for seed, shift in enumerate((-1.0, 1.0)):
        write_run("dqn", "atari/pong", seed, [-20.0, 14.6 + shift])
        write_run("noisynet-dqn", "atari/pong", seed, [-20.0, 18.13 + shift])
        write_run("dqn", "atari/boxing", seed, [0.0, 24.1 + shift])
        write_run("noisynet-dqn", "atari/boxing", seed, [0.0, 36.1 + shift])
    return analyse(tmp_path)


# --- figures -------------------------------------------------------------------------------------


def all_figures(analysis: Analysis) -> list[ReportFigure]:
    """Every figure of a report."""
    with figure_style():
        return [*score_figures(analysis), *curve_figures(analysis)]


def draw(analysis: Analysis, name: str) -> Figure:
    """Draw one figure of a report."""
    (figure,) = (one for one in all_figures(analysis) if one.name == name)
    return figure.drawn


def texts(figure: Figure) -> list[str]:
    """Every text in a figure."""
    found: list[Any] = figure.findobj(lambda artist: hasattr(artist, "get_text"))
    return [artist.get_text() for artist in found]


@pytest.fixture
def analysis(write_run: WriteRun, tmp_path: Path) -> Analysis:
    """Two agents on three games, two seeds; NoisyNet is better in Pong and worse in Boxing."""
    for seed in range(2):
        for game, plain, noisy in (
            ("pong", 0.0, 180.0),
            ("boxing", 9.0, 3.0),
            ("enduro", 5.0, 9.0),
        ):
            write_run("dqn", f"atari/{game}", seed, [-5.0, plain + seed])
            write_run("noisynet-dqn", f"atari/{game}", seed, [-5.0, noisy + seed])
    return analyse(tmp_path)


# --- the report ----------------------------------------------------------------------------------

HTML_NAME = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> ReportSummary:
    """Two agents on three environments; one environment and two run folders are named in HTML."""
    folder = tmp_path_factory.mktemp("report")
    protocol = {"frames": 300, "evaluation.period_frames": 100, "evaluation.frames": 50}
    for number, task in enumerate(("A", "B", HTML_NAME)):
        for agent in ("dqn", "noisynet-dqn"):
            for seed in range(2):
                name = (
                    f"{HTML_NAME}-{seed}"
                    if (task, agent) == ("A", "dqn")
                    else f"{number}-{agent}-{seed}"
                )
                scores = [0.0, 10.0 * number + seed, 5.0 + len(agent)]
                synthetic_study.write_run(
                    folder / "runs" / name, agent, f"gym/{task}", seed, scores, settings=protocol
                )
    broken = folder / "runs" / f"broken-{HTML_NAME}"
    broken.mkdir()
    (broken / "config.json").write_text("{")
    return write_report([folder / "runs"], folder / "out")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Headless Chromium with one tab."""
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    with Browser() as started:
        yield started
