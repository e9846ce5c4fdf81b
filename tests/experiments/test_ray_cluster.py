"""Sweeps on a Ray cluster of two nodes, both on this machine."""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from experiments.conftest import NAMES, Sweeps, has_ended, until
from noisynet.runs import read_metrics

pytestmark = [
    # Ray warns at import and at shutdown.
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


NODE: Final = {"num_cpus": 1, "object_store_memory": 80_000_000}
STARTS: Final = 5

SEARCH: Final = """
agents = ["noisynet-dqn"]
environments = ["deep_sea/4"]
frames = 400

[search]
trials = 3
space.optimiser.learning_rate = { low = 1e-5, high = 1e-1, log = true }
"""


@pytest.fixture
def cluster() -> Iterator[Any]:
    """Two nodes of one core each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        module = importlib.import_module("ray.cluster_utils")
        head = NODE | {"include_dashboard": False}
        made = retried(lambda: module.Cluster(True, head_node_args=head))
        try:
            retried(lambda: made.add_node(**NODE))
            made.wait_for_nodes(timeout=120)
            yield made
        finally:
            made.shutdown()


def retried(start: Callable[[], Any]) -> Any:
    """Retry: Ray gives its nodes 30 s to start, too little on a busy machine."""
    for attempt in range(1, STARTS + 1):
        try:
            return start()
        except Exception as error:
            if "timed out during startup" not in str(error) or attempt == STARTS:
                raise
    return None


def nodes_of(sweeps: Sweeps, name: str) -> list[str]:
    """The nodes on which the processes of a run were started."""
    return re.findall(r"node (\w+), task", (sweeps.out / f"{name}.log").read_text())


@pytest.mark.timeout(600)
def test_sweeps_on_two_nodes_survive_signals_kills_and_a_lost_node(
    sweeps: Sweeps, cluster: Any, tmp_path: Path
) -> None:
    """One test, so that one cluster is started."""
    check_a_signal_saves_the_runs_of_both_nodes(sweeps, cluster)
    check_the_runs_of_a_killed_driver_write_checkpoints(sweeps, cluster)
    check_a_search(tmp_path, cluster)
    check_a_lost_node_a_killed_run_and_a_failed_run(sweeps, cluster)


def check_a_signal_saves_the_runs_of_both_nodes(sweeps: Sweeps, cluster: Any) -> None:
    sweeps.order({name: {"hold_at": 75} for name in NAMES[:2]})
    sweep = sweeps.start(on="ray", address=cluster.address)
    until(lambda: sweeps.are_held_at(75, NAMES[:2]))
    assert len({nodes_of(sweeps, name)[0] for name in NAMES[:2]}) == 2
    os.kill(sweep.pid, signal.SIGTERM)
    summary, log = sweep.communicate()
    assert (sweep.returncode, "0 of 4 runs done" in summary) == (143, True), log
    assert [sweeps.frames(name) for name in NAMES] == [75, 75, 0, 0]


def check_the_runs_of_a_killed_driver_write_checkpoints(sweeps: Sweeps, cluster: Any) -> None:
    sweeps.order({name: {"hold_at": 125} for name in NAMES[:2]})
    sweep = sweeps.start(on="ray", address=cluster.address)
    until(lambda: sweeps.are_held_at(125, NAMES[:2]))
    sweep.kill()
    sweep.wait()
    until(lambda: not any(sweeps.is_locked(name) for name in NAMES[:2]))
    assert all(sweeps.frames(name) in (100, 125) for name in NAMES[:2])


def check_a_lost_node_a_killed_run_and_a_failed_run(sweeps: Sweeps, cluster: Any) -> None:
    """The same command as before: every run resumes, those of the lost node on the other."""
    held = {name: {"hold_at": 175} for name in NAMES[:2]}
    sweeps.order({**held, NAMES[2]: {"kill_at": 75}, NAMES[3]: {"fail_at": 75}})
    sweep = sweeps.start(on="ray", address=cluster.address)
    until(lambda: sweeps.are_held_at(175, NAMES[:2]))
    there = {name: nodes_of(sweeps, name) for name in NAMES[:2]}
    pids = [sweeps.pid(name) for name in NAMES[:2]]
    (second,) = cluster.worker_nodes
    cluster.remove_node(second, allow_graceful=False)
    until(lambda: any(has_ended(pid) for pid in pids))
    sweeps.gate.touch()
    summary, log = sweep.communicate()
    assert (sweep.returncode, "3 of 4 runs done, 1 failed" in summary) == (1, True), log
    assert f"{NAMES[3]}: expected a finite loss, got nan; lower the learning rate" in summary
    moved = [name for name in there if nodes_of(sweeps, name) != there[name]]
    assert len(moved) == 1, log
    (*_, left, reached) = nodes_of(sweeps, moved[0])
    assert {left, reached} == {nodes[-1] for nodes in there.values()}
    # Processes may or may not have had time for a checkpoint when driver and node were lost.
    first, second_start, third, *fourth = sweeps.starts(moved[0])
    assert (first, second_start) == (0, 75)
    assert third in (100, 125)
    assert fourth in ([150], [175])
    assert sweeps.starts(NAMES[2]) == [0, 50]


def check_a_search(folder: Path, cluster: Any) -> None:
    """Two trials at once: as many as the cluster has cores."""
    folder = folder / "search"
    folder.mkdir()
    search = Sweeps(folder)
    try:
        search.plan.write_text(SEARCH)
        names = [f"deep_sea/4/noisynet-dqn+trial-{trial}/seed-0" for trial in range(3)]
        held = {"open": str(search.gate), "hold_at": 75}
        search.orders.write_text(json.dumps(dict.fromkeys(names, held)))
        sweep = search.start(on="ray", address=cluster.address)
        until(lambda: search.are_held_at(75, names[:2]))
        assert not (search.out / names[2]).exists()
        search.gate.touch()
        summary, log = sweep.communicate()
        assert (sweep.returncode, "3 of 3 trials complete" in summary) == (0, True), log
        assert len({nodes_of(search, name)[0] for name in names[:2]}) == 2
        assert [search.starts(name) for name in names] == [[0]] * 3
    finally:
        search.close()


@pytest.mark.slow
def test_a_killed_run_that_trains_is_resumed_from_its_checkpoint(
    sweeps: Sweeps, cluster: Any
) -> None:
    sweep = sweeps.start(
        *("real",),
        on="ray",
        address=cluster.address,
        agents="noisynet-dqn",
        environments="deep_sea/4",
        frames="1k",
    )
    until(lambda: sweeps.frames(NAMES[1]) >= 100 and sweeps.is_locked(NAMES[1]))
    os.kill(sweeps.pid(NAMES[1]), signal.SIGKILL)
    summary, log = sweep.communicate()
    assert (sweep.returncode, "1 of 1 runs done" in summary) == (0, True), log
    assert "resuming from frame" in (sweeps.out / f"{NAMES[1]}.log").read_text()
    rows = read_metrics(sweeps.out / NAMES[1] / "metrics.jsonl")
    logged = [row["frames"] for row in rows if row["kind"] == "train"]
    assert logged == list(range(40, 1001, 40))  # no row twice, none missing
