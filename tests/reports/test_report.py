"""The report as a folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from noisynet.cli import app
from noisynet.reports import ReportError, ReportSummary, write_report
from noisynet.reports.plotting import ReportFigure

from . import synthetic_study


@pytest.fixture
def no_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the images by empty ones: rendering is slow and tested elsewhere."""
    monkeypatch.setattr(ReportFigure, "render", lambda _: (b"", b"<svg/>"))


def test_a_report_has_a_page_figures_and_tables(report: ReportSummary) -> None:
    out = report.page.parent
    assert (report.runs, len(report.skipped), len(report.studies)) == (12, 1, 1)
    assert "config.json is not JSON" in report.skipped[0]
    for figure in ("figure-1a", "figure-2", "figure-3-noisynet-dqn", "figure-6", "profiles"):
        assert (out / "figures" / "gym" / f"{figure}.png").stat().st_size > 5_000
        assert (out / "figures" / "gym" / f"{figure}.svg").stat().st_size > 5_000
    for ending in ("md", "csv", "tex"):
        assert (out / "tables" / "gym" / f"table-1.{ending}").read_text()
    listed = json.loads((out / "report.json").read_text())["files"]
    there = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    assert there == {*listed, "report.json"}
    assert report.files == len(there)


@pytest.mark.usefixtures("no_drawing")
def test_the_same_runs_give_the_same_page(report: ReportSummary, tmp_path: Path) -> None:
    runs = [report.page.parent.parent / "runs"]
    first, second = (write_report(runs, tmp_path / name) for name in ("first", "second"))
    assert first.page.read_bytes() == second.page.read_bytes()


@pytest.mark.usefixtures("no_drawing")
def test_a_report_replaces_an_earlier_one_and_nothing_else(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "a"
    protocol = {"frames": 100, "evaluation.period_frames": 100}
    synthetic_study.write_run(run, "dqn", "gym/A", 0, [1.0], settings=protocol)
    out = tmp_path / "out"
    (out / "figures" / "old").mkdir(parents=True)
    (out / "figures" / "old" / "a.png").touch()
    (out / "mine.txt").touch()
    (tmp_path / "precious").touch()
    listed = ["figures/old/a.png", "../precious", "gone.md"]
    (out / "report.json").write_text(json.dumps({"files": listed}))
    write_report([tmp_path / "runs"], out)
    assert not (out / "figures" / "old").exists()
    assert (out / "mine.txt").exists()
    assert (tmp_path / "precious").exists()


def test_a_folder_with_other_files_is_refused(report: ReportSummary, tmp_path: Path) -> None:
    runs = report.page.parent.parent / "runs"
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ReportError, match="is not empty and contains no earlier report"):
        write_report([runs], tmp_path)
    with pytest.raises(ReportError, match="expected a folder for the report, got the file"):
        write_report([runs], tmp_path / "thesis.tex")


