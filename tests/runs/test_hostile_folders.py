"""Damaged and hostile run folders among healthy ones: lists and reports leave them out.

Each kind is one folder. All of them are read together, by the functions behind the commands.
"""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest
from cli.calling import invoke
from reports.synthetic_study import write_run

from noisynet.dashboard.read_runs import Runs
from noisynet.dashboard.views import compare_view, run_view, runs_view
from noisynet.reports import write_report
from noisynet.reports.load_runs import Run, find_runs, read_runs
from noisynet.runs import RunRecord, find_run_folders, read_run

Damage = Callable[[Path], object]

FILES: Final = ("config.json", "status.json", "run.owner", "metrics.jsonl", "timing.jsonl")
ENDLESS: Final = Path("/dev/zero")


def _write(data: bytes) -> Damage:
    return lambda path: path.write_bytes(data)


def _change(change: Callable[[bytes], bytes]) -> Damage:
    return lambda path: path.write_bytes(change(path.read_bytes()))


def _flip(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 0x80]) + data[middle + 1 :]


def _sparse(path: Path) -> None:
    os.truncate(path, 1 << 40)


def _replace(make: Callable[[Path], object]) -> Damage:
    def replaced(path: Path) -> None:
        path.unlink(missing_ok=True)
        make(path)

    return replaced


def _socket(path: Path) -> None:
    before = Path.cwd()
    os.chdir(path.parent)  # the name of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(before)


def _link_to(target: str) -> Damage:
    return _replace(lambda path: path.symlink_to(target))


def _move_outside(path: Path) -> None:
    outside = path.parent.parent / f"outside-{path.parent.name}"
    path.rename(outside)
    path.symlink_to(outside)


