"""The notebook runs from top to bottom, and was committed so."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[1] / "examples" / "quickstart.ipynb"


def read() -> Any:
    nbformat = pytest.importorskip("nbformat")
    return nbformat.read(NOTEBOOK, as_version=4)


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def text_of(cell: Any) -> str:
    parts = [output.get("text", "") for output in cell.outputs]
    return "".join(
        parts + [output.get("data", {}).get("text/plain", "") for output in cell.outputs]
    )


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Jupyter's own packages
def test_the_notebook_runs_and_writes_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    for package in ("av", "gymnasium", "matplotlib"):
        pytest.importorskip(package)
    root = str(NOTEBOOK.parents[1])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("MPLBACKEND", "agg")
    notebook = read()
    for cell in code_cells(notebook):  # the cell with the training is what takes the time
        cell.source = cell.source.replace("10_000", "1_500")
    runner = client.NotebookClient(
        notebook,
        timeout=200,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    )
    runner.execute()
    texts = [text_of(cell) for cell in code_cells(notebook)]
    assert texts[0] == "Agent('noisynet-dqn', 'gym/CartPole-v1', steps=0)"
    assert texts[1].startswith("step 1,500 of 1,500")
    assert "(20 episodes with noise)" in texts[3]
    assert "(20 episodes without noise)" in texts[3]
    assert texts[5] == "Agent('noisynet-dqn', 'gym/CartPole-v1', steps=1,500)"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cartpole.safetensors", "game.mp4"]


def test_the_committed_outputs_are_of_a_whole_run() -> None:
    cells = code_cells(read())
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert not [output for cell in cells for output in cell.outputs if "ename" in output]
    assert "step 10,000 of 10,000" in text_of(cells[1])
    assert any("image/png" in output.get("data", {}) for cell in cells for output in cell.outputs)
    assert NOTEBOOK.stat().st_size < 100_000
