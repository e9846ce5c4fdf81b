"""The paper's tables, recomputed from its published scores."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from noisynet.reports import print_paper
from noisynet.reports.paper_tables import (
    mark,
    paper_tables,
    published_tally,
    recomputed,
    references_that_differ,
    table_1,
)
from noisynet.reports.published import (
    PRINTED,
    atari_references,
)

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize(
    ("agent", "mean", "median"),
    [
        ("dqn", 319.1, 83.3),
        ("noisynet-dqn", 379.0, 122.9),
        ("dueling", 524.1, 132.5),
        ("noisynet-dueling", 633.5, 172.3),
        ("a3c", 293.8, 79.7),
        ("noisynet-a3c", 348.1, 92.6),
    ],
)
def test_the_means_and_medians_of_table_1_are_reproduced(
    agent: str, mean: float, median: float
) -> None:
    assert round(recomputed(agent, "mean", "unrounded")[0], 1) == mean
    assert round(recomputed(agent, "median", "unrounded")[0], 1) == median


@pytest.mark.parametrize("agent", ["dqn", "dueling", "a3c"])
def test_table_1_is_within_the_rounding_of_table_3(agent: str) -> None:
    noisy = f"noisynet-{agent}"
    row = PRINTED[noisy]
    for name, mean, median in (
        (agent, row.baseline_mean, row.baseline_median),
        (noisy, row.noisy_mean, row.noisy_median),
    ):
        assert mark(recomputed(name, "mean", "unrounded"), mean) in "=≈"
        assert mark(recomputed(name, "median", "unrounded"), median) in "=≈"
        assert mark(recomputed(name, "mean", "printed"), mean) == "≠"


@pytest.mark.parametrize(
    ("noisy", "expected"),
    [("noisynet-dqn", "45/1/11"), ("noisynet-dueling", "42/4/11"), ("noisynet-a3c", "33/3/21")],
)
def test_wins_ties_and_losses_of_the_published_scores(noisy: str, expected: str) -> None:
    assert str(published_tally(noisy)) == expected


def test_marks_tell_equal_from_rounded_from_different() -> None:
    found = (93.4, 92.1, 94.7)
    assert [mark(found, printed) for printed in (93, 94, 92, 95, 90, 97)] == list("=≈≈≈≠≠")


def test_references_that_differ_from_their_source() -> None:
    rows = {row[0].text: [cell.value for cell in row[1:4]] for row in references_that_differ().rows}
    assert rows == {
        "atlantis": [12850.0, 12580.0, 12850.0],
        "solaris": [1236.3, 1263.0, 1236.3],
        "video_pinball": [16256.9, 16257.0, 0.0],
    }
    for game, source in atari_references("source").items():
        assert round(source.high) == atari_references("printed")[game].high


def test_table_1_explains_numbers_that_differ() -> None:
    rows = {row[0].text: row for row in table_1().rows}
    assert rows["DQN, mean"][-1].text == "Video Pinball"
    assert rows["DQN, median"][-1].text == ""
    assert "Table 3 is rounded" in rows["NoisyNet-A3C, median"][-1].text


def test_the_paper_is_printed_in_every_format() -> None:
    printed = {}
    for form in ("text", "markdown", "csv", "latex"):
        out = io.StringIO()
        print_paper(out, form)
        printed[form] = out.getvalue()
    for text in printed.values():
        assert "45/1/11" in text
        assert "319.0697830898894" in text if text == printed["csv"] else "319.1" in text
    assert printed["latex"].count(r"\begin{table}") == len(paper_tables())
    assert "$\\pm$" in printed["latex"]


def test_the_paper_is_printed_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    print_paper()
    assert capsys.readouterr().out.startswith("Table 1: mean and median human-normalised score")


def test_the_wheel_contains_the_published_scores(tmp_path: Path) -> None:
    builders = pytest.importorskip("hatchling.builders.wheel", reason="needs hatchling")
    (wheel,) = builders.WheelBuilder(str(ROOT)).build(
        directory=str(tmp_path), versions=["standard"]
    )
    names = set(zipfile.ZipFile(wheel).namelist())
    package = ROOT / "noisynet"
    files = [*package.glob("data/*"), *package.glob("reports/*.py"), *package.glob("reports/page*")]
    assert {path.relative_to(ROOT).as_posix() for path in files if path.is_file()} <= names
