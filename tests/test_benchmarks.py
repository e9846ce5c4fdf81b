"""Benchmarks keep the results that are cited; nothing is timed here."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
PEERS = {
    "layers": "torchrl, tianshou",
    "dqn": "stable-baselines3, pfrl, tianshou, torchrl",
    "minatar": "stable-baselines3",
    "a3c": "pfrl, stable-baselines3",
}


def load(name: str, cited: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)  # as for a script
    specification = importlib.util.spec_from_file_location(f"benchmark_{name}", BENCHMARKS / name)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    monkeypatch.setitem(sys.modules, module.__name__, module)  # as dataclasses expect it
    specification.loader.exec_module(module)
    cited.write_text("cited")
    monkeypatch.setattr(module, "RESULTS", cited)
    return module


@pytest.fixture
def cited(tmp_path: Path) -> Path:
    """A results file that is there already."""
    return tmp_path / "cited.json"


@pytest.fixture
def layers(cited: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The benchmark of the layers, with a second for every time."""
    module = load("layers.py", cited, monkeypatch)

    def measure(contestants: dict[str, Any], rounds: int) -> dict[str, dict[str, list[float]]]:
        return {"learn 32": {name: [1.0] * rounds for name in contestants}}

    monkeypatch.setattr(module, "measure", measure)
    monkeypatch.setattr(module, "normals_ms", lambda count: 1.0)
    monkeypatch.setattr(module.metadata, "version", lambda name: "1.0")
    return module


def with_idle_contestants(name: str, cited: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A benchmark of training whose contestants make a step a second."""
    module = load(name, cited, monkeypatch)

    def take_turns(entries: dict[str, Any], rounds: int, _: float) -> dict[str, list[float]]:
        return {name: [1.0] * rounds for name in entries}

    monkeypatch.setattr(module, "take_turns", take_turns)
    return module


@pytest.fixture
def dqn(cited: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return with_idle_contestants("dqn.py", cited, monkeypatch)


@pytest.fixture
def minatar(cited: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return with_idle_contestants("minatar.py", cited, monkeypatch)


@pytest.fixture
def a3c(cited: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = with_idle_contestants("a3c.py", cited, monkeypatch)
    monkeypatch.setattr(module, "normals_ms", lambda: (1, 1.0))
    return module


def run(module: ModuleType, *arguments: str) -> None:
    before, sys.argv = sys.argv, ["benchmark", "--rounds", "2", *arguments]
    try:
        module.main()
    finally:
        sys.argv = before


@pytest.mark.parametrize("name", list(PEERS))
def test_without_peers_a_benchmark_prints_and_leaves_the_cited_results(
    name: str, request: pytest.FixtureRequest, cited: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = request.getfixturevalue(name)
    if name == "layers":
        module.peer_layers = lambda: {"pfrl": (nn.Linear, module.no_redraw)}  # but not the others
    run(module)
    assert cited.read_text() == "cited"
    said = capsys.readouterr().out
    assert "not written: cited.json is cited with " in said
    assert "--out PATH" in said
    assert PEERS[name] in said


@pytest.mark.parametrize("name", list(PEERS))
def test_a_benchmark_writes_what_there_is_where_it_is_told_to(
    name: str, request: pytest.FixtureRequest, cited: Path, tmp_path: Path
) -> None:
    module = request.getfixturevalue(name)
    if name == "layers":
        module.peer_layers = dict
    run(module, "--out", str(tmp_path / "new" / "mine.json"))
    assert cited.read_text() == "cited"
    assert json.loads((tmp_path / "new" / "mine.json").read_text())["rounds"] == 2


@pytest.mark.parametrize("name", list(PEERS))
def test_with_its_peers_a_benchmark_writes_the_cited_results(
    name: str, request: pytest.FixtureRequest, cited: Path
) -> None:
    module = request.getfixturevalue(name)
    if name == "layers":
        module.peer_layers = lambda: dict.fromkeys(module.PEERS, (nn.Linear, module.no_redraw))
    peers = [] if name == "layers" else PEERS[name].split(", ")
    given = ["--sb3" if peer == "stable-baselines3" else f"--{peer}" for peer in peers]
    run(module, *[part for option in given for part in (option, "python")])
    assert json.loads(cited.read_text())["rounds"] == 2


def test_the_operations_of_an_update_are_those_that_torch_counts(
    cited: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = load("train_step.py", cited, monkeypatch)
    update = module.plain_update(module.made_up_batch())
    with FlopCounterMode(display=False) as counter:
        update()
    assert counter.get_total_flops() == module.operations()
