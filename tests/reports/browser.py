"""Headless Chromium, controlled by the DevTools protocol over a pipe.

The pipe (`--remote-debugging-pipe`) has JSON messages terminated by a zero byte, in on file
descriptor 3 and out on 4, so that neither a port nor a websocket library is needed. Imported by
conftest.py; as a script it takes a screenshot:

    python tests/reports/browser.py report/index.html page.png [width height [y [dark]]]
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

# Moves the ends of the pipe to the file descriptors that Chromium expects, and executes it.
LAUNCHER: Final = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
for number, end in zip((3, 4), ends):
    os.dup2(end, number)
os.execvp(sys.argv[3], sys.argv[3:])
"""
CHROMIUM: Final = shutil.which("chromium") or shutil.which("chromium-browser")
TIMEOUT_SECONDS: Final = 120.0


class Browser:
    """Chromium with one tab.

    Attributes:
        console: messages and uncaught exceptions.
        requests: requested URLs.
    """

    def __init__(self) -> None:
        assert CHROMIUM is not None
        self._profile = tempfile.TemporaryDirectory(prefix="noisynet-browser-")
        commands_out, self._commands = os.pipe()
        self._answers, answers_in = os.pipe()
        flags = (
            *("--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu"),
            *("--disable-dev-shm-usage", "--no-first-run", "--disable-extensions"),
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            f"--user-data-dir={self._profile.name}",
        )
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-c", LAUNCHER, str(commands_out), str(answers_in)),
                *(CHROMIUM, *flags, "about:blank"),
            ],
            pass_fds=(commands_out, answers_in),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": self._profile.name},
        )
        os.close(commands_out)
        os.close(answers_in)
        self._buffer, self._number = b"", 0
        self._session: str | None = None
        self._events: list[dict[str, Any]] = []
        self.console: list[str] = []
        self.requests: list[str] = []
        try:
            self._attach()
        except BaseException:
            self.close()
            raise

    def _attach(self) -> None:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while (answer := self._receive()).get("id") != self._number:
            self._note(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    def open(self, page: Path | str) -> None:
        """Load a page, from disk or by its address, and wait until it has everything."""
        self._events.clear()
        address = page if isinstance(page, str) else page.resolve().as_uri()
        self.call("Page.navigate", url=address)
        while not any(event["method"] == "Page.loadEventFired" for event in self._events):
            self._note(self._receive())

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in found:
            raise RuntimeError(f"{expression}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def press(self, key: str) -> None:
        """Press and release a key, as a person at the keyboard does."""
        codes = {"Enter": (13, "\r"), "Tab": (9, ""), " ": (32, " "), "Escape": (27, "")}
        codes |= {"ArrowLeft": (37, ""), "ArrowRight": (39, "")}
        code, text = codes[key]
        common = {"key": key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def wait_for(self, expression: str, seconds: float = 60.0) -> Any:
        """The value of a JavaScript expression, as soon as it is true; an element is just true."""
        deadline = time.monotonic() + seconds
        code = f"((found) => found instanceof Node || found)({expression})"
        while not (value := self.evaluate(code)):
            if time.monotonic() > deadline:
                raise AssertionError(f"{expression} was not true within {seconds} seconds")
            time.sleep(0.05)
        return value

    def resize(self, width: int, height: int) -> None:
        """Change the size of the window."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)

    def screenshot(
        self, path: Path, width: int = 1100, height: int = 1400, y: int = 0, dark: int = 0
    ) -> None:
        """A picture of the page, `y` pixels from its top."""
        self.resize(width, height)
        if dark:
            features = [{"name": "prefers-color-scheme", "value": "dark"}]
            self.call("Emulation.setEmulatedMedia", features=features)
        self.evaluate(f"window.scrollTo(0, {y})")
        data = self.call("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(data))

    def close(self) -> None:
        """End the browser that this object started."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        os.close(self._commands)
        os.close(self._answers)
        for _ in range(20):  # its children write to the profile for a moment longer
            shutil.rmtree(self._profile.name, ignore_errors=True)
            if not Path(self._profile.name).exists():
                break
            time.sleep(0.1)
        self._profile.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._answers], [], [], TIMEOUT_SECONDS)
            data = os.read(self._answers, 1 << 16) if ready else b""
            if not data:
                raise RuntimeError(
                    f"Chromium did not answer; it exited with {self._process.poll()}"
                )
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message

    def _note(self, message: dict[str, Any]) -> None:
        method, parameters = message.get("method", ""), message.get("params", {})
        self._events.append(message)
        if method == "Runtime.consoleAPICalled":
            self.console.append(f"{parameters['type']}: {parameters['args']}")
        elif method == "Runtime.exceptionThrown":
            self.console.append(f"exception: {parameters['exceptionDetails']}")
        elif method == "Log.entryAdded":
            self.console.append(f"{parameters['entry']['level']}: {parameters['entry']['text']}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])


def main() -> None:
    page, picture, *size = sys.argv[1:]
    with Browser() as browser:
        browser.open(Path(page))
        browser.screenshot(Path(picture), *map(int, size))


if __name__ == "__main__":
    main()
