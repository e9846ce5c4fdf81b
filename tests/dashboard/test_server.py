"""The server: addresses, tokens, headers, and events."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from noisynet.dashboard.server import changes, is_loopback
from noisynet.dashboard.server import serve as serve_dashboard

from .conftest import Serve, WriteRun


def ask(
    address: str, path: str, method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], str]:
    """Send the path as it is: a client must not resolve `..` first."""
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=30)
    connection.request(method, path, headers={n.replace("_", "-"): v for n, v in headers.items()})
    answer = connection.getresponse()
    found = {name.lower(): value for name, value in answer.getheaders()}
    text = "" if "event-stream" in found.get("content-type", "") else answer.read().decode()
    connection.close()
    return answer.status, found, text


def first_event(address: str, query: str) -> dict[str, Any]:
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=30)
    connection.request("GET", f"/events?{query}")
    answer = connection.getresponse()
    line = b""
    while not line.startswith(b"data: "):
        line = answer.fp.readline()
    connection.close()
    parts: dict[str, Any] = json.loads(line.removeprefix(b"data: "))["changed"]
    return parts


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, write_run: WriteRun) -> Path:
    folder = tmp_path_factory.mktemp("server") / "runs"
    write_run(folder / "one", "noisynet-dqn", "gym/A", 0, [1.0, 2.0])
    (folder.parent / "secret.txt").write_text("secret")
    return folder


@pytest.fixture(scope="module")
def address(serve: Serve, runs: Path) -> str:
    return serve(runs)


def test_loopback_needs_no_token_and_every_answer_has_the_headers(address: str) -> None:
    assert address.startswith("http://127.0.0.1:")
    for path in ("/", "/dashboard.js", "/components.js", "/page.css", "/icon.svg", "/nothing"):
        status, headers, _ = ask(address, path)
        assert status == (404 if path == "/nothing" else 200)
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"


def test_the_page_has_no_inline_script_or_style_and_no_other_host(address: str) -> None:
    for path in ("/", "/dashboard.js", "/dashboard.css", "/components.js", "/page.css"):
        _, _, text = ask(address, path)
        assert "://" not in text.replace("http://www.w3.org/2000/svg", "")
        assert "innerHTML" not in text
        if path == "/":
            assert text.count("<script") == text.count("<script src=")
            assert "style=" not in text
            assert "<style" not in text


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.txt",
        "/%2e%2e/secret.txt",
        "/one/config.json",
        "/video?run=../secret.txt",
        "/video?run=one",
        "/events?view=../secret",
        "//etc/passwd",
    ],
)
def test_no_path_leads_to_a_file(address: str, path: str) -> None:
    status, _, text = ask(address, path)
    assert status == 404
    assert "secret" not in text.removeprefix("expected view")


def test_a_run_is_asked_for_by_its_key_only(address: str) -> None:
    (key,) = first_event(address, "view=runs")
    assert first_event(address, f"view=run&run={key}")["row"]["name"] == "one"
    assert first_event(address, "view=run&run=one") == {"row": None}
    assert first_event(address, "view=compare")["chosen"] == "gym/A"
    assert ask(address, f"/video?run={key}")[0] == 404  # it is not rendered yet


def test_foreign_names_and_foreign_pages_are_refused(address: str) -> None:
    assert ask(address, "/", Host="rebound.example:80")[0] == 403
    assert ask(address, "/", Host="localhost")[0] == 200
    (key,) = first_event(address, "view=runs")
    foreign = ask(address, f"/video?run={key}", "POST", Origin="http://foreign.example")
    assert foreign[0] == 403


def test_other_addresses_have_a_token(serve: Serve, runs: Path) -> None:
    address = serve(runs, "--host", "0.0.0.0")
    token = urlsplit(address).query.removeprefix("token=")
    assert len(token) >= 16
    here = address.replace("0.0.0.0", "127.0.0.1")
    for path in ("/", "/events", "/dashboard.js", "/video?run=x", f"/?token={token[:-1]}"):
        assert ask(here, path)[0] == 401
    status, headers, _ = ask(here, f"/?token={token}")
    assert (status, headers["location"]) == (303, "/")
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert ask(here, "/", Cookie=cookie.partition(";")[0])[0] == 200
    assert ask(here, "/", Cookie=cookie.partition("=")[0] + "=no")[0] == 401
    assert ask(here, "/", Authorization=f"Bearer {token}")[0] == 200
    assert ask(here, "/", Authorization="Bearer ü")[0] == 401


def test_tokens_are_compared_in_constant_time() -> None:
    source = Path(serve_dashboard.__code__.co_filename).read_text()
    assert source.count("self._token.encode()") == 1
    assert "hmac.compare_digest(given.encode(), self._token.encode())" in source


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        *(("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True)),
        *(("0.0.0.0", False), ("192.168.0.2", False), ("localhost.example", False), ("", False)),
    ],
)
def test_which_addresses_are_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_only_changed_parts_are_sent() -> None:
    sent: dict[str, int] = {}
    first = json.loads(changes({"a": 1, "b": [2]}, sent))
    assert first == {"changed": {"a": 1, "b": [2]}, "removed": []}
    assert changes({"a": 1, "b": [2]}, sent) == ""
    assert json.loads(changes({"b": [3]}, sent)) == {"changed": {"b": [3]}, "removed": ["a"]}
    assert json.loads(changes({}, {})) == {"changed": {}, "removed": []}  # "there are no runs"


def test_ctrl_c_ends_it_quietly_while_somebody_watches(runs: Path) -> None:
    command = [sys.executable, "-m", "noisynet", "dashboard", str(runs), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        address = process.stderr.readline().split()[0]
        with urllib.request.urlopen(f"{address}events") as stream:
            stream.readline()
            process.send_signal(signal.SIGINT)
            assert process.communicate(timeout=60)[1] == ""


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected folders of runs, got "):
        serve_dashboard([tmp_path / "nothing"], "127.0.0.1", 0, "", print)
    with pytest.raises(ValueError, match="a token of at least 16 characters, got 5"):
        serve_dashboard([tmp_path], "127.0.0.1", 0, "short", print)