DAMAGES: Final[dict[str, Damage]] = {
    "empty": _write(b""),
    "a brace": _write(b"{\n"),
    "a list": _write(b"[]\n"),
    "null": _write(b"null\n"),
    "a number": _write(b"7\n"),
    "a text": _write(b'"text"\n'),
    "not UTF-8": _write(b'{"kind":"\xff\xfe"}\n'),
    "zeros": _write(b"\0" * 4096 + b"\n"),
    "deep lists": _write(b"[" * 100_000 + b"\n"),
    "deep objects": _write(b'{"a":' * 100_000 + b"\n"),
    "400 digits": _write(b'{"frames":' + b"9" * 400 + b"}\n"),
    "10,000 digits": _write(b'{"frames":' + b"9" * 10_000 + b"}\n"),
    "a lone surrogate": _write(b'{"agent":"\\ud800"}\n'),
    "a name of a megabyte": _write(b'{"' + b"x" * 1_200_000 + b'":1}\n'),
    "a text of a megabyte": _write(b'{"agent":"' + b"x" * 1_200_000 + b'"}\n'),
    "a byte order mark": _change(lambda data: b"\xef\xbb\xbf" + data),
    "a flipped bit": _change(_flip),
    "the first half": _change(lambda data: data[: len(data) // 2] + b"\n"),
    "twice": _change(lambda data: data + data),
    "a terabyte": _sparse,
    "a FIFO": _replace(os.mkfifo),
    "a socket": _replace(_socket),
    "a folder": _replace(Path.mkdir),
    "an endless device": _link_to(str(ENDLESS)),
    "an empty device": _link_to("/dev/null"),
    "a dangling link": _link_to("nowhere"),
    "a link to itself": _replace(lambda path: path.symlink_to(path.name)),
    "a link to another folder": _move_outside,
}

VALUES: Final[dict[str, str]] = {
    "null": "null",
    "text": '"text"',
    "a letter for a digit": '"1O0"',
    "minus one": "-1",
    "1e308": "1e308",
    "400 digits": "9" * 400,
    "true": "true",
    "a list": "[]",
    "an object": '{"a":{"b":[1]}}',
    "a lone surrogate": r'"\ud800"',
    "an escape sequence": r'"\u001b[31mred\u001b]0;title\u0007"',
    "a megabyte": f'"{"x" * 1_100_000}"',
    "NaN": "NaN",
    "Infinity": "-Infinity",
}

# Each field once, with a value before it that every synthetic run has.
FIELDS: Final[dict[str, list[str]]] = {
    "config.json": [
        *("agent", "environment", "seed", "frames", "evaluation.period_frames"),
        *("evaluation.frames", "max_episode_frames", "environment_options"),
        *("exploration.evaluation", "made_by", "optimiser.learning_rate"),
    ],
    "status.json": ["state", "frames", "score", "reason", "updated", "files"],
    "run.owner": ["pid", "host", "since", "started"],
    "metrics.jsonl": ["noise", "score", "completed", "sigma"],
    "timing.jsonl": ["kind", "seconds", "steps_per_second"],
}


def _with_field(file: str, field: str, text: str) -> Damage:
    """Replace the value of a field by JSON text, in every row that has it."""

    def damage(path: Path) -> None:
        rows = [json.loads(line) for line in _objects(file, path.read_text())]
        section, _, inner = field.rpartition(".")
        for row in rows:
            target = row[section] if section else row
            if inner in target or not file.endswith(".jsonl"):
                target[inner] = "«»"
        lines = [json.dumps(row, separators=(",", ":")) for row in rows]
        path.write_text("".join(line.replace(r'"\u00ab\u00bb"', text) + "\n" for line in lines))

    return damage


def _objects(file: str, text: str) -> list[str]:
    return text.splitlines() if file.endswith(".jsonl") else [text]


def _row(text: str) -> Damage:
    return _change(lambda data: data + text.encode() + b"\n")


_SIGMA: Final = '{"kind":"train","frames":150,"steps":9,"updates":9,"loss":0.1,"sigma":'
SPECIAL: Final[dict[str, tuple[str, Damage]]] = {
    "σ as text": ("metrics.jsonl", _row(_SIGMA + '{"q":"0.1"}}')),
    "σ of 1e308": ("metrics.jsonl", _row(_SIGMA + '{"q":1e308}}')),
    "σ of 3,000 layers": (
        "metrics.jsonl",
        _row(_SIGMA + json.dumps({f"layer{i}": 0.1 for i in range(3000)}) + "}"),
    ),
    "a layer with a name of a megabyte": (
        "metrics.jsonl",
        _row(_SIGMA + json.dumps({"x" * 1_100_000: 0.1}) + "}"),
    ),
    "training frames as text": ("metrics.jsonl", _row('{"kind":"train","frames":"1O0","a":1}')),
    "an unknown kind": ("metrics.jsonl", _row('{"kind":"evaluatiof","frames":1}')),
    "a row of deep lists": (
        "metrics.jsonl",
        _row('{"kind":"evaluation","frames":' + "[" * 5000 + "}"),
    ),
    "two million evaluations": (
        "config.json",
        _change(
            lambda data: re.sub(rb'"period_frames": \d+', b'"period_frames": 1', data).replace(
                b'"frames": 300', b'"frames": 2000000'
            )
        ),
    ),
    "5,000 settings": (
        "config.json",
        _change(lambda data: b"%s,%s}" % (data.rstrip()[:-1], _settings(5000))),
    ),
    "a setting with a long text": (
        "config.json",
        _change(lambda data: b'%s,"note":"%s"}' % (data.rstrip()[:-1], b"x" * 20_000)),
    ),
    "another agent": (
        "config.json",
        _change(lambda data: data.replace(b'"noisynet-dqn"', b'"sarsa"')),
    ),
    "a path as environment": (
        "config.json",
        _change(lambda data: data.replace(b"minatar/breakout", b"../../etc/passwd")),
    ),
}


def _settings(count: int) -> bytes:
    return ",".join(f'"s{"_" * (i // 100)}{"x" * (i % 100)}":{i}' for i in range(count)).encode()


# What the run is the same without: no log, or a file that reports do not need, or the same value.
HARMLESS: Final = {
    "metrics.jsonl: empty",
    *(f"timing.jsonl: {name}" for name in ("empty", "twice")),
    "metrics.jsonl: twice",
    "metrics.jsonl completed: true",
    "metrics.jsonl score: NaN",
    "metrics.jsonl score: Infinity",
    "metrics.jsonl sigma: null",
    "metrics.jsonl score: minus one",
    *(f"status.json {field}: null" for field in ("score", "reason", "updated")),
    *(f"status.json reason: {name}" for name in ("text", "a letter for a digit")),
    "status.json reason: an escape sequence",
    *(f"status.json updated: {name}" for name in ("text", "a letter for a digit")),
    "status.json score: minus one",
    *(f"config.json {field}: null" for field in ("max_episode_frames", "exploration.evaluation")),
    "config.json environment_options: an object",
    "config.json made_by: a list",
    *(
        f"config.json optimiser.learning_rate: {name}"
        for name in (
            *("null", "text", "a letter for a digit", "minus one", "1e308", "true", "a list"),
            "an object",
            "an escape sequence",
        )
    ),
}


def _kinds() -> dict[str, tuple[str, Damage]]:
    kinds = {
        f"{file}: {name}": (file, damage) for file in FILES for name, damage in DAMAGES.items()
    }
    for file, fields in FIELDS.items():
        for field in fields:
            for name, text in VALUES.items():
                kinds[f"{file} {field}: {name}"] = (file, _with_field(file, field, text))
    return kinds | SPECIAL


KINDS: Final = _kinds()


def _healthy(folder: Path, seed: int) -> Path:
    settings = {"frames": 300, "evaluation.period_frames": 100, "evaluation.frames": 50}
    write_run(folder, "noisynet-dqn", "minatar/breakout", seed, [1.0, 2.0, 3.0], settings=settings)
    owner = {"pid": os.getpid(), "host": socket.gethostname(), "since": "now", "started": "1/1"}
    (folder / "run.owner").write_text(json.dumps(owner))
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Path]]:
    """Five healthy runs, and one for each kind of damage."""
    out, damaged = tmp_path_factory.mktemp("hostile"), {}
    for seed in range(5):
        _healthy(out / f"healthy-{seed}", seed)
    for number, (kind, (file, damage)) in enumerate(KINDS.items()):
        folder = _healthy(out / f"{number:03d}", 10 + number)
        damage(folder / file)
        damaged[kind] = folder
    return out, damaged


