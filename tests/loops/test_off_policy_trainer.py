"""Snapshots of the off-policy loop: a restored loop continues bit for bit."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from loops.conftest import remains
from loops.short_loops import configure, make_loop
from loops.test_run import Messages
from noisynet.agents import ValueAgent
from noisynet.config import Config
from noisynet.evaluation import make_configured_environment
from noisynet.loops import (
    OffPolicyLoop,
    load_agent,
    off_policy_trainer,
    open_run,
    open_run_folder,
    train,
)
from noisynet.loops.off_policy_trainer import (
    OffPolicyTrainer,
    restore_loop,
    snapshot_loop,
)
from noisynet.loops.run_log import RunLog
from noisynet.replay import FrameStore
from noisynet.runs import RunDamaged, RunFolder, read_metrics
from noisynet.runs.checkpoint import read_states

ENVIRONMENTS = ("deep_sea/4", "minatar/breakout", "gym/CartPole-v1")


def advance(loop: OffPolicyLoop, ticks: int) -> list[Any]:
    found = []
    for _, tick in zip(range(ticks), loop.run(), strict=False):
        losses = [learnt.loss for learnt in tick.learnt]
        found.append((tick.steps, tick.finished, losses))
    return found


def snapshot(loop: OffPolicyLoop) -> tuple[dict[str, Tensor], dict[str, Any]]:
    loop.store.flush()
    tensors, state = snapshot_loop(loop)
    return {name: value.clone() for name, value in tensors.items()}, json.loads(json.dumps(state))


def restore(loop: OffPolicyLoop, taken: tuple[dict[str, Tensor], dict[str, Any]]) -> None:
    restore_loop(loop, *taken)
    loop.episodes.restore(taken[0], taken[1]["episodes"])


def assert_same(first: OffPolicyLoop, second: OffPolicyLoop) -> None:
    (ours, our_state), (theirs, their_state) = snapshot(first), snapshot(second)
    assert ours.keys() == theirs.keys()
    assert not [name for name in ours if not torch.equal(ours[name], theirs[name])]
    assert our_state == their_state
    assert first.store.digest() == second.store.digest()
    assert np.array_equal(first.episodes.observation, second.episodes.observation)


def check_continuation(config: Config, folder: Path, before: int, after: int) -> None:
    uninterrupted = make_loop(config, folder / "first")
    advance(uninterrupted, before)
    taken = snapshot(uninterrupted)
    expected = advance(uninterrupted, after)
    uninterrupted.store.flush()
    # As after a kill: the files already have rows from after the snapshot.
    shutil.copytree(folder / "first", folder / "second")
    restored = make_loop(config, folder / "second")
    restore(restored, taken)
    assert restored.steps == before * config.num_envs
    assert advance(restored, after) == expected
    assert_same(uninterrupted, restored)
    assert uninterrupted.agent.updates > 0


def test_the_loops_below_wrap_around_the_ring(tmp_path: Path) -> None:
    loop = make_loop(configure("num_envs=3"), tmp_path)
    advance(loop, 40 + 33)
    assert int(loop.store.written.min()) > loop.store.ring_rows


@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_restored_loop_continues_bit_for_bit(name: str, num_envs: int, tmp_path: Path) -> None:
    config = configure(f"num_envs={num_envs}", name=name)
    check_continuation(config, tmp_path, before=40, after=33)


@pytest.mark.parametrize(
    "settings",
    [
        ("replay.kind=prioritised", "replay.capacity_steps=60", "learning.n_step=3"),
        ("exploration.redraw=episode", "exploration.noise=independent", "num_envs=1"),
        ("exploration.redraw=update", "exploration.warm_up=uniform"),
        ("optimiser.kind=centred-rmsprop", "learning.update_period_steps=4"),
    ],
    ids=str,
)
def test_a_restored_loop_continues_with_any_settings(
    settings: tuple[str, ...], tmp_path: Path
) -> None:
    config = configure("num_envs=3", "learning.sync_target_steps=7", *settings)
    check_continuation(config, tmp_path, before=30, after=25)


@pytest.mark.parametrize("agent", ["dqn", "noisynet-dueling"])
def test_the_other_agents_continue_bit_for_bit(agent: str, tmp_path: Path) -> None:
    config = configure("num_envs=2", agent=agent, name="gym/CartPole-v1")
    check_continuation(config, tmp_path, before=30, after=25)


@pytest.mark.parametrize("before", [0, 1, 3, 4, 5, 19, 21])
def test_a_loop_can_be_restored_at_any_step_of_an_episode(before: int, tmp_path: Path) -> None:
    """Episodes of deep_sea/4 last four steps; learning starts after the twentieth."""
    check_continuation(configure(), tmp_path, before=before, after=30)


def test_an_environment_that_shows_other_frames_is_detected(tmp_path: Path) -> None:
    loop = make_loop(configure(), tmp_path / "first")
    advance(loop, 31)
    taken = snapshot(loop)
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    other = make_loop(configure("environment_options.mapping_seed=7"), tmp_path / "second")
    with pytest.raises(RunDamaged, match=r"environments 0 to 0 of deep_sea/4 did not reproduce"):
        restore(other, taken)


# --- replay files --------------------------------------------------------------------------------


def make_trainer(path: Path, *settings: str, keep_replay: bool = True) -> OffPolicyTrainer:
    config = configure("frames=400", "checkpoint_period_frames=30", *settings)
    folder = RunFolder.create_or_open(path, config.model_dump(mode="json"), must_match=[])
    environment = make_configured_environment(config, config.num_envs)
    log = RunLog(folder, environment.spec.frames_per_step, config.log_period_steps, [])
    agent = ValueAgent(config, environment.spec)
    return OffPolicyTrainer(agent, environment, folder, log, keep_replay=keep_replay)


@pytest.mark.parametrize("num_envs", [1, 3])
def test_a_checkpoint_is_due_by_the_rows_that_were_written(num_envs: int, tmp_path: Path) -> None:
    """An episode of four steps takes five rows, and the ring has room for two periods."""
    trainer = make_trainer(tmp_path / "run", f"num_envs={num_envs}", "replay.capacity_steps=90")
    trainer.start()
    trainer.snapshot()
    rows = []
    for _ in trainer.advance(lambda: False):
        if trainer.checkpoint_is_due:
            rows.append(int(trainer.store.written[0]))
            trainer.snapshot()
            assert not trainer.checkpoint_is_due
    period = 30 // num_envs
    assert len(rows) >= 9
    gaps = np.diff([0, *rows])
    assert period <= gaps.min()
    assert gaps.max() <= period + 2
    assert trainer.store.ring_rows >= trainer.store.window_rows + 2 * gaps.max()


def test_a_changed_row_of_the_replay_is_detected(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path / "run")
    trainer.start()
    for _ in trainer.advance(lambda: trainer.steps > 100):
        if trainer.steps == 100:
            break
    tensors, state = trainer.snapshot()
    make_trainer(tmp_path / "run").restore(tensors, json.loads(json.dumps(state)))
    trainer.store.columns.rewards[trainer.store.slot(0, 60)] += 1
    trainer.store.flush()
    with pytest.raises(
        RunDamaged, match=r"replay in .* cannot be used: .* do not match their SHA-256"
    ):
        make_trainer(tmp_path / "run").restore(tensors, json.loads(json.dumps(state)))


# --- the replay and the budget -------------------------------------------------------------------


def finish(path: Path, *settings: str, keep_replay: bool = False) -> list[str]:
    """Train to the end of the budget; return the messages."""
    config = configure("evaluation.period_frames=1000", "evaluation.frames=8", *settings)
    folder, messages = open_run_folder(path, config), Messages()
    with folder.lock():
        assert train(config, folder, observers=[messages], keep_replay=keep_replay).finished
    return messages.texts


def test_400_frames_of_pong_take_megabytes(tmp_path: Path) -> None:
    config = configure("frames=400", name="atari/pong")
    assert config.replay.capacity_steps == 1_000_000
    folder = open_run_folder(tmp_path / "run", config)
    with folder.lock(), open_run(config, folder) as run:
        assert isinstance(run.trainer, OffPolicyTrainer)
        assert run.trainer.store.window_rows == 1_000_000
        size = sum(path.stat().st_size for path in folder.replay_path.iterdir())
        assert 100 * 84 * 84 < size < 3e6
        assert size < run.trainer.disk_bytes


def test_a_finished_run_has_no_replay_unless_it_is_kept(tmp_path: Path) -> None:
    for keep in (False, True):
        finish(tmp_path / str(keep), "frames=60", keep_replay=keep)
        assert RunFolder(tmp_path / str(keep)).replay_path.exists() == keep
    # Nothing happens to a finished run, and its replay stays.
    for keep in (False, True):
        before = remains(tmp_path / str(keep))
        finish(tmp_path / str(keep), "frames=60")
        assert RunFolder(tmp_path / str(keep)).replay_path.exists() == keep
        assert remains(tmp_path / str(keep)) == before


@pytest.mark.parametrize("kind", ["uniform", "prioritised"])
def test_a_longer_budget_is_as_if_it_had_been_given_at_once(kind: str, tmp_path: Path) -> None:
    """The replay's files grow from 40 to 240 frames, and wrap then."""
    settings = ["checkpoint_period_frames=15", "replay.capacity_steps=70", f"replay.kind={kind}"]
    settings += ["evaluation.period_frames=40"]
    if kind == "prioritised":
        settings += ["replay.beta_initial=1"]  # β is annealed over the budget
    finish(tmp_path / "grown", *settings, "frames=40", keep_replay=True)
    small = sum(path.stat().st_size for path in (tmp_path / "grown/replay").iterdir())
    finish(tmp_path / "grown", *settings, "frames=240", keep_replay=True)
    large = sum(path.stat().st_size for path in (tmp_path / "grown/replay").iterdir())
    finish(tmp_path / "whole", *settings, "frames=240", keep_replay=True)
    assert large > small
    assert remains(tmp_path / "grown") == remains(tmp_path / "whole")


