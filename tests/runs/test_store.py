from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import noisynet
from noisynet.runs import (
    Difference,
    RunDamaged,
    RunFolder,
    RunMismatch,
    compare_configs,
    find_run_folders,
)

_IDENTITY = ["agent", "environment", "seed"]
_ROOT = Path(noisynet.__file__).parents[1]


def _config(**changes: Any) -> dict[str, Any]:
    config = {"agent": "dqn", "environment": {"name": "atari/pong", "num_actions": 6}, "seed": 0}
    return {**config, "frames": 1000, "sizes": (3, 4), **changes}


def _open(path: Path, **changes: Any) -> RunFolder:
    return RunFolder.create_or_open(path, _config(**changes), must_match=_IDENTITY)


def test_create_then_open_again(tmp_path: Path) -> None:
    run = _open(tmp_path / "out" / "run")
    assert run.read_config() == {**_config(), "sizes": [3, 4]}
    names = {p.name for p in run.path.iterdir()}
    assert names == {"config.json", "run.lock", "traces", "checkpoints"}
    before = run.config_path.stat()
    again = _open(tmp_path / "out" / "run")
    assert again.read_config() == run.read_config()
    assert run.config_path.stat().st_ino == before.st_ino


def test_an_unused_new_folder_can_be_removed_with_the_parents_that_it_made(
    tmp_path: Path,
) -> None:
    (tmp_path / "out").mkdir()
    run = _open(tmp_path / "out" / "game" / "agent" / "run")
    with run.lock():
        run.replay_path.mkdir()
        (run.replay_path / "frames.bin").write_bytes(b"half")
        run.remove_if_unused()
    assert [p.name for p in tmp_path.rglob("*")] == ["out"]
    _open(run.path, seed=7)  # as a new folder


def test_a_removed_folder_loses_its_config_first_and_its_lock_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process finds a locked folder or no run, never an incomplete one."""
    folder = _open(tmp_path / "run")
    gone: list[str] = []
    unlink = os.unlink

    def recorded_unlink(path: str, *, dir_fd: int | None = None) -> None:
        gone.append(path)
        unlink(path, dir_fd=dir_fd)

    with folder.lock():
        monkeypatch.setattr(os, "unlink", recorded_unlink)
        folder.remove_if_unused()
    assert gone[0] == "config.json"
    assert gone[-1].endswith(".lock")
    assert not (tmp_path / "run").exists()


def test_only_folders_that_were_made_are_removed(tmp_path: Path) -> None:
    before = tmp_path / "before"
    before.mkdir()
    _open(before).remove_if_unused()  # an empty folder that existed before
    assert list(before.iterdir()) == []
    first, second = _open(tmp_path / "out" / "first"), _open(tmp_path / "out" / "second")
    first.remove_if_unused()
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["second"]
    _open(second.path).remove_if_unused()  # opened, not made
    (second.checkpoints_path / "000000000000").mkdir()
    second.remove_if_unused()  # used
    (second.checkpoints_path / "000000000000").rmdir()
    second.metrics_path.write_text("{}\n")
    second.remove_if_unused()  # used, too
    assert second.read_config()["seed"] == 0


def test_another_identity_is_rejected_with_all_differences(tmp_path: Path) -> None:
    _open(tmp_path / "run")
    other = {"name": "atari/breakout", "num_actions": 4}
    with pytest.raises(RunMismatch) as caught:
        _open(tmp_path / "run", environment=other, frames=2000, sizes=None)
    message = str(caught.value)
    assert "sizes" not in message  # None: not given
    assert "environment.name: the folder has 'atari/pong', this command has 'atari/brea" in message
    assert "environment.num_actions: the folder has 6, this command has 4" in message
    assert "may be changed:\n  frames: the folder has 1000, this command has 2000" in message
    assert "choose another --out or --name" in message


def test_other_settings_may_differ_and_are_not_changed(tmp_path: Path) -> None:
    _open(tmp_path / "run")
    run = _open(tmp_path / "run", frames=2000, extra=None)
    assert run.read_config() == {**_config(), "sizes": [3, 4]}
    run.write_config(_config(frames=2000))
    assert _open(tmp_path / "run").read_config()["frames"] == 2000


def test_one_and_true_are_different_settings(tmp_path: Path) -> None:
    _open(tmp_path / "run", seed=1)
    with pytest.raises(RunMismatch, match="seed: the folder has 1, this command has True"):
        _open(tmp_path / "run", seed=True)


def test_a_setting_whose_name_begins_like_an_identity_key_is_not_part_of_it(tmp_path: Path) -> None:
    _open(tmp_path / "run", seeds=1)
    _open(tmp_path / "run", seeds=2)


def test_a_folder_with_other_files_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("…")
    with pytest.raises(RunMismatch, match=r"thesis\.tex.* not a run folder"):
        _open(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_start_that_was_killed_before_its_config_was_written_is_repeated(tmp_path: Path) -> None:
    (tmp_path / "run.lock").touch()
    (tmp_path / "run.owner").write_text('{"pid": 1')
    (tmp_path / ".config.json.tmp-77").write_text("{")
    run = _open(tmp_path)
    assert run.read_config()["agent"] == "dqn"
    assert not (tmp_path / ".config.json.tmp-77").exists()


@pytest.mark.parametrize("text", ["", "{", "[]"])
def test_a_damaged_config_is_reported(tmp_path: Path, text: str) -> None:
    run = _open(tmp_path / "run")
    run.config_path.write_text(text)
    with pytest.raises(RunDamaged, match=r"config\.json"):
        _open(tmp_path / "run")


def test_status(tmp_path: Path) -> None:
    run = _open(tmp_path / "run")
    assert run.read_status() is None
    run.write_status("running", frames=4)
    run.write_status("failed", frames=8, reason="loss is NaN", loss=float("inf"))
    status = run.read_status()
    assert status is not None
    assert status.pop("updated").endswith("+00:00")
    expected = {"state": "failed", "frames": 8, "reason": "loss is NaN", "loss": float("inf")}
    assert status == expected
    with pytest.raises(ValueError, match="state must be one of"):
        run.write_status("done")  # type: ignore[arg-type]


def test_importing_runs_does_not_import_torch() -> None:
    # Without the parent package, whose imports do not matter here.
    script = (
        "import sys, types; root = types.ModuleType('noisynet'); root.__path__ = [sys.argv[1]]; "
        "sys.modules['noisynet'] = root; import noisynet.runs; "
        "from noisynet.runs import *; sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script, str(_ROOT / "noisynet")], check=True)


def test_run_folders_are_found_in_order_and_do_not_nest(tmp_path: Path) -> None:
    for name in ("b/run", "a", "b/run/checkpoints/1"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.json").write_text("{}")
    (tmp_path / "empty").mkdir()
    assert list(find_run_folders(tmp_path)) == [tmp_path / "a", tmp_path / "b" / "run"]
    assert list(find_run_folders(tmp_path / "a")) == [tmp_path / "a"]


def test_configurations_are_compared_by_dotted_key() -> None:
    stored = {"seed": 1, "learning": {"discount": 0.9, "n_step": 1}, "old": True}
    given = {"seed": 1, "learning": {"discount": 0.99, "n_step": 1}}
    assert compare_configs(stored, given) == [
        Difference("learning.discount", "0.9", "0.99"),
        Difference("old", "True", "nothing"),
    ]


def test_a_run_folder_does_not_depend_on_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = RunFolder("run")
    monkeypatch.chdir("/")
    assert folder.given == Path("run")
    assert folder.metrics_path == tmp_path / "run" / "metrics.jsonl"