def test_if_no_run_can_be_read_the_error_has_the_reasons(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "config.json").write_text("[]")
    with pytest.raises(ReportError, match=r"none can be read as a run:\n.*is a JSON list"):
        write_report([tmp_path / "runs"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("no_drawing")
def test_notes_on_an_unfinished_sweep(tmp_path: Path) -> None:
    protocol = {"frames": 200, "evaluation.period_frames": 100}
    for agent, scores in (("dqn", [1.0]), ("noisynet-dqn", [1.0, 2.0])):
        folder = tmp_path / "runs" / agent
        synthetic_study.write_run(folder, agent, "atari/pong", 0, scores, settings=protocol)
    notes = "\n".join(write_report([tmp_path / "runs"], tmp_path / "out").notes)
    assert "1 of 2 runs are unfinished" in notes
    assert "No NoisyNet agent has complete runs on the same environment as its baseline" in notes
    assert "56 of the paper's 57 games have no run: alien, amidar" in notes
    earlier = write_report([tmp_path / "runs"], tmp_path / "earlier", at_frames=100)
    assert len(earlier.notes) == 1  # only the games
    assert (tmp_path / "earlier" / "tables" / "atari" / "table-1.csv").exists()
    with pytest.raises(ReportError, match="at_frames must be positive, got 0"):
        write_report([tmp_path / "runs"], tmp_path / "out", at_frames=0)


@pytest.mark.usefixtures("no_drawing")
def test_every_agent_of_the_paper_is_reported_next_to_published_scores(tmp_path: Path) -> None:
    written = synthetic_study.write_full_study(tmp_path / "runs", seeds=2, games=["pong", "qbert"])
    assert written == 2 * 7 * 2
    summary = write_report([tmp_path / "runs"], tmp_path / "out")
    assert summary.runs == written
    assert summary.notes[0].startswith("55 of the paper's 57 games")
    table = (tmp_path / "out" / "tables" / "atari" / "table-2.md").read_text()
    assert table.count(", measured") == 4
    assert "A3C, published, same games" in table
    figures = {path.stem for path in (tmp_path / "out" / "figures" / "atari").iterdir()}
    assert {"figure-1d", "figure-2", "figure-5", "figure-6", "figure-7", "figure-8"} <= figures


@pytest.mark.usefixtures("no_drawing")
def test_agents_that_are_not_in_the_paper_are_reported_after_those_of_the_paper(
    tmp_path: Path,
) -> None:
    protocol = {"frames": 200, "evaluation.period_frames": 100, "evaluation.frames": 50}
    for agent in ("dqn", "noisynet-dqn", "rainbow-without-noise", "rainbow"):
        for game in ("pong", "qbert"):
            synthetic_study.write_run(
                tmp_path / "runs" / game / agent,
                agent,
                f"atari/{game}",
                0,
                [1.0, 2.0 + len(agent)],
                settings=protocol,
            )
    page = write_report([tmp_path / "runs"], tmp_path / "out").page.read_text()
    names = ["Figure 6: ", "Rainbow, every environment", "Table 1", "Figure 2: "]
    names += ["Agents that are not in the paper", "Table 3", "Relative score: Rainbow"]
    places = [page.index(name) for name in [*names, "Σ̄ of Rainbow"]]
    assert places == sorted(places)
    assert "Value agents: 200 frames of training" in page


@pytest.mark.usefixtures("no_drawing")
def test_agents_are_counted_once_over_variants_and_studies(tmp_path: Path) -> None:
    protocol = {"frames": 200, "evaluation.period_frames": 100, "evaluation.frames": 50}
    for name, task, settings in (
        ("a", "gym/A", protocol),
        ("b", "gym/A", {**protocol, "exploration.sigma0": 0.1}),
        ("c", "minatar/breakout", protocol),
    ):
        folder = tmp_path / "runs" / name
        synthetic_study.write_run(folder, "noisynet-dqn", task, 0, [1.0, 2.0], settings=settings)
    summary = write_report([tmp_path / "runs"], tmp_path / "out")
    assert "3 runs of 1 agent in 2 studies." in summary.page.read_text()
    assert summary.studies == (
        "Gymnasium: 1 agent in 2 variants, 1 environment, 1 seed, 2 runs",
        "MinAtar: 1 agent, 1 environment, 1 seed, 1 run",
    )


@pytest.mark.usefixtures("no_drawing")
def test_the_command_prints_the_page_and_skipped_folders(tmp_path: Path) -> None:
    settings = {"frames": 200, "evaluation.period_frames": 100, "evaluation.frames": 50}
    synthetic_study.write_run(
        tmp_path / "runs" / "a", "dqn", "gym/A", 0, [1.0, 2.0], settings=settings
    )
    (tmp_path / "runs" / "b").mkdir()
    (tmp_path / "runs" / "b" / "config.json").write_text("{")
    ended = CliRunner().invoke(
        app, ["report", str(tmp_path / "runs"), "-o", str(tmp_path / "report")]
    )
    assert ended.exit_code == 0, ended.output
    assert ended.stdout.endswith(f"open {tmp_path / 'report' / 'index.html'}\n")
    assert "Gymnasium: 1 agent, 1 environment, 1 seed, 1 run" in ended.stderr
    assert "config.json is not JSON" in ended.stderr