@pytest.mark.parametrize("kind", ["uniform", "prioritised"])
def test_a_deleted_replay_refills_and_updates_wait_for_it(kind: str, tmp_path: Path) -> None:
    settings = [f"replay.kind={kind}", "num_envs=2", "log_period_steps=10"]
    for path in (tmp_path / "killed", tmp_path / "whole"):
        finish(path, *settings, "frames=62")  # within an episode
    config = configure(
        "evaluation.period_frames=1000", "evaluation.frames=8", "frames=140", *settings
    )
    folder, stops = open_run_folder(tmp_path / "killed", config), iter([False] * 9 + [True])
    with folder.lock(), open_run(config, folder, stop=lambda: next(stops)) as run:
        run.run()
        assert isinstance(run.trainer, OffPolicyTrainer)
        assert run.trainer.loop.starts_steps == 62 + 20
    texts = finish(tmp_path / "whole", *settings, "frames=140")
    assert "it refills, and learning continues after 20 steps" in texts[2]
    assert "it refills" not in " ".join(finish(tmp_path / "killed", *settings, "frames=140"))
    assert remains(tmp_path / "killed") == remains(tmp_path / "whole")
    rows = read_metrics(RunFolder(tmp_path / "whole").metrics_path)
    updates = {row["steps"]: row["updates"] for row in rows if row["kind"] == "train"}
    assert 0 < updates[60] <= updates[70] == updates[80] < updates[100]


