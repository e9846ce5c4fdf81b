"""Benchmarks: contestants, ratios, tables and results files. Nothing is timed here."""

from __future__ import annotations

import importlib
import importlib.util
import io
import json
import sys
from argparse import Namespace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from noisynet import NoisyLinear, check_noise
from noisynet.config import build_config
from noisynet.runs import RunRecord, find_run_folders, read_run

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
PEERS = {
    "layers": "torchrl, tianshou",
    "dqn": "stable-baselines3, pfrl, tianshou, torchrl",
    "rainbow": "pfrl",
    "minatar": "stable-baselines3, jax",
    "cartpole": "stable-baselines3, jax",
    "a3c": "pfrl, stable-baselines3",
}
OPTIONS = {"stable-baselines3": "--sb3"}

# A contestant without any library: it says hello, then reports half a second for each step.
STUB = """
import sys
print("hello", flush=True)
print(1.0, flush=True)
for order in sys.stdin:
    print(int(order) / 2, flush=True)
"""


@pytest.fixture(autouse=True)
def _as_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS / "contestants")
    monkeypatch.syspath_prepend(BENCHMARKS)


@pytest.fixture
def turns() -> ModuleType:
    return importlib.import_module("turns")


@pytest.fixture
def training() -> ModuleType:
    return importlib.import_module("training")


@pytest.fixture
def cited(tmp_path: Path) -> Path:
    """A results file that exists already."""
    path = tmp_path / "cited.json"
    path.write_text("cited")
    return path


