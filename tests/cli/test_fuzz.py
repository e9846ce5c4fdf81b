"""Any bytes in any file of a run folder: every command says what is wrong, and nothing else."""

from __future__ import annotations

import json
import resource
import shutil
import tempfile
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noisynet.dashboard.read_runs import Runs
from noisynet.dashboard.views import compare_view, run_view, runs_view
from noisynet.runs import EXIT_LOCKED

from .calling import SHORT, invoke

_FILES: Final = (
    *("config.json", "status.json", "metrics.jsonl", "timing.jsonl", "run.lock", "run.owner"),
    *("checkpoint", "older checkpoint", "trace", "replay/layout.json", "replay/frames.bin"),
)
_COMMANDS: Final = ("runs", "show", "verify", "evaluate", "watch", "train", "report", "dashboard")
# Training flushes denormal numbers to zero, and `st.floats` does not accept that.
_FLOATS: Final = st.sampled_from([0.5, -1.5, 1e308, 1e-300, float("nan"), float("inf")])
_JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | _FLOATS | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=8,
)
_KEYS: Final = st.sampled_from(
    [
        *("agent", "environment", "seed", "frames", "evaluation", "made_by", "network", "replay"),
        *("state", "score", "files", "pid", "host", "kind", "sigma", "noise", "seconds", "threads"),
    ]
)


def _changed(before: bytes, how: tuple[str, float, bytes, str, Any]) -> bytes:
    """The content of a file after damage."""
    kind, where, data, key, value = how
    position = int(where * len(before))
    if kind == "replaced":
        return data
    if kind == "inserted":
        return before[:position] + data + before[position:]
    if kind == "overwritten":
        return before[:position] + data + before[position + len(data) :]
    if kind == "truncated":
        return before[:position]
    lines = before.decode("utf-8", "replace").splitlines() or ["{}"]
    if not before.startswith(b"{\n"):  # rows; the others are one object
        lines[int(where * (len(lines) - 1))] = _with(lines[-1], key, value)
        return ("\n".join(lines) + "\n").encode()
    return _with("\n".join(lines), key, value).encode()


def _with(text: str, key: str, value: Any) -> str:
    """A JSON object with one other entry."""
    try:
        return json.dumps({**json.loads(text), key: value, "sha256": None})
    except (ValueError, TypeError):
        return json.dumps({key: value})


_DAMAGE: Final = st.tuples(
    st.sampled_from(["replaced", "inserted", "overwritten", "truncated", "entry"]),
    st.integers(0, 1000).map(lambda thousandth: thousandth / 1000),
    st.binary(max_size=300),
    _KEYS,
    _JSON,
)


@pytest.fixture(scope="module")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run that has kept its replay."""
    out = tmp_path_factory.mktemp("fuzzed")
    command = [*SHORT, "--out", str(out), "--name", "run", "--no-tensorboard", "--keep-replay"]
    assert invoke(*command).exit_code == 0
    (out / "run" / "run.owner").write_text('{"pid":1,"host":"h","since":"now"}')
    return out / "run"


def _file(run: Path, name: str) -> Path:
    if name.endswith("checkpoint"):
        return sorted((run / "checkpoints").iterdir())[-1 if name == "checkpoint" else 0]
    return max((run / "traces").iterdir()) if name == "trace" else run / name


def _arguments(command: str, out: Path) -> list[str]:
    run = str(out / "run")
    more = ["--out", str(out), "--name", "run", "--no-tensorboard", "--frames", "240"]
    return {
        "runs": ["runs", "--out", str(out)],
        "show": ["show", run],
        "verify": ["show", run, "--verify"],
        "evaluate": ["evaluate", run, "--episodes", "1"],
        "watch": ["watch", run, "-o", str(out / "game.gif"), "--max-steps", "2"],
        "train": [*SHORT, *more],
        "report": ["report", str(out), "-o", str(out / "report")],
    }[command]


def _look(out: Path) -> None:
    """What the server of the dashboard reads and sends."""
    runs = Runs([out])
    while runs.behind:
        runs.refresh()
    (run,) = runs.by_key.values()
    assert (run.state == "unreadable") == bool(run.error)
    for view in (runs_view(runs), run_view(run), compare_view(runs, "", "on", "frames")):
        assert json.dumps(view, allow_nan=False)


def _check(run: Path, name: str, how: Any, command: str) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "runs"
        copy = Path(shutil.copytree(run, out / "run"))
        path = _file(copy, name)
        path.write_bytes(_changed(path.read_bytes(), how))
        if command == "dashboard":
            _look(out)
            return
        ended = invoke(*_arguments(command, out))
        assert isinstance(ended.exception, SystemExit | None), ended.exception
        assert ended.exit_code in (0, 1, 2, EXIT_LOCKED), ended.output
        assert "Traceback" not in ended.output
        if ended.exit_code:
            assert ended.output.startswith(("noisynet: ", "damaged: ")) or "noisynet: " in (
                ended.output
            )
        made = {path.name for path in Path(scratch).rglob("*") if path.parent in (out, out.parent)}
        assert made <= {"runs", "run", "report", "game.gif"}


@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.sampled_from(_FILES), _DAMAGE, st.sampled_from(_COMMANDS))
def test_any_bytes_in_any_file_give_a_sentence(
    small_run: Path, name: str, how: Any, command: str
) -> None:
    _check(small_run, name, how, command)


@pytest.mark.slow
def test_many_bytes_in_any_file_give_a_sentence_and_need_no_memory(small_run: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    @settings(
        max_examples=2000, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    @given(st.sampled_from(_FILES), _DAMAGE, st.sampled_from(_COMMANDS))
    def check(name: str, how: Any, command: str) -> None:
        _check(small_run, name, how, command)

    check()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1_000_000  # kilobytes
