"""The Markdown tables of `PAGES`, from the files in `results/`.

python benchmarks/tables.py            # prints them
python benchmarks/tables.py --write    # writes them into the pages
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

RESULTS = Path(__file__).parent / "results"
README = Path(__file__).parent / "README.md"
ROOT = Path(__file__).parent.parent
PAGES = (README, ROOT / "docs" / "audit.md", ROOT / "docs" / "integrations.md", ROOT / "README.md")
_BLOCK: Final = re.compile(r"(?<=<!-- results: )(\w+)( -->\n).*?(?=<!-- end -->)", re.DOTALL)

Report = Mapping[str, Any]


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; short rows are filled up."""
    lines = [header, ["---"] * len(header)]
    lines += [[*row, *[""] * (len(header) - len(row))] for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def ratio(row: Mapping[str, Any]) -> str:
    """A ratio with its quartiles; one that is 1 by definition without."""
    low, high = row["ratio_quartiles"]
    if row["ratio"] == low == high == 1:
        return "1"
    return f"{row['ratio']:.2f} ({low:.2f} to {high:.2f})"


def speed(row: Mapping[str, Any]) -> str:
    """The speed of a contestant, whatever its unit."""
    value = next(row[key] for key in row if key.endswith("_per_second"))
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def conditions(report: Report) -> str:
    """A line that says where, with which versions and how often was measured."""
    machine = report.get("machine", {})
    parts = [machine["cpu"]] if "cpu" in machine else []
    parts += [f"{machine['cores']} cores"] if "cores" in machine else []
    parts += [machine[key] for key in ("instructions",) if key in machine]
    parts += [f"{name} {machine[name]}" for name in ("torch", "noisynet") if name in machine]
    parts += [f"{name} {version}" for name, version in report.get("versions", {}).items()]
    parts += [f"before: {report['before']}"] if report.get("before") else []
    parts += [f"{report['rounds']} rounds"] if "rounds" in report else []
    return f"*{', '.join(parts)}.*" if parts else ""


def ratios(titles: Mapping[str, str], report: Report) -> str:
    """The ratios that matter: a row for each, a column for each table, by its heading."""
    found = report.get("ratios", {})
    names = list(dict.fromkeys(name for title in titles for name in found.get(title, {})))
    if not names:
        return ""
    rows = [
        [name, *(ratio(found[t][name]) if name in found[t] else "" for t in titles)]
        for name in names
    ]
    return table(["ratio of speed (quartiles)", *titles.values()], rows)


def speeds(titles: Mapping[str, str], report: Report) -> str:
    """Speeds and ratios: a row for each contestant, two columns for each table."""
    present = {title: heading for title, heading in titles.items() if title in report}
    header = [""]
    for title, heading in present.items():
        to = next(iter(report[title].values()))["to"]
        header += [f"{heading}: steps/s".removeprefix(": "), f"ratio to {to} (quartiles)"]
    names = list(dict.fromkeys(name for title in present for name in report[title]))
    rows = []
    for name in names:
        cells = [name]
        for title in present:
            row = report[title].get(name)
            cells += [speed(row), ratio(row)] if row else ["", ""]
        rows.append(cells)
    return table(header, rows)


def dqn(report: Report) -> list[str]:
    """Whole training on atari/pong."""
    titles = {"update every 4 steps": "update every 4 steps", "update every step": "every step"}
    return [speeds(titles, report), ratios(titles, report)]


def small_network(report: Report) -> list[str]:
    """Whole training with a small network."""
    titles = {"update every step": ""}
    return [speeds(titles, report), ratios(titles, report)]


def a3c(report: Report) -> list[str]:
    """Asynchronous training."""
    found = []
    for title, heading in {
        "two workers": "atari/pong",
        "minatar/breakout, two workers": "minatar/breakout",
    }.items():
        if title in report:
            found += [speeds({title: heading}, report), ratios({title: heading}, report)]
    if "normals of a roll-out" in report:
        normals = report["normals of a roll-out"]
        found.append(
            f"Independent noise on atari/pong draws {normals['count']:,} normals per roll-out; "
            f"that alone takes {normals['milliseconds']:.1f} ms, "
            f"{100 * normals['share_of_a_rollout']:.0f} % of a roll-out of noisynet-a3c."
        )
    if "scaling" in report:
        workers = [name.removesuffix(" workers") for name in report["scaling"]]
        rows = [["steps/s", *map(speed, report["scaling"].values())]]
        found.append(table(["a3c on atari/pong, workers", *workers], rows))
    return found


def a3c_learning(report: Report) -> list[str]:
    """What A3C learns per frame, and its speed at equal learning."""
    rows = []
    for name, found in report["learning"].items():
        formats = {
            "frames_to_return": ",",
            "mean_return": ".2f",
            "mean_return_of_last_tenth": ".2f",
        }
        cells = [
            ", ".join("–" if one is None else f"{one:{form}}" for one in found[column])
            for column, form in formats.items()
        ]
        rows.append([name, *cells])
    header = ["by seed", f"frames to a mean return of {report['return']:g}"]
    header += ["mean return of all episodes", "of the last tenth"]
    return [table(header, rows), *_equal_learning(report)]


def _equal_learning(report: Report) -> list[str]:
    """The speed of batched workers at equal learning; nothing if a seed did not learn."""
    learning = report["learning"]
    single, batched = (
        learning[f"a3c, {shape}"]["frames_to_return"]
        for shape in ("16 workers of 1 environment", "2 workers of 8 environments")
    )
    path = RESULTS / "a3c.json"
    if None in [*single, *batched] or not path.exists():
        return []
    speeds = json.loads(path.read_text())["minatar/breakout, two workers"]
    per_frame = statistics.median(single) / statistics.median(batched)
    fast = speeds["a3c"]["steps_per_second"]
    slow = speeds["a3c, 1 environment each"]["steps_per_second"]
    return [
        f"2 workers of 8 environments make {fast:,.0f} steps/s (`a3c.py`), and "
        f"{fast * per_frame:,.0f} at equal learning: they reach that return in {1 / per_frame:.2f} "
        f"times the frames of single environments. That is {fast * per_frame / slow:.1f} times the "
        "speed of 2 workers of 1 environment."
    ]


def train_step(report: Report) -> list[str]:
    """One update against the bound."""
    updates = list(report["updates"].values())
    threads = sorted({row["threads"] for row in updates})
    rows = []
    for agent, compute in dict.fromkeys((row["agent"], row["compute"]) for row in updates):
        same = [row for row in updates if (row["agent"], row["compute"]) == (agent, compute)]
        cells = {
            row["threads"]: f"{row['milliseconds']:.1f} ms, {row['times_the_bound']:.2f}× "
            f"({row['quartiles'][0]:.2f} to {row['quartiles'][1]:.2f})"
            for row in same
        }
        largest = max(row["largest_difference"] for row in same)
        rows.append([f"{agent}, {compute}", *(cells[n] for n in threads), f"{largest:.0e}"])
    labels = [f"{n} thread{'s' * (n > 1)}" for n in threads]
    products = ", ".join(
        f"{name}: {value:.0f}" for name, value in report["gflop_per_second"].items()
    )
    return [
        table(["", *labels, "largest difference"], rows),
        f"{report['gflop_of_an_update']:.2f} GFLOP per update; GFLOP/s of the {products}.",
    ]


def growth(report: Report) -> list[str]:
    """One row for each quantity that grows."""
    width = max(map(len, report["tables"].values()))
    rows = [
        [
            title,
            *(f"{name.rsplit(': ', 1)[1]}: {ratio(row)}" for name, row in summary.items()),
        ]
        for title, summary in report["tables"].items()
    ]
    return [table(["ratio of speed (quartiles)", *[""] * width], rows)]


def layers(report: Report) -> list[str]:
    """A row for each layer, a column for each task."""
    tasks = report["tasks"]
    rows = [
        [name, *(ratio(tasks[task][name]) for task in tasks)]
        for name in next(iter(tasks.values()))
        if name != "nn.Linear"
    ]
    drawing = report["drawing"]
    drawn = (
        f"`torch.randn` alone: {drawing['independent_randn_ms']:.1f} ms for the "
        f"{drawing['independent_normals']:,} normals of independent noise, "
        f"{drawing['factorised_randn_ms']:.2f} ms for the {drawing['factorised_normals']:,} of "
        "factorised noise."
    )
    return [table(["time, ratio to nn.Linear (quartiles)", *tasks], rows), drawn]


def replay(report: Report) -> list[str]:
    """Microseconds of each operation, and sizes."""
    rows = [
        [name, *(f"{times[key]:,.0f}" for key in ("median_us", "p5_us", "p95_us"))]
        for name, times in report["timings"].items()
    ]
    sizes = (
        f"{report['rows']:,} rows in batches of {report['batch_size']}: "
        f"{report['file_bytes'] / 1e9:.2f} GB of files, "
        f"{report['private_memory_bytes'] / 1e6:.0f} MB of private memory."
    )
    return [table(["µs", "median", "5 %", "95 %"], rows), sizes]


def checkpoint(report: Report) -> list[str]:
    """Seconds of the first checkpoint and of later ones."""
    later = sorted(row["beyond_sync_seconds"] for row in report["later"])
    rows = [
        ["first", f"{report['first']['beyond_sync_seconds']:.2f}"],
        [
            f"after {report['rows_between_checkpoints']:,} new rows",
            f"{report['beyond_sync_seconds']:.2f} ({later[0]:.2f} to {later[-1]:.2f})",
        ],
    ]
    size = f"{report['rows']:,} rows, {report['replay_bytes'] / 1e9:.1f} GB."
    return [table(["checkpoint", "seconds beyond the sync: median (range)"], rows), size]


def report_cost(report: Report) -> list[str]:
    """The report of a full study."""
    keys = ("runs", "seconds", "memory_mb", "files", "report_mb", "page_mb")
    header = ["runs", "seconds", "peak memory, MB", "files", "all files, MB", "page, MB"]
    return [table(header, [[f"{report[key]:,}" for key in keys]])]


def failed(entry: Report | None) -> str:
    """How many questions a layer or an agent fails, of those that apply."""
    if entry is None:
        return "–"
    answers = [check["passed"] for check in entry["checks"]]
    return f"{answers.count(False)} of {len(answers) - answers.count(None)}"


def audit_heads(libraries: Mapping[str, Report]) -> list[str]:
    """A heading for each library; those that were read have an asterisk."""
    heads = [
        name if name == "noisynet" else f"{name} {libraries[name]['version']}" for name in libraries
    ]
    read = ["layer" not in found for found in libraries.values()]
    return [head + r"\*" * mark for head, mark in zip(heads, read, strict=True)]


def audit_brief(report: Report) -> list[str]:
    """How many questions each library fails."""
    libraries = report["libraries"]
    rows = [
        [title, *(failed(found.get(kind)) for found in libraries.values())]
        for title, kind in {"layer alone": "layer", "agent": "agent"}.items()
    ]
    return [table(["failed questions", *audit_heads(libraries)], rows)]


def audit(report: Report) -> list[str]:
    """The answer of each library's agent to each question."""
    libraries = report["libraries"]
    answers = {
        name: {check["question"]: check["passed"] for check in found["agent"]["checks"]}
        for name, found in libraries.items()
    }
    words = {True: "pass", False: "**fail**", None: "–"}
    questions = answers["pfrl" if "pfrl" in answers else next(iter(answers))]
    rows = [
        [question, *(words[found.get(question)] for found in answers.values())]
        for question in questions
    ]
    for title, kind in {"failed, agent": "agent", "failed, layer alone": "layer"}.items():
        rows.append([title, *(failed(found.get(kind)) for found in libraries.values())])
    return [table(["", *audit_heads(libraries)], rows)]


def audit_evidence(report: Report) -> list[str]:
    """What was audited of each library, and the evidence of what failed."""
    libraries = report["libraries"]
    found = []
    for head, library in zip(audit_heads(libraries), libraries.values(), strict=True):
        agent = library["agent"]
        found.append(f"**{head}**, {agent['name']}: {agent['driven']}.")
        failures = [check for check in agent["checks"] if check["passed"] is False]
        lines = [f"- {check['question']}: {shortened(check['evidence'])}" for check in failures]
        found.append("\n".join(lines))
    return found


def shortened(evidence: str, length: int = 200) -> str:
    """The beginning of a long list."""
    return evidence if len(evidence) <= length else f"{evidence[:length].rsplit(' ', 1)[0]} …"


def sb3_initialisation(report: Report) -> list[str]:
    """Mean returns of the identity tasks, and how many seeds reach the goal."""
    tasks = report["returns"]
    policies = list(next(iter(tasks.values())))
    rows = []
    for task, by_policy in tasks.items():
        cells = [
            f"{statistics.fmean(found):.1f} ({sum(one > report['goal'] for one in found)})"
            for found in by_policy.values()
        ]
        rows.append([f"{task}, {len(by_policy[policies[0]])} seeds", *cells])
    return [table(["", *policies], rows)]


def dashboard_load(report: Report) -> list[str]:
    """The dashboard over many runs."""
    memory = report["memory_mb_by_tenths"]
    rows = {
        "first paint": f"{report['first_paint_ms']} ms",
        f"all {report['runs']} runs listed": f"{report['all_rows_ms']} ms",
        "all logs read": f"{report['all_read_s']} s, {report['processor_s_to_read_all']} s of "
        "processor time",
        "an update, processor time of the server": f"median {report['update_ms_median']} ms, 99 % "
        f"below {report['update_ms_99_percent']} ms, at most {report['update_ms_max']} ms",
        f"memory of the server, by tenths of {report['minutes']:g} minutes": ", ".join(
            f"{one:.1f}" for one in memory
        )
        + " MB",
    }
    shape = (
        f"{report['runs']} runs of {report['rows']:,} rows, {report['live']} of them growing every "
        f"second; {report['clients']} clients; load average {report['load_average']} by other work."
    )
    return [table(["", "measured"], [list(row) for row in rows.items()]), shape]


def soak(report: Report) -> list[str]:
    """Memory and open files of long runs."""
    rows = []
    for name, run in report["runs"].items():
        series = [", ".join(f"{one:.0f}" for one in run[key]) for key in ("memory_mb", "files")]
        rows.append([name, f"{run['minutes']:g}", *series])
    return [table(["run", "minutes", "memory by tenths of the time, MB", "open files"], rows)]


RENDERERS: Final[dict[str, Callable[[Report], list[str]]]] = {
    "layers": layers,
    "train_step": train_step,
    "dqn": dqn,
    "rainbow": dqn,
    "minatar": small_network,
    "cartpole": small_network,
    "a3c": a3c,
    "a3c_learning": a3c_learning,
    "growth": growth,
    "replay": replay,
    "checkpoint": checkpoint,
    "report": report_cost,
    "audit": audit,
    "audit_brief": audit_brief,
    "audit_evidence": audit_evidence,
    "sb3_initialisation": sb3_initialisation,
    "dashboard_load": dashboard_load,
    "soak": soak,
}
"""The tables of each script, by the name of their block in a page."""


def render(name: str, results: Path = RESULTS) -> str:
    """The tables of a script's results; a sentence if there are none."""
    file = "audit" if name.startswith("audit") else name
    path = results / f"{file}.json"
    if not path.exists():
        script = "audit_libraries" if file == "audit" else name
        return f"Not measured yet: run `python benchmarks/{script}.py`.\n"
    report = json.loads(path.read_text())
    blocks = [*RENDERERS[name](report), conditions(report)]
    return "\n\n".join(block for block in blocks if block) + "\n"


def updated(readme: str, results: Path = RESULTS) -> str:
    """The text of a page with every block between "results: name" and "end" rendered anew."""
    return _BLOCK.sub(lambda match: f"{match[1]}{match[2]}{render(match[1], results)}", readme)


def main() -> None:
    """Print the tables, or write them into the pages."""
    parser = argparse.ArgumentParser(description="The tables of the benchmarks")
    parser.add_argument("--write", action="store_true", help="write them into the pages")
    if parser.parse_args().write:
        for page in PAGES:
            page.write_text(updated(page.read_text()))
            print(f"written to {page}")
        return
    for name in RENDERERS:
        print(f"## {name}.py\n\n{render(name)}")


if __name__ == "__main__":
    main()