def load(name: str, cited: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A script as a module of its own, with another results file."""
    path = BENCHMARKS / f"{name}.py"
    specification = importlib.util.spec_from_file_location(f"benchmark_{name}", path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    monkeypatch.setitem(sys.modules, module.__name__, module)  # as dataclasses expect it
    specification.loader.exec_module(module)
    monkeypatch.setattr(module, "RESULTS", cited)
    return module


@pytest.fixture
def script(
    request: pytest.FixtureRequest, cited: Path, monkeypatch: pytest.MonkeyPatch
) -> ModuleType:
    """A script with peers, whose contestants all make a step a second."""
    name: str = request.param
    module = load(name, cited, monkeypatch)
    if name == "layers":
        monkeypatch.setattr(
            module,
            "measure",
            lambda contestants, rounds: {"learn 32": {c: [1.0] * rounds for c in contestants}},
        )
        monkeypatch.setattr(module, "normals_ms", lambda count: 1.0)
        monkeypatch.setattr(module.metadata, "version", lambda name: "1.0")
        return module
    shared = module if name == "a3c" else importlib.import_module("training")
    monkeypatch.setattr(
        shared, "take_turns", lambda entries, rounds, _: {c: [1.0] * rounds for c in entries}
    )
    monkeypatch.setattr(shared, "versions", lambda pythons: dict.fromkeys(pythons, "1.0"))
    monkeypatch.setattr(module, "normals_ms", lambda: (1, 1.0), raising=False)
    return module


def run(module: ModuleType, *arguments: str) -> None:
    before, sys.argv = sys.argv, ["benchmark", "--rounds", "2", *arguments]
    try:
        module.main()
    finally:
        sys.argv = before


# --- results files -------------------------------------------------------------------------------


@pytest.mark.parametrize(("script", "peers"), PEERS.items(), indirect=["script"])
def test_without_peers_the_cited_results_are_not_overwritten(
    script: ModuleType, peers: str, cited: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if "layers" in script.__name__:
        script.peer_layers = lambda: {"pfrl": (nn.Linear, script.no_redraw)}  # type: ignore[attr-defined]
    run(script)
    assert cited.read_text() == "cited"
    said = capsys.readouterr().out
    assert f"not written: cited.json is cited with {peers}" in said
    assert "--out PATH" in said


@pytest.mark.parametrize("script", PEERS, indirect=True)
def test_results_are_written_to_the_file_that_is_given(
    script: ModuleType, cited: Path, tmp_path: Path
) -> None:
    if "layers" in script.__name__:
        script.peer_layers = dict  # type: ignore[attr-defined]
    run(script, "--out", str(tmp_path / "new" / "mine.json"))
    assert cited.read_text() == "cited"
    assert json.loads((tmp_path / "new" / "mine.json").read_text())["rounds"] == 2


@pytest.mark.parametrize(("script", "peers"), PEERS.items(), indirect=["script"])
def test_with_all_peers_the_cited_results_are_written(
    script: ModuleType, peers: str, cited: Path
) -> None:
    arguments = []
    if "layers" in script.__name__:
        layers = dict.fromkeys(script.PEERS, (nn.Linear, script.no_redraw))
        script.peer_layers = lambda: layers  # type: ignore[attr-defined]
    else:
        for peer in peers.split(", "):
            arguments += [OPTIONS.get(peer, f"--{peer}"), "python"]
    run(script, *arguments)
    assert json.loads(cited.read_text())["rounds"] == 2


# --- turns ---------------------------------------------------------------------------------------


def test_contestants_take_turns_and_report_their_speed(turns: ModuleType, tmp_path: Path) -> None:
    stub = tmp_path / "stub.py"
    stub.write_text(STUB)
    entries = {name: turns.Entry(sys.executable, stub) for name in ("one", "other")}
    speeds = turns.take_turns(entries, rounds=2, steps=10)
    assert speeds == {"one": [2.0, 2.0], "other": [2.0, 2.0]}


def test_a_contestant_that_dies_is_named(turns: ModuleType, tmp_path: Path) -> None:
    stub = tmp_path / "stub.py"
    stub.write_text("raise SystemExit(3)")
    with pytest.raises(RuntimeError, match="'mine' died with code 3"):
        turns.take_turns({"mine": turns.Entry(sys.executable, stub)}, rounds=1, steps=10)


def test_a_turn_that_is_exceeded_reports_the_time_of_the_steps_ordered(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    turn = importlib.import_module("turn")
    clock = iter([0.0, 3.0, 10.0, 12.0])
    monkeypatch.setattr(turn.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(sys, "stdin", io.StringIO("50\n"))
    counter = turn.Turns(200)
    assert counter.step(150)
    assert counter.step(150)  # 300 steps in 3 seconds, 200 were ordered; then 50 are
    assert not counter.step(100)  # 100 steps in 2 seconds; nothing more is ordered
    assert capsys.readouterr().out.split() == ["2.0", "1.0"]


def test_ratios_are_taken_within_a_round(turns: ModuleType) -> None:
    speeds = {"dqn": [100.0, 50.0, 200.0], "peer": [50.0, 25.0, 50.0]}
    assert turns.summarise(speeds, "dqn")["peer"] == {
        "steps_per_second": 50.0,
        "to": "dqn",
        "ratio": 0.5,
        "ratio_quartiles": [0.25, 0.5],
    }


def test_a_single_round_has_a_ratio(turns: ModuleType) -> None:
    assert turns.ratio([3.0], [2.0]) == {"ratio": 1.5, "ratio_quartiles": [1.5, 1.5]}


def test_a_comparison_is_with_the_fastest_that_took_part(turns: ModuleType) -> None:
    speeds = {"dqn": [30.0], "slow": [10.0], "fast": [20.0]}
    pairs = [("dqn", ["slow", "fast", "absent"]), ("dqn", ["absent"]), ("absent", ["dqn"])]
    assert turns.compare(speeds, pairs) == {
        "dqn ÷ fast": {"ratio": 1.5, "ratio_quartiles": [1.5, 1.5]}
    }


# --- contestants ---------------------------------------------------------------------------------


def options(**given: Any) -> Namespace:
    pythons = dict.fromkeys(("sb3", "pfrl", "tianshou", "torchrl", "jax"), "python")
    return Namespace(**pythons | {"before": None, "steps": 100, "warm_up": 1000} | given)


def test_another_version_runs_its_own_contestant(training: ModuleType, tmp_path: Path) -> None:
    table = training.small_network_table("minatar/breakout", options(before=tmp_path), {})
    ours, before = table.entries["dqn"], table.entries["before dqn"]
    assert before.command[1] == str(tmp_path / "benchmarks" / "contestants" / "ours.py")
    assert before.variables == {"PYTHONPATH": str(tmp_path)}
    assert before.arguments == ("dqn", "minatar/breakout", "1", "1000")
    assert ours.command[1] == str(BENCHMARKS / "contestants" / "ours.py")
    assert ours.variables == {"PYTHONPATH": str(BENCHMARKS.parent)}
    assert ours.arguments == (*before.arguments, "compute=auto")


def all_tables(
    training: ModuleType, cited: Path, monkeypatch: pytest.MonkeyPatch, before: Path
) -> list[Any]:
    given = options(before=before)
    names = ("dqn", "rainbow", "minatar")
    dqn, rainbow, minatar = (load(name, cited, monkeypatch) for name in names)
    return [
        dqn.table(given, 4),
        dqn.table(given, 1),
        rainbow.table(given, 4),
        rainbow.table(given, 1),
        training.small_network_table("minatar/breakout", given, minatar.JAX_FORMS),
        training.small_network_table("gym/CartPole-v1", given, {"": ()}),
    ]


def test_every_contestant_exists_and_every_ratio_is_of_contestants(
    training: ModuleType, cited: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", sys.executable)  # torch.compile takes part only with a compiler
    for table in all_tables(training, cited, monkeypatch, BENCHMARKS.parent):
        assert all(Path(entry.command[1]).exists() for entry in table.entries.values())
        for of, others in table.pairs:
            assert {of, *others} <= table.entries.keys()


def test_every_setting_of_our_contestants_is_valid(
    training: ModuleType, cited: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = importlib.import_module("ours")
    for table in all_tables(training, cited, monkeypatch, BENCHMARKS.parent):
        for name, entry in table.entries.items():
            if entry.command[1].endswith("ours.py") and "compile" not in name:
                config = ours.configuration(*entry.arguments)
                assert config.replay.capacity_steps == 20_000
                assert config.learning.starts_steps == 1000


def test_a3c_contestants_of_both_versions_have_the_same_settings(
    cited: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    a3c = load("a3c", cited, monkeypatch)
    for entries in a3c.tables(options(before=tmp_path)).values():
        for agent in a3c.AGENTS:
            assert entries[agent].command == entries[f"before {agent}"].command
            assert entries[agent].checkout == BENCHMARKS.parent
            assert entries[f"before {agent}"].checkout == tmp_path


def test_the_speed_at_equal_learning_is_multiplied_by_what_is_learnt_per_frame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = importlib.import_module("tables")
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    rates = {"a3c": 1_000.0, "a3c, 1 environment each": 250.0}
    speeds = {name: {"steps_per_second": rate} for name, rate in rates.items()}
    (tmp_path / "a3c.json").write_text(json.dumps({"minatar/breakout, two workers": speeds}))

    def rendered(batched: list[int | None]) -> list[str]:
        of_workers = {"a3c, 16 workers of 1 environment": [100, 120, 90]}
        needed = {**of_workers, "a3c, 2 workers of 8 environments": batched}
        rows = {
            name: {
                "frames_to_return": frames,
                "mean_return": [4.0],
                "mean_return_of_last_tenth": [5.0],
            }
            for name, frames in needed.items()
        }
        found: list[str] = tables.a3c_learning({"return": 3.0, "learning": rows})
        return found

    table, sentence = rendered([125, 100, 130])
    assert "| a3c, 2 workers of 8 environments | 125, 100, 130 | 4.00 | 5.00 |" in table
    assert "1,000 steps/s (`a3c.py`), and 800 at equal learning" in sentence  # 100 ÷ 125
    assert "in 1.25 times the frames" in sentence
    assert "3.2 times the speed" in sentence
    table, *sentences = rendered([125, None, 130])  # a seed that does not reach the return
    assert "125, –, 130" in table
    assert not sentences


def test_what_is_learnt_per_frame_is_cited_only_with_pfrl(
    cited: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learning = load("a3c_learning", cited, monkeypatch)
    monkeypatch.setattr(learning, "versions", dict)
    monkeypatch.setattr(
        learning,
        "train",
        lambda command, seed: [(20_000, float("pfrl" in command[1])), (190_000, seed)],
    )
    monkeypatch.setattr(sys, "argv", ["a3c_learning"])
    learning.main()
    assert cited.read_text() == "cited"
    monkeypatch.setattr(sys, "argv", ["a3c_learning", "--pfrl", "python", "--seeds", "5"])
    learning.main()
    found = json.loads(cited.read_text())["learning"]
    assert len(found) == 3
    assert found["pfrl a3c, 16 workers"]["mean_return"] == [0.5, 1.0, 1.5, 2.0, 2.5]
    assert found["a3c, 16 workers of 1 environment"]["mean_return"] == [0.0, 0.5, 1.0, 1.5, 2.0]
    assert found["pfrl a3c, 16 workers"]["mean_return_of_last_tenth"] == [0, 1, 2, 3, 4]
    frames = found["a3c, 2 workers of 8 environments"]["frames_to_return"]
    assert frames == [None, None, None, 190_000, 190_000]


def test_the_frames_until_a_return_are_those_of_a_window() -> None:
    learning = importlib.import_module("a3c_learning")
    episodes = [(step, step / 100) for step in range(5, 500, 10)]
    assert learning.frames_until(episodes, 2.0, 100, 500) == 250  # the mean of 1.55 to 2.45
    assert learning.frames_until(episodes, 9.0, 100, 500) is None


def test_every_setting_whose_growth_is_measured_is_valid(
    cited: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    growth = load("growth", cited, monkeypatch)
    titles = [one.title for one in growth.GROWTHS]
    assert len(set(titles)) == len(titles)
    for one in growth.GROWTHS:
        for entry in one.entries().values():
            settings = [argument for argument in entry.arguments[2:] if "=" in argument]
            build_config(one.agent, one.environment, settings=settings)


# --- one update against the bound ----------------------------------------------------------------


@pytest.fixture
def train_step(cited: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load("train_step", cited, monkeypatch)


def test_the_operations_of_an_update_are_those_that_torch_counts(train_step: ModuleType) -> None:
    updates = importlib.import_module("updates")
    agent, batch = updates.make_agent("dqn", "atari/pong", ["compute=torch", "threads=1"])
    with FlopCounterMode(display=False) as counter:
        agent.learn(batch)
    assert counter.get_total_flops() == train_step.operations()


def test_updates_are_multiples_of_the_bound(train_step: ModuleType, tmp_path: Path) -> None:
    initial = np.zeros(2, np.float32)
    for compute, weights in (("torch", [1.0, 0.5]), ("auto", [1.0, 0.6])):
        name = f"dqn, {compute}, 1 thread"
        np.save(tmp_path / f"{name}.npy", np.stack([initial, np.array(weights, np.float32)]))
    product_speed = train_step.operations() / (2 * train_step.SIDE**3)  # 1 update a second at best
    speeds = {
        "matrix product, 1 thread": [product_speed, 2 * product_speed],
        "dqn, torch, 1 thread": [0.5, 1.0],
        "dqn, auto, 1 thread": [0.25, 0.5],
    }
    rows = train_step.summarise(speeds, [1], tmp_path)
    assert rows["dqn, torch, 1 thread"]["times_the_bound"] == 2
    assert rows["dqn, auto, 1 thread"]["times_the_bound"] == 4
    assert rows["dqn, torch, 1 thread"]["largest_difference"] == 0
    assert rows["dqn, auto, 1 thread"]["largest_difference"] == 0.1


# --- tables --------------------------------------------------------------------------------------


@pytest.fixture
def tables() -> ModuleType:
    return importlib.import_module("tables")


def test_the_tables_of_the_pages_are_those_of_the_results(tables: ModuleType) -> None:
    """Run `python benchmarks/tables.py --write` if this fails."""
    pages = [page.read_text() for page in tables.PAGES]
    assert [tables.updated(page) for page in pages] == pages
    for name in tables.RENDERERS:
        assert f"<!-- results: {name} -->" in "".join(pages)


def test_results_become_a_table(tables: ModuleType, tmp_path: Path) -> None:
    row = {"steps_per_second": 512.4, "to": "dqn", "ratio": 1.0, "ratio_quartiles": [1.0, 1.0]}
    noisy = {**row, "steps_per_second": 99.26, "ratio": 0.875, "ratio_quartiles": [0.8, 0.9]}
    report = {
        "machine": {"cpu": "CPU", "cores": 2},
        "rounds": 3,
        "update every step": {"dqn": row, "noisynet-dqn": noisy},
        "ratios": {"update every step": {"noisynet-dqn ÷ dqn": noisy}},
    }
    (tmp_path / "minatar.json").write_text(json.dumps(report))
    readme = "before\n<!-- results: minatar -->\nold\n<!-- end -->\nafter\n"
    assert tables.updated(readme, tmp_path).splitlines() == [
        "before",
        "<!-- results: minatar -->",
        "|  | steps/s | ratio to dqn (quartiles) |",
        "| --- | --- | --- |",
        "| dqn | 512 | 1 |",
        "| noisynet-dqn | 99.3 | 0.88 (0.80 to 0.90) |",
        "",
        "| ratio of speed (quartiles) |  |",
        "| --- | --- |",
        "| noisynet-dqn ÷ dqn | 0.88 (0.80 to 0.90) |",
        "",
        "*CPU, 2 cores, 3 rounds.*",
        "<!-- end -->",
        "after",
    ]


def test_a_benchmark_without_results_says_how_to_run_it(tables: ModuleType, tmp_path: Path) -> None:
    text = tables.render("train_step", tmp_path)
    assert text == "Not measured yet: run `python benchmarks/train_step.py`.\n"


# --- the audit of other libraries -----------------------------------------------------------------

HANDED = """
import json
check = {"question": "is it noisy", "passed": False, "evidence": "0 of 8"}
entry = {"name": "layer", "driven": "by its own method", "passed": False, "checks": [check]}
print("a library's greeting")
print(json.dumps({"version": "1.2", "layer": entry, "agent": entry}))
"""


def test_audits_are_collected_and_cited_only_if_all_libraries_take_part(
    cited: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    script = load("audit_libraries", cited, monkeypatch)
    (tmp_path / "stub.py").write_text(HANDED)
    names = script.entries(options(pfrl="python", agilerl="python", cleanrl="folder"))
    assert all((BENCHMARKS / "contestants" / entry.script).exists() for entry in names.values())
    stub = script.Entry(sys.executable, tmp_path / "stub.py")
    monkeypatch.setattr(script, "entries", lambda _: {"library": stub})
    monkeypatch.setattr(sys, "argv", ["audit_libraries"])
    script.main()
    assert "library 1.2, agent: 1 of 1 fail\n  is it noisy\n" in capsys.readouterr().out
    assert cited.read_text() == "cited"
    monkeypatch.setattr(sys, "argv", ["audit_libraries", "--out", str(tmp_path / "out.json")])
    script.main()
    written = json.loads((tmp_path / "out.json").read_text())["libraries"]
    assert written["library"]["version"] == "1.2"
    assert {"Dopamine", "dqn_zoo"} <= written.keys()


def test_readings_answer_the_questions_of_the_audit() -> None:
    readings = importlib.import_module("audit_readings").READINGS
    asked = [check.question for check in check_noise(NoisyLinear(3, 2), updates=1).checks]
    for read in readings.values():
        assert [check["question"] for check in read["agent"]["checks"]] == asked


def test_audits_become_tables(tables: ModuleType) -> None:
    def entry(*answers: bool | None) -> dict[str, Any]:
        checks = [
            {"question": f"question {number}", "passed": answer, "evidence": "word " * 50}
            for number, answer in enumerate(answers)
        ]
        return {"name": "`Agent`", "driven": "by `act`", "checks": checks}

    ran = {"version": "1.2", "layer": entry(True, None), "agent": entry(True, False)}
    read = {"version": "abc", "agent": entry(None, True)}
    report = {"libraries": {"ran": ran, "read": read}}
    assert tables.audit_brief(report)[0].splitlines()[2:] == [
        "| layer alone | 0 of 1 | – |",
        "| agent | 1 of 2 | 0 of 1 |",
    ]
    assert tables.audit(report)[0].splitlines()[:4] == [
        r"|  | ran 1.2 | read abc\* |",
        "| --- | --- | --- |",
        "| question 0 | pass | – |",
        "| question 1 | **fail** | pass |",
    ]
    shown = "word " * 39 + "word …"
    assert tables.audit_evidence(report) == [
        "**ran 1.2**, `Agent`: by `act`.",
        f"- question 1: {shown}",
        r"**read abc\***, `Agent`: by `act`.",
        "",
    ]


def test_the_live_runs_of_the_dashboard_are_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = importlib.import_module("dashboard_load")
    monkeypatch.setattr(script, "LIVE", 1)
    monkeypatch.setattr(script, "LOCKS", [])
    (live,) = script.write_runs(tmp_path, runs=2, rows=100)
    script.append(live, 101)
    found = [read_run(run, points=0) for run in find_run_folders(tmp_path)]
    script.LOCKS[0].release()
    states = {run.path: run.state for run in found if isinstance(run, RunRecord)}
    assert states.pop(live) == "running"
    assert list(states.values()) == ["finished"]
