"""The notebooks run from top to bottom, and were committed so."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
MOST_BYTES = 300_000


class Notebook(NamedTuple):
    """A notebook, what is replaced to make it fast, and what its outputs have to contain."""

    name: str
    packages: tuple[str, ...]
    faster: dict[str, str]
    texts: tuple[str, ...]
    files: tuple[str, ...]


NOTEBOOKS = (
    Notebook(
        "layers_and_audit",
        ("matplotlib",),
        {"range(1_500)": "range(30)"},
        (
            "The noise contract is kept: all 9 applicable checks passed.",
            "FAIL  noisy while acting",
            "The noise contract is broken: 3 of 13 checks failed.",
            "The noise contract is kept: all 13 applicable checks passed.",
        ),
        (),
    ),
    Notebook(
        "train_and_watch",
        ("av", "gymnasium", "matplotlib", "pygame"),
        {
            "10_000": "1_000",
            "2_500": "1_000, 'evaluation.frames': 200",
            "episodes=20": "episodes=2",
            "max_steps=50": "max_steps=5",
        },
        ("Agent('noisynet-dqn', 'gym/CartPole-v1', steps=0)", "episodes with noise)", "image/gif"),
        ("cartpole.safetensors", "game.gif"),
    ),
    Notebook(
        "sweep_to_report",
        ("matplotlib", "scipy", "jinja2"),
        {"seeds = 3": "seeds = 1", "4_000": "600", '"deep_sea/5", "deep_sea/10"': '"deep_sea/5"'},
        ("runs done", "Table 3: raw scores", "NoisyNet against its baseline", "image/png"),
        ("plan.toml", "report", "runs"),
    ),
)
each_notebook = pytest.mark.parametrize("notebook", NOTEBOOKS, ids=[one.name for one in NOTEBOOKS])


def read(notebook: Notebook) -> Any:
    nbformat = pytest.importorskip("nbformat")
    return nbformat.read(EXAMPLES / f"{notebook.name}.ipynb", as_version=4)


def code_cells(document: Any) -> list[Any]:
    return [cell for cell in document.cells if cell.cell_type == "code"]


def outputs_of(document: Any) -> str:
    """The text of all outputs, and the kinds of the pictures."""
    found = []
    for output in (output for cell in code_cells(document) for output in cell.outputs):
        found.append(output.get("text", ""))
        for kind, content in output.get("data", {}).items():
            found.append(kind if kind.startswith("image/") else content)
    return "\n".join(found)


def test_there_are_three_notebooks() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.ipynb")} == {one.name for one in NOTEBOOKS}


@each_notebook
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Jupyter's own packages
def test_a_notebook_runs_and_shows_what_it_says(
    notebook: Notebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = pytest.importorskip("nbclient")
    for package in ("ipykernel", *notebook.packages):
        pytest.importorskip(package)
    root = str(EXAMPLES.parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # the networks are too small for more
    monkeypatch.delenv("MPLBACKEND", raising=False)  # figures are outputs of the cells
    document = read(notebook)
    for slow, fast in notebook.faster.items():
        assert any(slow in cell.source for cell in code_cells(document)), f"{slow} is not there"
        for cell in code_cells(document):
            cell.source = cell.source.replace(slow, fast)
    client.NotebookClient(
        document,
        timeout=200,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    ).execute()
    outputs = outputs_of(document)
    assert not [text for text in notebook.texts if text not in outputs]
    assert tuple(sorted(path.name for path in tmp_path.iterdir())) == notebook.files
    # Progress is plain text: rich would make a display of HTML of every line.
    displays = [output.get("data", {}) for cell in code_cells(document) for output in cell.outputs]
    assert not [display for display in displays if "text/html" in display]


@each_notebook
def test_the_committed_outputs_are_of_a_whole_run(notebook: Notebook) -> None:
    document = read(notebook)
    cells = code_cells(document)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert not [output for cell in cells for output in cell.outputs if "ename" in output]
    outputs = outputs_of(document)
    assert not [text for text in (*notebook.texts, "image/png") if text not in outputs]
    assert (EXAMPLES / f"{notebook.name}.ipynb").stat().st_size < MOST_BYTES


@each_notebook
def test_links_of_a_notebook_lead_to_files(notebook: Notebook) -> None:
    text = "\n".join(cell.source for cell in read(notebook).cells if cell.cell_type == "markdown")
    links = [part.partition(")")[0] for part in text.split("](")[1:]]
    assert links
    assert not [link for link in links if not (EXAMPLES / link.partition("#")[0]).exists()]
