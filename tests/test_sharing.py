"""The files of a shared run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from noisynet import Agent, load
from noisynet.runs import RunError
from noisynet.sharing import model_card, push, write_repository


@pytest.fixture
def run(tmp_path: Path) -> Path:
    settings: dict[str, Any] = {"evaluation.period_frames": 60, "evaluation.frames": 20}
    folder = tmp_path / "run"
    agent = Agent(
        *("noisynet-dqn", "deep_sea/4"),
        device="cpu",
        folder=folder,
        compute="torch",
        starts_steps=40,
        **settings,
    )
    agent.learn(120, progress=False)
    return folder


def metadata(card: str) -> dict[str, Any]:
    """The metadata of a card."""
    _, header, _ = card.split("---\n", 2)
    lines = (line.partition(": ") for line in header.splitlines())
    return {key: json.loads(value) for key, _, value in lines}


def test_a_repository_has_weights_settings_evaluations_and_a_card(
    run: Path, tmp_path: Path
) -> None:
    before = sorted(path.name for path in run.rglob("*"))
    files = tmp_path / "files"
    files.mkdir()
    assert write_repository(run, "someone/deep-sea", files, video=False) == []
    names = {path.name for path in files.iterdir()}
    assert names == {"README.md", "agent.safetensors", "config.json", "evaluations.json"}
    assert sorted(path.name for path in run.rglob("*")) == before
    config = json.loads((files / "config.json").read_text())
    assert config["agent"] == "noisynet-dqn"
    assert "made_by" not in config  # the machine is the owner's own business
    rows = json.loads((files / "evaluations.json").read_text())
    assert [(row["frames"], row["noise"]) for row in rows] == [
        *((60, "on"), (60, "off"), (120, "on"), (120, "off")),
    ]
    card = (files / "README.md").read_text()
    stored = metadata(card)
    assert stored["library_name"] == "noisynet"
    assert {"reinforcement-learning", "noisynet-dqn", "deep_sea/4"} <= set(stored["tags"])
    (result,) = stored["model-index"][0]["results"]
    assert result["metrics"][0]["value"] == rows[2]["score"]
    assert f"| 120 | on | {rows[2]['score']:.2f} | {rows[2]['episodes']} |" in card
    assert "Trained for 120 frames with seed 0" in card
    assert "<video" not in card
    loaded = load(files / "agent.safetensors")
    assert loaded.steps == 120


def test_a_video_is_part_of_the_card_or_its_absence_is_explained(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("av")
    files = tmp_path / "files"
    files.mkdir()
    assert write_repository(run, "someone/deep-sea", files) == []
    assert (files / "replay.mp4").stat().st_size > 0
    assert '<video src="replay.mp4"' in (files / "README.md").read_text()

    def fails(*_: Any, **__: Any) -> None:
        raise ImportError("no av")

    monkeypatch.setattr("noisynet.watch.render_episode", fails)
    (files / "replay.mp4").unlink()
    assert write_repository(run, "someone/deep-sea", files) == ["without a video: no av"]
    assert "<video" not in (files / "README.md").read_text()


def test_names_are_quoted_in_the_metadata() -> None:
    config = {"agent": "dqn", "environment": 'gym/"x": [y]', "seed": 3}
    card = model_card("a/b", config, [], frames=0, score=None, versions={}, video=False)
    assert metadata(card)["tags"][-1] == 'gym/"x": [y]'
    assert "model-index" not in metadata(card)


def test_what_cannot_be_pushed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected a repository as user/name"):
        push(tmp_path, "name")
    with pytest.raises(RunError, match="expected a run folder"):
        push(tmp_path, "someone/name")
