"""A run as a repository of the Hub: weights, configuration, evaluations, video and a model card."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from noisynet.api import load
from noisynet.integrations.hub import AGENT_FILE, SCHEME, check_repository, upload
from noisynet.runs import RunError, RunFolder, read_metrics

_CARD_ROWS: Final = 10  # evaluations in the card; the file has all of them
_VIDEO: Final = "replay.mp4"


def push(
    run: Path | str, repository: str, *, video: bool = True, private: bool = False
) -> list[str]:
    """Upload the newest checkpoint of a run, for `load("hf://user/name")`.

    Args:
        run: the run folder, which is not changed.
        repository: user/name; it is made if it does not exist.
        video: whether to render the best episode of all evaluations.
        private: whether a new repository is private.

    Returns:
        What was left out, and why.

    Raises:
        RunError: the run has no checkpoint, or the Hub refuses.
        ValueError: the repository's name has another form.
        ImportError: the package `huggingface_hub` is missing.
    """
    check_repository(repository)
    with tempfile.TemporaryDirectory(prefix="noisynet-") as scratch:
        files = Path(scratch)
        notes = write_repository(Path(run), repository, files, video=video)
        config = RunFolder(run).read_config()
        message = f"{config['agent']} on {config['environment']}, seed {config['seed']}"
        upload(files, repository, private=private, message=message)
    return notes


def write_repository(run: Path, repository: str, files: Path, *, video: bool = True) -> list[str]:
    """Write the files of a repository to the folder `files`; return what was left out, and why."""
    agent = load(run, device="cpu")
    folder, notes = RunFolder(run), []
    agent.save(files / AGENT_FILE)
    config = folder.read_config()
    (files / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    columns = ("frames", "noise", "score", "episodes")
    rows = [
        {column: row[column] for column in columns}
        for row in read_metrics(folder.metrics_path)
        if row["kind"] == "evaluation"
    ]
    (files / "evaluations.json").write_text(json.dumps(rows, indent=2) + "\n")
    if video:
        from noisynet.watch import render_episode

        try:
            render_episode(run, files / _VIDEO)
        except (ImportError, ValueError, RunError) as error:
            notes.append(f"without a video: {error}")
    made_by = folder.read_made_by()
    status = folder.read_status() or {}
    card = model_card(
        repository,
        config,
        rows,
        frames=status.get("frames", 0),
        score=status.get("score"),
        versions=made_by[-1]["versions"] if made_by else {},
        video=(files / _VIDEO).exists(),
    )
    (files / "README.md").write_text(card)
    return notes


def model_card(
    repository: str,
    config: Mapping[str, Any],
    evaluations: Sequence[Mapping[str, Any]],
    *,
    frames: int,
    score: float | None,
    versions: Mapping[str, str],
    video: bool,
) -> str:
    """Return the README.md of a repository, with its metadata."""
    agent, environment = config["agent"], config["environment"]
    kind = "reinforcement-learning"
    metadata: dict[str, Any] = {
        "library_name": "noisynet",
        "tags": [kind, f"deep-{kind}", "noisynet", agent, environment],
    }
    if score is not None:
        result = {
            "task": {"type": kind, "name": kind},
            "dataset": {"type": environment, "name": environment},
            "metrics": [{"type": "mean_reward", "name": "mean_reward", "value": score}],
        }
        metadata["model-index"] = [{"name": agent, "results": [result]}]
    # JSON is YAML, and quotes every name.
    header = [f"{key}: {json.dumps(value)}" for key, value in metadata.items()]
    table = [
        f"| {row['frames']:,} | {row['noise']} | {row['score']:.2f} | {row['episodes']} |"
        for row in evaluations[-_CARD_ROWS:]
    ]
    made = ", ".join(f"{name} {number}" for name, number in versions.items())
    lines = [
        *("---", *header, "---", f"# {agent} on {environment}", ""),
        f"Trained for {frames:,} frames with seed {config['seed']} by `noisynet` ({made}).",
        *("", "```python", "from noisynet import load", ""),
        f'agent = load("{SCHEME}{repository}")',
        *("agent.evaluate(episodes=20)", "action = agent.predict(observation)", "```", ""),
        *("## Evaluations", "", "| frames | noise | score | episodes |", "|---|---|---|---|"),
        *(*table, "", "`evaluations.json` has all of them, `config.json` every setting."),
    ]
    if video:
        lines += ["", f'<video src="{_VIDEO}" controls></video>']
    return "\n".join([*lines, ""])
