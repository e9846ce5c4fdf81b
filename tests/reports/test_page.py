"""The report as a folder, and its page in a browser."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from noisynet.reports import ReportError, ReportSummary, write_report
from noisynet.reports.plotting import Image

from . import synthetic_study
from .browser import Browser

EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> ReportSummary:
    """Two agents on three environments, one of which, and one of whose runs, has HTML as a name."""
    folder = tmp_path_factory.mktemp("report")
    protocol = {"frames": 300, "evaluation.period_frames": 100, "evaluation.frames": 50}
    for place, task in enumerate(("A", "B", EVIL)):
        for agent in ("dqn", "noisynet-dqn"):
            for seed in range(2):
                name = (
                    f"{EVIL}-{seed}" if (task, agent) == ("A", "dqn") else f"{place}-{agent}-{seed}"
                )
                scores = [0.0, 10.0 * place + seed, 5.0 + len(agent)]
                synthetic_study.write_run(
                    folder / "runs" / name, agent, f"gym/{task}", seed, scores, settings=protocol
                )
    broken = folder / "runs" / f"broken-{EVIL}"
    broken.mkdir()
    (broken / "config.json").write_text("{")
    return write_report([folder / "runs"], folder / "out")


@pytest.fixture
def nothing_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are empty: drawing them is tested elsewhere and takes the time."""
    monkeypatch.setattr(
        "noisynet.reports.plotting.render", lambda drawing: Image(drawing, 7.0, b"", b"<svg/>")
    )


# --- the folder ----------------------------------------------------------------------------------


def test_a_report_has_its_page_figures_and_tables(report: ReportSummary) -> None:
    out = report.page.parent
    assert (report.runs, len(report.left_out), len(report.studies)) == (12, 1, 1)
    assert "config.json is not JSON" in report.left_out[0]
    for figure in ("figure-1a", "figure-2", "figure-3-noisynet-dqn", "figure-6", "profiles"):
        assert (out / "figures" / "gym" / f"{figure}.png").stat().st_size > 5_000
        assert (out / "figures" / "gym" / f"{figure}.svg").stat().st_size > 5_000
    for ending in ("md", "csv", "tex"):
        assert (out / "tables" / "gym" / f"table-1.{ending}").read_text()
    listed = json.loads((out / "report.json").read_text())["files"]
    there = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    assert there == {*listed, "report.json"}
    assert report.files == len(there)


def test_the_page_needs_nothing_else(report: ReportSummary) -> None:
    text = report.page.read_text()
    assert re.findall(r'(?:src|href)="(?!data:|#|figures/|tables/)', text) == []
    assert "http" not in re.sub(r"data:[^\"]*", "", text).replace("http-equiv", "")
    assert EVIL not in text
    assert "&lt;img src=x onerror=alert(1)&gt;" in text


@pytest.mark.usefixtures("nothing_is_drawn")
def test_the_same_runs_give_the_same_page(report: ReportSummary, tmp_path: Path) -> None:
    runs = [report.page.parent.parent / "runs"]
    first, second = (write_report(runs, tmp_path / name) for name in ("first", "second"))
    assert first.page.read_bytes() == second.page.read_bytes()


@pytest.mark.usefixtures("nothing_is_drawn")
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


def test_a_folder_of_something_else_is_refused(report: ReportSummary, tmp_path: Path) -> None:
    runs = report.page.parent.parent / "runs"
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ReportError, match="is not empty and holds no earlier report"):
        write_report([runs], tmp_path)
    with pytest.raises(ReportError, match="is a file; choose another"):
        write_report([runs], tmp_path / "thesis.tex")


