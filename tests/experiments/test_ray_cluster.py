"""Sweeps on a Ray cluster of two nodes, both on this machine."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import signal
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from experiments.conftest import NAMES, Sweeps, has_ended, until
from noisynet.runs import read_metrics

if importlib.util.find_spec("ray") is None:
    pytest.skip('Ray is not installed: pip install "noisynet[ray]"', allow_module_level=True)

pytestmark = [
    pytest.mark.slow,
    # Ray warns at import and at shutdown.
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


NODE: Final = {"num_cpus": 1, "object_store_memory": 80_000_000}
STARTS: Final = 5


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes of one core each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        module = importlib.import_module("ray.cluster_utils")
        made = retried(lambda: module.Cluster(True, head_node_args=NODE))
        add_node(made)
        yield made
        made.shutdown()


def add_node(cluster: Any) -> None:
    retried(lambda: cluster.add_node(**NODE))
    cluster.wait_for_nodes()


def retried(start: Callable[[], Any]) -> Any:
    """Retry: Ray gives its nodes 30 s to start, too little on a busy machine."""
    for _ in range(STARTS):
        try:
            return start()
        except Exception as error:
            if "timed out during startup" not in str(error):
                raise
    pytest.skip(f"Ray could not start a node in {STARTS} attempts")


def nodes_of(sweeps: Sweeps, name: str) -> list[str]:
    """The nodes on which the processes of a run were started."""
    return re.findall(r"node (\w+), task", (sweeps.out / f"{name}.log").read_text())


def test_runs_are_scheduled_on_both_nodes(sweeps: Sweeps, cluster: Any) -> None:
    sweeps.order({name: {"hold_at": 75} for name in NAMES[:2]})
    sweep = sweeps.start(on="ray", address=cluster.address)
    until(lambda: sweeps.are_held_at(75, NAMES[:2]))
    sweeps.gate.touch()
    summary, log = sweep.communicate()
    assert (sweep.returncode, "4 of 4 runs done" in summary) == (0, True), log
    assert len({nodes_of(sweeps, name)[0] for name in NAMES[:2]}) == 2
    assert [sweeps.starts(name) for name in NAMES] == [[0]] * 4
    before = {name: sweeps.metrics_stat(name) for name in NAMES}
    assert sweeps.start(on="ray", address=cluster.address).wait() == 0
    assert {name: sweeps.metrics_stat(name) for name in NAMES} == before


def test_a_killed_run_is_restarted_from_its_checkpoint(sweeps: Sweeps, cluster: Any) -> None:
    sweeps.order({NAMES[0]: {"kill_at": 75}, NAMES[1]: {"fail_at": 75}})
    sweep = sweeps.start(on="ray", address=cluster.address, environments="deep_sea/4")
    summary, log = sweep.communicate()
    assert sweep.returncode == 1, log
    assert sweeps.starts(NAMES[0]) == [0, 50]
    assert "1 of 2 runs done, 1 failed" in summary
    assert f"{NAMES[1]}: expected a finite loss, got nan; lower the learning rate" in summary


def test_killing_a_node_moves_its_runs(sweeps: Sweeps, cluster: Any) -> None:
    sweeps.order({name: {"hold_at": 75} for name in NAMES[:2]})
    sweep = sweeps.start(on="ray", address=cluster.address, environments="deep_sea/4")
    until(lambda: sweeps.are_held_at(75, NAMES[:2]))
    there = {name: nodes_of(sweeps, name)[0] for name in NAMES[:2]}
    pids = [sweeps.pid(name) for name in NAMES[:2]]
    (second,) = cluster.worker_nodes
    cluster.remove_node(second, allow_graceful=False)
    until(lambda: any(has_ended(pid) for pid in pids))
    sweeps.gate.touch()
    summary, log = sweep.communicate()
    assert (sweep.returncode, "2 of 2 runs done" in summary) == (0, True), log
    moved = [name for name in there if len(nodes_of(sweeps, name)) > 1]
    assert len(moved) == 1, log
    assert set(nodes_of(sweeps, moved[0])) == set(there.values())
    # Its process may or may not have had time for a checkpoint.
    assert sweeps.starts(moved[0]) in ([0, 50], [0, 75])
    add_node(cluster)


def test_a_signal_saves_the_runs_of_every_node(sweeps: Sweeps, cluster: Any) -> None:
    sweeps.order({name: {"hold_at": 75} for name in NAMES})
    sweep = sweeps.start(on="ray", address=cluster.address)
    until(lambda: sweeps.are_held_at(75, NAMES[:2]))
    os.kill(sweep.pid, signal.SIGTERM)
    summary, log = sweep.communicate()
    assert sweep.returncode == 143, log
    assert "0 of 4 runs done" in summary
    assert [sweeps.frames(name) for name in NAMES] == [75, 75, 0, 0]


def test_the_same_command_resumes_a_killed_driver(sweeps: Sweeps, cluster: Any) -> None:
    sweeps.order({name: {"hold_at": 75} for name in NAMES[:2]})
    sweep = sweeps.start(on="ray", address=cluster.address, environments="deep_sea/4")
    until(lambda: sweeps.are_held_at(75, NAMES[:2]))
    sweep.kill()
    sweep.wait()
    until(lambda: not any(sweeps.is_locked(name) for name in NAMES[:2]))
    sweeps.order({})
    again = sweeps.start(on="ray", address=cluster.address, environments="deep_sea/4")
    summary, log = again.communicate()
    assert (again.returncode, "2 of 2 runs done" in summary) == (0, True), log
    for name in NAMES[:2]:
        start, resumed = sweeps.starts(name)
        assert (start, resumed in (50, 75)) == (0, True)


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
