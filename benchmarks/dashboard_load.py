"""The cost of the dashboard over 200 runs of 5,000 rows each, with clients that stay.

    python benchmarks/dashboard_load.py [--minutes 10]    # 430 MB in a temporary folder

The runs are synthetic; 20 of them are "live": each gets a row every second. The server is a process
of its own. Measured are the first paint of the page in Chromium (where it is installed), the
processor time of the server between two updates, and its memory over time. The clients are the
page, which lists the runs, and two streams: one run, and the comparison of all agents.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from noisynet.runs.lock import RunLock

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results" / "dashboard_load.json"
AGENTS = ("dqn", "noisynet-dqn", "dueling", "noisynet-dueling")
PERIOD_FRAMES = 1_000
LIVE = 20
LOCKS: list[RunLock] = []  # of the live runs, held to the end


def load(name: str) -> Any:
    """A module of the report's tests."""
    path = ROOT / "tests" / "reports" / f"{name}.py"
    specification = importlib.util.spec_from_file_location(name, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def rows_at(number: int) -> tuple[bytes, bytes]:
    """The rows of metrics and timing number `number`, with an evaluation after every hundredth."""
    frames = number * PERIOD_FRAMES
    mean = number % 500 / 10
    sigma = {
        f"head.{part}.{i}": 0.01 + 1 / number for part in ("value", "advantage") for i in (0, 2)
    }
    counts = {"kind": "train", "frames": frames, "steps": frames // 4, "updates": frames // 16}
    scores = {"episodes": number, "score_last": mean, "score_mean_100": mean}
    row = {**counts, **scores, "length_mean_100": 99.5, "loss": 1 / number, "sigma": sigma}
    timing = {"kind": "train", "frames": frames, "seconds": 1.0, "steps_per_second": 250.0}
    rows, times = [row], [{**timing, "time": 1.7e9 + number}]
    if number % 100 == 0:
        played = {"completed": True, "episodes": 10, "frames_played": 5000}
        for noise in ("on", "off"):
            common = {"kind": "evaluation", "frames": frames, "noise": noise, "score": mean}
            rows.append({**common, **played})
        times.append({"kind": "evaluation", "frames": frames, "seconds": 9.0})
    return encode(rows), encode(times)


def encode(rows: list[dict[str, Any]]) -> bytes:
    """Rows as a run writes them."""
    return b"".join(json.dumps(row, separators=(",", ":")).encode() + b"\n" for row in rows)


def write_runs(out: Path, runs: int, rows: int) -> list[Path]:
    """Write the run folders; return the live ones."""
    write_run = load("synthetic_study").write_run
    metrics, timing = (
        b"".join(part) for part in zip(*map(rows_at, range(1, rows + 1)), strict=True)
    )
    live = []
    for number in range(runs):
        agent, seed = AGENTS[number % len(AGENTS)], number // len(AGENTS)
        state = "running" if number < LIVE else "finished"
        settings = {"frames": 2 * rows * PERIOD_FRAMES}
        folder = out / agent / f"seed-{seed}"
        write_run(folder, agent, "atari/pong", seed, [1.0], settings=settings, state=state)
        (folder / "metrics.jsonl").write_bytes(metrics)
        (folder / "timing.jsonl").write_bytes(timing)
        if state == "running":
            LOCKS.append(RunLock(folder / "run.lock"))
            live.append(folder)
    return live


def append(folder: Path, number: int) -> None:
    """Add the rows of one second to a live run."""
    for name, data in zip(("metrics", "timing"), rows_at(number), strict=True):
        with (folder / f"{name}.jsonl").open("ab") as file:
            file.write(data)


def processor_ms(pid: int) -> float:
    """Processor time of all threads of a process so far, in milliseconds."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e6


def memory_mb(pid: int) -> float:
    """Resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


class Client:
    """Reads a stream of events for as long as the benchmark runs."""

    def __init__(self, address: str) -> None:
        self.events, self.megabytes = 0, 0.0
        self.first = threading.Event()
        self._answer = urllib.request.urlopen(address)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self._answer:
            self.megabytes += len(line) / 1e6
            self.events += line.startswith(b"data: ")
            self.first.set()


def paint(stack: ExitStack, address: str, runs: int) -> dict[str, Any]:
    """Open the page in Chromium, which stays; milliseconds from the request on."""
    module = load("browser")
    if module.CHROMIUM is None:
        return {"browser": "Chromium is not installed"}
    page = stack.enter_context(module.Browser())
    page.open(address)
    page.wait_for(f"document.querySelectorAll('tbody tr').length === {runs}")
    all_rows = page.evaluate("performance.now()")
    first = page.wait_for("performance.getEntriesByName('first-contentful-paint')[0]?.startTime")
    return {"first_paint_ms": round(first), "all_rows_ms": round(all_rows)}


def measure(runs: Path, live: list[Path], count: int, rows: int, minutes: float) -> dict[str, Any]:
    """Serve the runs to clients that stay, while the live runs grow."""
    command = [sys.executable, "-m", "noisynet", "dashboard", str(runs), "--port", "0"]
    with ExitStack() as stack:
        server = stack.enter_context(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
        stack.callback(server.terminate)
        assert server.stderr is not None
        address = server.stderr.readline().split()[0]
        began = time.perf_counter()
        found = paint(stack, address, count)
        overview = Client(f"{address}events?view=runs")
        size = sum(path.stat().st_size for path in runs.rglob("*.jsonl"))
        while bytes_read(server.pid) < size:
            time.sleep(0.1)
        found["all_read_s"] = round(time.perf_counter() - began, 1)
        found["processor_s_to_read_all"] = round(processor_ms(server.pid) / 1000, 1)
        key = first_key(address)
        clients = [overview, Client(f"{address}events?view=run&run={key}")]
        clients.append(Client(f"{address}events?view=compare"))
        for client in clients:
            client.first.wait(60)
        updates, memory = [], []
        end, row = time.monotonic() + 60 * minutes, rows
        while (started := time.monotonic()) < end:  # a loaded machine has longer seconds
            before, row = processor_ms(server.pid), row + 1
            for folder in live:
                append(folder, row)
            time.sleep(max(0.0, started + 1.0 - time.monotonic()))
            updates.append(processor_ms(server.pid) - before)
            memory.append(memory_mb(server.pid))
        updates.sort()
        tenth = max(1, len(memory) // 10)
        return {
            **found,
            "minutes": minutes,
            "clients": len(clients) + ("first_paint_ms" in found),
            "events": sum(client.events for client in clients),
            "sent_mb": round(sum(client.megabytes for client in clients), 1),
            "update_ms_median": round(statistics.median(updates), 1),
            "update_ms_99_percent": round(updates[int(0.99 * (len(updates) - 1))], 1),
            "update_ms_max": round(updates[-1], 1),
            "memory_mb_by_tenths": [
                round(max(memory[i : i + tenth]), 1) for i in range(0, 10 * tenth, tenth)
            ],
            "load_average": round(os.getloadavg()[0], 1),
        }


def bytes_read(pid: int) -> int:
    """Bytes that a process has read so far, from any file."""
    return int(Path(f"/proc/{pid}/io").read_text().split()[1])


def first_key(address: str) -> str:
    """The key of the first live run."""
    with urllib.request.urlopen(f"{address}events?view=runs") as answer:
        changed: dict[str, Any] = json.loads(answer.readline().removeprefix(b"data: "))["changed"]
    return next(key for key, row in changed.items() if row["owner"])  # live, or stalled meanwhile


def main() -> None:
    """Write the runs, measure, print and write the results file."""
    parser = argparse.ArgumentParser(description="The dashboard over many runs")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--rows", type=int, default=5_000)
    parser.add_argument("--out", type=Path, default=RESULTS, help="where to write the results")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        live = write_runs(Path(folder), arguments.runs, arguments.rows)
        sizes = {"runs": arguments.runs, "rows": arguments.rows, "live": len(live)}
        counts = (arguments.runs, arguments.rows, arguments.minutes)
        found = {**sizes, **measure(Path(folder), live, *counts)}
    for name, value in found.items():
        print(f"{name:<26}{value!s}")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