@pytest.fixture(scope="module")
def read(folders: tuple[Path, dict[str, Path]]) -> tuple[dict[Path, Run], dict[str, str]]:
    """The runs that reports read, and the reasons for which the others are left out."""
    runs, skipped = read_runs(find_runs([folders[0]]))
    return {run.path: run for run in runs}, skipped


def test_there_are_at_least_200_kinds() -> None:
    assert len(KINDS) >= 200
    assert set(KINDS) >= HARMLESS


def _is_harmless(kind: str) -> bool:
    return kind in HARMLESS or kind.startswith("run.owner")


def test_a_report_leaves_out_what_it_cannot_read_and_reads_the_others(
    folders: tuple[Path, dict[str, Path]], read: tuple[dict[Path, Run], dict[str, str]]
) -> None:
    out, damaged = folders
    runs, skipped = read
    for seed in range(5):
        assert runs[out / f"healthy-{seed}"].curve.tolist() == [1.0, 2.0, 3.0]
    # A folder without a file config.json is no run folder.
    listed = {path for path in damaged.values() if (path / "config.json").is_dir() is False}
    assert set(runs) | {Path(name) for name in skipped} >= listed
    wrong = {kind for kind, path in damaged.items() if _is_harmless(kind) != (path in runs)}
    wrong -= {kind for kind, path in damaged.items() if path not in listed}
    assert wrong == set()
    for kind, path in damaged.items():
        if str(path) in skipped:
            assert KINDS[kind][0] in skipped[str(path)], kind
            assert len(skipped[str(path)]) < 1000


def test_one_report_of_all_that_are_damaged(
    folders: tuple[Path, dict[str, Path]], tmp_path: Path, read: tuple[dict[Path, Run], Any]
) -> None:
    kept = [path for path in find_runs([folders[0]]) if path not in read[0]]
    healthy = [folders[0] / f"healthy-{seed}" for seed in range(5)]
    summary = write_report([*kept, *healthy], tmp_path / "report")
    assert (summary.runs, len(summary.skipped)) == (5, len(kept))
    assert "healthy-3" in summary.page.read_text()