class Killed(BaseException):
    """Ends a run as a signal does."""


def test_a_kill_before_or_while_the_replay_is_deleted_leaves_a_run_that_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(path: Path) -> None:
        (path / "layout.json").unlink()
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(off_policy_trainer, "delete_columns", kill)
        with pytest.raises(Killed):
            finish(tmp_path / "run", "frames=60")
    folder = RunFolder(tmp_path / "run")
    assert folder.replay_path.exists()
    assert folder.read_status() is not None
    assert (folder.read_status() or {})["state"] == "running"
    finish(tmp_path / "run", "frames=60")
    assert not folder.replay_path.exists()
    assert (folder.read_status() or {})["state"] == "finished"


def test_a_removed_replay_refills_and_the_run_says_so(tmp_path: Path) -> None:
    finish(tmp_path / "run", "frames=60", keep_replay=True)
    shutil.rmtree(tmp_path / "run" / "replay")
    assert "the replay was deleted" in " ".join(finish(tmp_path / "run", "frames=80"))


def test_a_finished_run_without_its_newest_checkpoint_is_used_and_continued_from_the_older(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The older checkpoint refers to the replay, which was deleted at the end."""
    settings = ["frames=60", "checkpoint_period_frames=15"]
    finish(tmp_path / "run", *settings)
    newest = max((tmp_path / "run" / "checkpoints").iterdir())
    newest.write_bytes(newest.read_bytes()[:-1])
    _, frames = load_agent(tmp_path / "run")
    assert 0 < frames < 60
    assert f"{newest} is damaged, an older checkpoint is used" in caplog.text
    texts = " ".join(finish(tmp_path / "run", *settings))
    assert f"checkpoint 60 is damaged and was renamed to {newest.name}.corrupt" in texts
    assert f"resuming from frame {frames}" in texts
    assert "the replay was deleted, as it is when a run finishes (no --keep-replay): it" in texts


def test_rows_that_were_changed_lead_to_the_checkpoint_before(tmp_path: Path) -> None:
    """The replay has room for what two checkpoints refer to."""
    settings = ["checkpoint_period_frames=15", "replay.capacity_steps=30", "evaluation.frames=8"]
    config = configure("frames=200", "evaluation.period_frames=1000", *settings)
    for path in (tmp_path / "whole", tmp_path / "run"):
        with (folder := open_run_folder(path, config)).lock():
            stops = iter([False] * 126 + [True])
            train(config, folder, stop=stops.__next__)
    (_, newer), (older_path, older) = read_states(folder.checkpoints_path)
    assert not isinstance(newer, str)
    assert not isinstance(older, str)
    newest, before = newer["loop"]["replay"]["store"], older["loop"]["replay"]["store"]
    columns = FrameStore.read(newest, folder.replay_path)
    assert newest["written"][0] > columns.ring_rows  # it has wrapped
    assert newest["written"][0] > before["written"][0] + 1
    with (folder.replay_path / "rewards.bin").open("r+b") as file:
        file.seek(4 * columns.slot(0, before["written"][0]))
        file.write(b"\x01")
    messages = Messages()
    with folder.lock():
        train(config, folder, observers=[messages])
    text = " ".join(messages.texts)
    assert f"trying the checkpoint before, of step {int(older_path.stem)}" in text
    assert "do not match their SHA-256" in text
    with (whole := open_run_folder(tmp_path / "whole", config)).lock():
        train(config, whole)
    assert remains(tmp_path / "run") == remains(tmp_path / "whole")


def test_rows_of_an_epsilon_greedy_agent_have_its_epsilon(tmp_path: Path) -> None:
    config = configure("frames=60", "log_period_steps=20", agent="dqn")
    folder = open_run_folder(tmp_path / "run", config)
    with folder.lock():
        train(config, folder)
    rows = [row for row in read_metrics(folder.metrics_path) if row["kind"] == "train"]
    epsilons = [row["epsilon"] for row in rows]
    assert epsilons[0] == 1.0
    assert epsilons == sorted(epsilons, reverse=True)
    assert epsilons[-1] < 1.0
