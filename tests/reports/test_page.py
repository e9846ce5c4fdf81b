"""The page, as text and in a browser."""

from __future__ import annotations

import re
from typing import Any

import pytest

from noisynet.reports import ReportSummary

from .browser import Browser
from .conftest import HTML_NAME


def test_the_page_is_self_contained_and_escaped(report: ReportSummary) -> None:
    text = report.page.read_text()
    assert re.findall(r'(?:src|href)="(?!data:|#|figures/|tables/|\./\.\./runs/)', text) == []
    assert "http" not in re.sub(r"data:[^\"]*", "", text).replace("http-equiv", "")
    assert HTML_NAME not in text
    assert "&lt;img src=x onerror=alert(1)&gt;" in text


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


def test_the_page_can_be_used_by_keyboard(page: Browser) -> None:
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
    assert any(HTML_NAME in text for text in column(page, "runs", 0))
    assert f"gym/{HTML_NAME}" in column(page, "table-3", 0)
    assert HTML_NAME in page.evaluate(
        "document.getElementById('skipped').parentElement.textContent"
    )
    assert page.evaluate("document.querySelectorAll('img[src=x]').length") == 0
    assert page.console == []


def test_the_pointer_shows_the_values_of_every_line_at_the_nearest_evaluation(
    page: Browser,
) -> None:
    page.evaluate("document.getElementById('gym-figure-6').scrollIntoView()")
    box = page.evaluate(
        "(() => { const plot = document.querySelector('#gym-figure-6 .plot');"
        " const area = plot.getBoundingClientRect();"
        " const [l, t, w, h] = JSON.parse(plot.dataset.curves).panels[2].box;"
        " return [area.left + (l + 0.7 * w) * area.width,"
        " area.top + (t + h / 2) * area.height]; })()"
    )
    page.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])
    tip = "document.getElementById('tip')"
    assert page.evaluate(f"[...{tip}.children].map((line) => line.textContent)") == [
        "B, 200 frames",
        "DQN: 10.5",  # the mean of two seeds
        "NoisyNet-DQN: 10.5",
    ]
    assert page.evaluate(f"{tip}.hidden") is False
    page.call("Input.dispatchMouseEvent", type="mouseMoved", x=1, y=1)
    assert page.evaluate(f"{tip}.hidden") is True
    assert page.console == []


def test_the_arrow_keys_show_the_values_of_a_figure_one_after_the_other(page: Browser) -> None:
    page.evaluate("document.querySelector('#gym-figure-6 .plot').focus()")
    tip = "document.getElementById('tip')"
    page.press("ArrowRight")  # the newest of the last panel
    newest = page.evaluate(f"{tip}.firstChild.textContent")
    page.press("ArrowLeft")
    assert (newest, page.evaluate(f"{tip}.firstChild.textContent")) == (
        "B, 300 frames",
        "B, 200 frames",
    )
    page.press("Escape")
    assert page.evaluate(f"{tip}.hidden") is True


def test_dark_mode_has_a_dark_page_and_dark_figures(page: Browser) -> None:
    colour = "getComputedStyle(document.body).backgroundColor"
    image = "getComputedStyle(document.querySelector('.plot img')).filter"
    assert (page.evaluate(colour), page.evaluate(image)) == ("rgb(255, 255, 255)", "none")
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    page.call("Emulation.setEmulatedMedia", features=dark)
    try:
        assert page.evaluate(colour) == "rgb(25, 25, 25)"
        assert page.evaluate(image).startswith("invert")
    finally:
        page.call("Emulation.setEmulatedMedia", features=[])


def test_a_phone_scrolls_tables_and_not_the_page(page: Browser) -> None:
    page.resize(390, 800)
    try:
        width = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.evaluate(width) == 0
    finally:
        page.resize(1100, 1400)


def test_every_run_is_a_link_to_its_folder(page: Browser, report: ReportSummary) -> None:
    links = page.evaluate("[...document.querySelectorAll('#gym-runs tbody a')].map((a) => a.href)")
    runs = report.page.parent.parent / "runs"
    folders = {path.as_uri() for path in runs.iterdir() if not path.name.startswith("broken")}
    assert {link.rstrip("/") for link in links} == folders
