"""The page in Chromium, over a run that trains meanwhile and over runs that are written here."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .conftest import Serve, WriteRun

if TYPE_CHECKING:
    from reports.browser import Browser

HTML_NAME = "<img src=x onerror=alert(1)>"
RED = "rgb(176, 0, 32)"
TRAIN = [
    *("train", "noisynet-dqn", "deep_sea/4", "--frames", "100M", "--no-tensorboard"),
    *("--set", "compute=torch"),  # nothing to compile first
    *("--set", "learning.starts_steps=60", "--set", "network.hidden=[16]"),
    *("--set", "log_period_steps=50", "--set", "checkpoint_period_frames=400"),
    *("--set", "evaluation.period_frames=100", "--set", "evaluation.frames=8"),
]


@pytest.fixture
def page(browser: Browser) -> Iterator[Browser]:
    browser.resize(1100, 800)
    browser.console.clear()
    browser.requests.clear()
    yield browser
    assert browser.console == []
    browser.open("about:blank")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, write_run: WriteRun) -> Path:
    folder = tmp_path_factory.mktemp("written")
    for seed in range(3):
        write_run(folder / f"noisy-{seed}", "noisynet-dqn", "gym/A", seed, [1.0, 2.0 + seed])
        write_run(folder / f"plain-{seed}", "dqn", f"gym/{HTML_NAME}", seed, [1.0])
    write_run(folder / HTML_NAME, "dqn", "gym/A", 0, [1.0, 5.0], state="failed")
    broken = folder / "broken"
    broken.mkdir()
    (broken / "config.json").write_text("{")
    return folder


@pytest.fixture(scope="module")
def address(serve: Serve, written: Path) -> str:
    return serve(written)


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_run_that_trains_is_followed_until_it_is_killed_and_can_be_watched(
    page: Browser, serve: Serve, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    page.open(serve(runs))
    page.wait_for("document.getElementById('total').textContent === '0 runs'")
    page.evaluate("window.notReloaded = true")
    process = subprocess.Popen(
        [sys.executable, "-m", "noisynet", *TRAIN, "--out", str(runs)],
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        page.wait_for("document.querySelector('tbody .running')?.textContent === '▶ running'", 120)
        page.wait_for(f"document.querySelector('tbody').textContent.includes('{process.pid} on')")
        page.evaluate("document.querySelector('tbody a').click()")
        points = "document.querySelectorAll('.plot')[0].curves?.x.length ?? 0"
        first = page.wait_for(points)
        page.wait_for(f"({points}) > {first}")  # a point appears
        page.wait_for("document.querySelector('.plot svg path[stroke-width]')")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    page.wait_for("document.querySelector('dd.killed')")
    page.evaluate("history.back()")
    page.wait_for("document.querySelector('tbody tr.bad .killed')")
    colour = "getComputedStyle(document.querySelector('tbody .killed')).color"
    assert page.evaluate(colour) == RED
    assert page.evaluate("document.title") == "(1) noisynet"
    before = contents(runs)
    page.evaluate("history.forward()")
    page.wait_for("document.querySelector('dd.killed')")
    page.evaluate("document.querySelector('main button').click()")
    page.wait_for("document.querySelector('video')?.videoWidth > 100", 120)
    assert page.evaluate("window.notReloaded") is True
    assert contents(runs) == before


def test_a_failed_run_comes_first_and_names_are_text(page: Browser, address: str) -> None:
    page.open(address)
    page.wait_for("document.querySelectorAll('tbody tr').length === 8")
    rows = page.evaluate(
        "[...document.querySelectorAll('tbody tr')].map((row) => row.cells[1].textContent)"
    )
    assert rows == ["✕ failed", "✕ unreadable", *["✓ finished"] * 6]
    name = "document.querySelector('tbody a')"
    assert page.evaluate(f"{name}.textContent") == HTML_NAME
    assert "not JSON" in page.evaluate("document.querySelectorAll('tbody tr')[1].title")
    page.evaluate(f"{name}.click()")
    page.wait_for("document.querySelector('main h2').textContent")
    assert page.evaluate("document.querySelector('main h2').textContent") == HTML_NAME
    page.evaluate("location.hash = 'compare'")
    page.wait_for("document.querySelectorAll('option').length === 6")
    assert HTML_NAME in page.evaluate("document.querySelector('option').textContent")
    assert page.evaluate("document.querySelectorAll('img').length") == 0
    hosts = {url.split("/")[2] for url in page.requests if not url.startswith("about:")}
    assert hosts == {address.split("/")[2]}  # nothing comes from elsewhere


def test_the_page_can_be_used_by_keyboard(page: Browser, address: str) -> None:
    page.open(address)
    page.wait_for("document.querySelectorAll('tbody tr').length === 8")
    focused = "document.activeElement.textContent"
    seen = []
    for _ in range(6):
        page.press("Tab")
        seen.append(page.evaluate(focused) or page.evaluate("document.activeElement.type"))
    assert seen[:4] == ["Skip to the content", "Runs", "Compare", "search"]
    page.evaluate("[...document.querySelectorAll('th button')][5].focus()")
    page.press("Enter")
    scores = "[...document.querySelectorAll('tbody tr')].map((row) => row.cells[5].dataset.value)"
    assert page.evaluate(scores)[:4] == ["5", "4", "3", "2"]
    assert page.evaluate("document.getElementById('announcement').textContent") == (
        "sorted by score, descending"
    )
    page.evaluate("document.querySelectorAll('tbody a')[1].focus()")
    page.press("Enter")
    page.wait_for("document.querySelector('.plot')?.curves")
    page.evaluate("document.querySelector('.plot').focus()")
    page.press("ArrowLeft")  # the newest value, then the one before
    page.press("ArrowLeft")
    tip = "[...document.getElementById('tip').children].map((line) => line.textContent)"
    assert page.evaluate(tip) == ["100 frames", "noise on: 1", "noise off: 1"]
    page.press("Escape")
    assert page.evaluate("document.getElementById('tip').hidden") is True
    unreachable = "[...document.querySelectorAll('a, button, summary, .plot, pre, .scroll')]"
    assert page.evaluate(f"{unreachable}.filter((one) => one.tabIndex < 0).length") == 0


def test_a_choice_changes_the_comparison_and_keeps_the_focus(page: Browser, address: str) -> None:
    page.open(f"{address}#compare&environment=gym%2FA")
    lines = "document.querySelector('.plot')?.curves?.panels[0].lines.map((line) => line.name)"
    page.wait_for(lines)
    assert page.evaluate(lines) == ["DQN", "NoisyNet-DQN"]
    assert page.evaluate("document.querySelectorAll('path[fill-opacity]').length") == 1
    unit = "document.querySelector('select[name=unit]')"
    page.evaluate(
        f"{unit}.focus(); {unit}.value = 'hours'; {unit}.dispatchEvent(new Event('change'))"
    )
    page.wait_for("document.querySelector('.plot')?.curves?.unit === 'hours'")
    assert page.evaluate("document.activeElement.name") == "unit"
    assert page.evaluate("document.querySelector('select').value") == "gym/A"


@pytest.mark.parametrize("view", ["runs", "compare", "run"])
def test_a_phone_scrolls_tables_and_not_the_page(page: Browser, address: str, view: str) -> None:
    page.resize(390, 800)
    page.open(address)
    page.wait_for("document.querySelectorAll('tbody tr').length === 8")
    if view == "run":
        page.evaluate("document.querySelector('tbody a').click()")
    else:
        page.evaluate(f"location.hash = '{view}'")
    if view != "runs":
        page.wait_for("document.querySelector('.plot svg')")
        assert page.evaluate("document.querySelector('.plot svg').clientWidth") <= 390
    width = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(width) == 0


def test_a_lost_connection_is_told_and_found_again(
    page: Browser, address: str, written: Path
) -> None:
    page.open(address)
    page.wait_for("document.getElementById('connection').textContent.startsWith('live')")
    page.call(
        "Network.emulateNetworkConditions",
        offline=True,
        latency=0,
        downloadThroughput=-1,
        uploadThroughput=-1,
    )
    page.evaluate("location.hash = 'compare'")
    page.wait_for("document.querySelector('#connection.lost')")
    page.call(
        "Network.emulateNetworkConditions",
        offline=False,
        latency=0,
        downloadThroughput=-1,
        uploadThroughput=-1,
    )
    page.wait_for("document.getElementById('connection').textContent.startsWith('live')")
    page.console.clear()  # Chromium itself reports the request that failed