@pytest.mark.slow
def test_one_report_of_all_of_them(
    folders: tuple[Path, dict[str, Path]], tmp_path: Path, read: tuple[dict[Path, Run], Any]
) -> None:
    summary = write_report([folders[0]], tmp_path / "report")
    assert (summary.runs, len(summary.skipped)) == tuple(map(len, read))


def test_the_list_of_runs_shows_all_of_them_and_escapes_what_they_say(
    folders: tuple[Path, dict[str, Path]],
) -> None:
    out, damaged = folders
    ended = invoke("runs", "--out", str(out))
    assert ended.exit_code == 0, ended.output
    assert "\x1b" not in ended.output
    lines = ended.output.splitlines()
    assert len(lines) == 1 + len(list(find_run_folders(out)))
    assert sum(line.startswith("finished") for line in lines) >= 5
    shown = json.loads(invoke("runs", "--out", str(out), "--json").output)
    states = {Path(run["folder"]): run["state"] for run in shown}
    assert states[damaged["config.json: a FIFO"]] == "unreadable"
    assert not [run for run in shown if run["state"] == "running"]


def test_the_dashboard_shows_all_of_them(
    folders: tuple[Path, dict[str, Path]], read: tuple[dict[Path, Run], dict[str, str]]
) -> None:
    runs = Runs([folders[0]])
    while runs.behind:
        runs.refresh(seconds=10.0)
    states = {run.path: run.state for run in runs.by_key.values()}
    assert set(states) == set(find_run_folders(folders[0]))
    assert {states[folders[0] / f"healthy-{seed}"] for seed in range(5)} == {"finished"}
    assert states[folders[1]["metrics.jsonl: a FIFO"]] == "unreadable"
    unreadable = {str(path) for path, state in states.items() if state == "unreadable"}
    assert unreadable <= set(read[1])  # reports also check digests
    views = [runs_view(runs), compare_view(runs, "", "on", "frames")]
    views += [run_view(run) for run in runs.by_key.values()]
    for view in views:
        assert json.dumps(view, allow_nan=False)


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 7))]
)
def test_each_is_shown_or_refused_in_a_sentence(
    folders: tuple[Path, dict[str, Path]], part: int
) -> None:
    for kind, path in list(folders[1].items())[part::7]:
        ended = invoke("show", str(path))
        assert ended.exit_code in (0, 1), kind
        assert isinstance(ended.exception, SystemExit | None), kind
        assert "\x1b" not in ended.output
        assert len(ended.output) < 20_000


def test_nothing_is_written_to_a_folder_that_is_read(
    folders: tuple[Path, dict[str, Path]],
) -> None:
    def contents() -> dict[Path, tuple[int, int]]:
        found = {}
        for path in folders[0].rglob("*"):
            with suppress(OSError):
                found[path] = (path.lstat().st_mtime_ns, path.lstat().st_size)
        return found

    before = contents()
    for path in find_run_folders(folders[0]):
        read_run(path, points=10)
    assert contents() == before


@pytest.mark.parametrize(
    ("owner", "state"),
    [
        ({"pid": -1}, "killed"),
        ({"pid": 10**400}, "killed"),
        ({"pid": 1, "started": "another boot/1"}, "killed"),
        ({"host": "another-machine"}, "killed"),
    ],
)
def test_only_a_process_that_has_the_lock_is_running(
    tmp_path: Path, owner: dict[str, Any], state: str
) -> None:
    """Pids are used again, and mean nothing on another host."""
    folder = _healthy(tmp_path / "run", 0)
    change = {"state": "running", "frames": 100}
    (folder / "status.json").write_text(json.dumps(change))
    here = {"pid": os.getpid(), "host": socket.gethostname(), "since": "2001-01-01T00:00:00+00:00"}
    (folder / "run.owner").write_text(json.dumps(here | owner))
    (folder / "run.lock").touch()
    record = read_run(folder)
    assert isinstance(record, RunRecord)
    assert record.state == state