def test_when_no_run_can_be_read_the_reasons_are_given(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "config.json").write_text("[]")
    with pytest.raises(ReportError, match=r"none can be read as a run:\n.*holds a list"):
        write_report([tmp_path / "runs"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("nothing_is_drawn")
def test_a_partial_sweep_says_what_is_missing(tmp_path: Path) -> None:
    protocol = {"frames": 200, "evaluation.period_frames": 100}
    for agent, scores in (("dqn", [1.0]), ("noisynet-dqn", [1.0, 2.0])):
        folder = tmp_path / "runs" / agent
        synthetic_study.write_run(folder, agent, "atari/pong", 0, scores, settings=protocol)
    said = "\n".join(write_report([tmp_path / "runs"], tmp_path / "out").notes)
    assert "1 of 2 runs have not reached their last evaluation" in said
    assert "No NoisyNet agent has complete runs on the same environment as its baseline" in said
    assert "56 of the paper's 57 games have no run: alien, amidar" in said
    earlier = write_report([tmp_path / "runs"], tmp_path / "earlier", at_frames=100)
    assert len(earlier.notes) == 1  # only the games
    assert (tmp_path / "earlier" / "tables" / "atari" / "table-1.csv").exists()
    with pytest.raises(ReportError, match="at_frames must be positive, got 0"):
        write_report([tmp_path / "runs"], tmp_path / "out", at_frames=0)


@pytest.mark.usefixtures("nothing_is_drawn")
def test_every_agent_of_the_paper_is_reported_beside_what_was_published(tmp_path: Path) -> None:
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


# --- the page in a browser -----------------------------------------------------------------------


@pytest.fixture
def page(browser: Browser, report: ReportSummary) -> Browser:
    browser.console.clear()
    browser.requests.clear()
    browser.open(report.page)
    return browser


def column(browser: Browser, table: str, index: int) -> list[Any]:
    rows = f"[...document.querySelectorAll('#gym-{table} tbody tr')]"
    found: list[Any] = browser.evaluate(f"{rows}.map((row) => row.cells[{index}].textContent)")
    return found


def test_the_page_opens_from_disk_without_errors_and_without_the_network(
    page: Browser, report: ReportSummary
) -> None:
    assert page.console == []
    others = [url for url in page.requests if not url.startswith("data:image/")]
    assert others == [report.page.resolve().as_uri()]


def test_every_figure_is_visible(page: Browser) -> None:
    sizes = page.evaluate(
        "[...document.images].map((i) => [i.naturalWidth, i.getBoundingClientRect().width, i.alt])"
    )
    assert len(sizes) == 8
    assert all(natural > 100 and shown > 100 and alt for natural, shown, alt in sizes)


def test_a_heading_sorts_its_table_both_ways(page: Browser) -> None:
    heading = "document.querySelectorAll('#gym-runs th button')[6]"
    page.evaluate(f"{heading}.click()")
    values = [float(text) for text in column(page, "runs", 6)]
    assert values == sorted(values, reverse=True)
    assert page.evaluate(f"{heading}.parentElement.ariaSort") == "descending"
    page.evaluate(f"{heading}.click()")
    assert [float(text) for text in column(page, "runs", 6)] == sorted(values)
    page.evaluate("document.querySelectorAll('#gym-runs th button')[1].click()")
    assert column(page, "runs", 1) == sorted(column(page, "runs", 1))
    assert page.evaluate(f"{heading}.parentElement.ariaSort") == "none"


def test_the_page_is_used_by_keyboard(page: Browser) -> None:
    page.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the results"
    page.evaluate("document.querySelectorAll('#gym-runs th button')[6].focus()")
    page.press("Enter")
    values = [float(text) for text in column(page, "runs", 6)]
    assert values == sorted(values, reverse=True)
    assert page.evaluate("document.getElementById('sorted').textContent") == (
        "sorted by best, descending"
    )
    unreachable = page.evaluate(
        "[...document.querySelectorAll('a, button, summary, .scroll')]"
        ".filter((one) => one.tabIndex < 0).length"
    )
    assert unreachable == 0


def test_html_in_a_name_is_text(page: Browser) -> None:
    assert any(EVIL in text for text in column(page, "runs", 0))
    assert f"gym/{EVIL}" in column(page, "table-3", 0)
    assert EVIL in page.evaluate("document.getElementById('left-out').parentElement.textContent")
    assert page.evaluate("document.querySelectorAll('img[src=x]').length") == 0
    assert page.console == []
