"""Agents in Python."""

from __future__ import annotations

import os
import signal
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from noisynet import Agent, Callback, load
from noisynet.cli import app
from noisynet.config import ConfigError
from noisynet.loops import load_agent
from noisynet.runs import RunError, RunMismatch

SHORT: dict[str, Any] = {
    "starts_steps": 30,
    "hidden": [16],
    "batch_size": 8,
    "evaluation.period_frames": 150,
    "evaluation.frames": 30,
    "log_period_steps": 50,
}
A3C: dict[str, Any] = {"workers": 1, "envs_per_worker": 2, "hidden": [16]}
A3C |= {"evaluation.period_frames": 10_000, "evaluation.frames": 30}


def agent(name: str = "noisynet-dqn", environment: Any = "CartPole-v1", **more: Any) -> Agent:
    return Agent(name, environment, **{**(A3C if "a3c" in name else SHORT), **more})


def learnt(made: Agent, *steps: float, **more: Any) -> Agent:
    for count in steps:
        made.learn(count, progress=False, **more)
    return made


def same(first: nn.Module, second: nn.Module) -> bool:
    one, two = first.state_dict(), second.state_dict()
    assert one.keys() == two.keys()
    return all(torch.equal(one[name], two[name]) for name in one)


def observations(count: int = 3) -> Any:
    game = gymnasium.make("CartPole-v1")
    return np.stack([game.reset(seed=seed)[0] for seed in range(count)])


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, empty, with the folder of temporary files in it."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


# --- training ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "environment", "more"),
    [
        ("noisynet-dqn", "gym/CartPole-v1", {}),
        ("dqn", "minatar/breakout", {"num_envs": 2}),
        ("rainbow", "deep_sea/4", {}),
    ],
)
def test_training_in_memory_has_the_weights_of_the_command_line(
    name: str, environment: str, more: dict[str, Any], folder: Path
) -> None:
    made = agent(name, environment, seed=3, **more)
    assert isinstance(made.network, nn.Module)
    initial = {key: value.clone() for key, value in made.network.state_dict().items()}
    learnt(made, 300)
    assert files(folder) == []
    keys = {"starts_steps": "learning.", "hidden": "network.", "batch_size": "learning."}
    settings = [
        f"--set={keys.get(key, '')}{key}={value}" for key, value in {**SHORT, **more}.items()
    ]
    command = ["train", name, environment, "--frames", "300", "--seed", "3", "--name", "run"]
    ended = CliRunner().invoke(app, [*command, "--no-tensorboard", *settings])
    assert ended.exit_code == 0, ended.output
    trained, frames = load_agent(folder / "runs" / "run")
    assert frames == made.steps == 300
    assert same(made.network, trained.online)
    assert any(not torch.equal(made.network.state_dict()[key], initial[key]) for key in initial)


@pytest.mark.parametrize("name", ["noisynet-dqn", "dqn"])
def test_learning_twice_is_the_same_as_once(name: str) -> None:
    once = learnt(agent(name), 300)
    twice = learnt(agent(name), 130, 170)
    assert once.steps == twice.steps == 300
    assert same(once.network, twice.network)


def test_a_schedule_of_the_budget_is_kept_by_the_setting_frames() -> None:
    once = learnt(agent("rainbow", "deep_sea/4"), 300)
    kept = learnt(agent("rainbow", "deep_sea/4", frames=300), 130, 170)
    stretched = learnt(agent("rainbow", "deep_sea/4"), 130, 170)
    assert same(once.network, kept.network)
    assert not same(once.network, stretched.network)
    assert stretched.config.frames == 300


def test_evaluations_predictions_and_saving_do_not_change_training(folder: Path) -> None:
    made = learnt(agent(), 130)
    made.evaluate(2)
    made.predict(observations(), noise=True)
    made.save("agent.safetensors")
    assert same(learnt(made, 170).network, learnt(agent(), 300).network)


class StopAt(Callback):
    def __init__(self, frames: int) -> None:
        self.frames, self.seen = frames, list[int]()

    def logged(self, row: dict[str, Any], steps_per_second: float) -> None:
        self.seen.append(row["frames"])
        if row["frames"] >= self.frames:
            self.stop()


@pytest.mark.parametrize("where", [None, "run"])
def test_a_callback_stops_training_which_can_go_on(where: str | None) -> None:
    made, callback = agent(folder=where), StopAt(100)
    learnt(made, 300, callbacks=[callback])
    assert made.steps == 100
    assert callback.seen == [50, 100]
    learnt(made, 50, callbacks=[StopAt(1_000)])
    assert made.steps == 150
    learnt(made, 20, callbacks=[callback])  # it begins anew
    assert made.steps == 170


def test_ctrl_c_stops_after_the_step_and_training_can_go_on() -> None:
    class Interrupt(Callback):
        def logged(self, row: dict[str, Any], steps_per_second: float) -> None:
            os.kill(os.getpid(), signal.SIGINT)

    made = agent()
    with pytest.raises(KeyboardInterrupt):
        learnt(made, 300, callbacks=[Interrupt()])
    assert made.steps == 50
    assert same(learnt(made, 100).network, learnt(agent(), 150).network)


def test_steps_may_be_written_as_1e2() -> None:
    assert learnt(agent(), 1e2).steps == 100


@pytest.mark.parametrize("steps", [0, -1, 1.5, float("nan"), float("inf"), "10", True])
def test_steps_are_a_positive_integer(steps: Any) -> None:
    with pytest.raises(ValueError, match="expected steps to be"):
        agent().learn(steps)


def test_progress_is_written_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    agent().learn(60)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("step 50 of 60  ")
    learnt(agent(), 60)
    assert capsys.readouterr().err == ""


# --- folders -------------------------------------------------------------------------------------


def test_with_a_folder_it_is_a_run_of_the_command_line(folder: Path) -> None:
    made = learnt(agent(folder="runs/mine"), 300)
    assert same(made.network, learnt(agent(), 300).network)
    assert {"runs/mine/config.json", "runs/mine/metrics.jsonl"} <= set(files(folder))
    listed = CliRunner().invoke(app, ["runs"]).output
    assert "finished" in listed
    assert "runs/mine" in listed
    again = load("runs/mine")
    assert again.steps == 300
    assert same(again.network, made.network)


def test_a_script_that_is_started_again_does_not_repeat_its_steps() -> None:
    def script(*steps: int) -> Agent:
        return learnt(agent(folder="run", frames=300), *steps)

    assert script(100).steps == 100
    again = agent(folder="run", frames=300)
    assert again.steps == 100  # its weights are there at once
    assert same(again.network, learnt(agent(), 100).network)
    assert script(100, 150, 50).steps == 300
    assert same(load("run").network, learnt(agent(), 300).network)


def test_a_loaded_run_is_trained_for_longer() -> None:
    learnt(agent(folder="run"), 100)
    longer = learnt(load("run"), 60)
    assert longer.steps == 160
    assert load("run").steps == 160
    assert same(longer.network, learnt(agent(), 160).network)  # its replay was kept


def test_another_runs_folder_is_refused() -> None:
    learnt(agent(folder="run"), 40)
    with pytest.raises(RunMismatch, match=r"learning\.n_step: the folder has 1"):
        agent(folder="run", n_step=3)
    with pytest.raises(RunError, match=r"expected a run folder with a config\.json, got tmp"):
        load("tmp")


# --- files ----------------------------------------------------------------------------------------


def test_what_does_not_exist_is_not_loaded() -> None:
    with pytest.raises(RunError, match=r"Agent\.save or a run folder, runs/nothing does not exist"):
        load("runs/nothing")


def test_a_saved_agent_is_loaded_as_it_was(folder: Path) -> None:
    made = learnt(agent("noisynet-dueling", seed=2, sigma0=0.3), 60)
    assert made.save("agent.safetensors") == Path("agent.safetensors")
    assert files(folder) == ["agent.safetensors"]
    loaded = load("agent.safetensors")
    assert loaded.config == made.config
    assert loaded.steps == 60
    assert repr(loaded) == repr(made) == "Agent('noisynet-dueling', 'gym/CartPole-v1', steps=60)"
    assert np.array_equal(loaded.q_values(observations()), made.q_values(observations()))
    assert loaded.evaluate(2).mean == made.evaluate(2).mean


@pytest.mark.parametrize("name", ["noisynet-dqn", "a3c"])
def test_a_loaded_agent_begins_training_with_its_weights(name: str) -> None:
    made = agent(name)
    with torch.no_grad():
        for parameter in made.network.parameters():
            parameter.add_(1.0)  # weights that no seed gives
    before = {key: value.clone() for key, value in made.network.state_dict().items()}
    made.save("agent.safetensors")
    loaded = learnt(load("agent.safetensors"), 40)
    assert loaded.steps >= 40
    for key, value in loaded.network.state_dict().items():
        torch.testing.assert_close(value, before[key], atol=0.2, rtol=0)
    assert not same(loaded.network, load("agent.safetensors").network)


# --- environments --------------------------------------------------------------------------------


def test_an_object_can_be_played_on_between_calls() -> None:
    game = gymnasium.make("CartPole-v1")
    made = learnt(agent(environment=game), 100)
    observation, _ = game.reset(seed=9)
    for _ in range(3):
        action = made.predict(observation)
        observation, _, over, _, _ = game.step(action)
        if over:
            break
    assert same(learnt(made, 100).network, learnt(agent(preset="classic"), 200).network)
    made.save("agent.safetensors")
    with pytest.raises(ValueError, match="expected the environment of object/CartPoleEnv itself"):
        load("agent.safetensors")
    assert load("agent.safetensors", game).steps == 200
    with pytest.raises(
        ValueError, match="expected the environment object/CartPoleEnv of the agent"
    ):
        load("agent.safetensors", "CartPole-v1")


def test_a_function_makes_several_environments() -> None:
    make = partial(gymnasium.make, "CartPole-v1")
    made = learnt(agent(environment=make, num_envs=3), 90)
    assert made.config.environment == "function/make"
    named = learnt(agent(num_envs=3, preset="classic"), 90)
    assert same(made.network, named.network)
    message = r"expected num_envs=1 for the environment object.*Pass a function that makes"
    with pytest.raises(ValueError, match=message):
        agent(environment=make(), num_envs=3)


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ("ALE/Pong-v5", "Did you mean 'atari/pong'"),
        ("cartpole", "Did you mean 'gym/CartPole-v1'"),
        ("NoSuchGame-v0", "expected gym/<id> with a registered Gymnasium id"),
        ("Zzyzx-v0", "a module of yours registers it: gym/my_module:Zzyzx-v0"),
        ("minatar/chess", "minatar has no game 'chess'"),
        (7, "expected the name of an environment, a single gymnasium.Env or a function"),
    ],
)
def test_an_unknown_environment_is_refused(environment: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        agent(environment=environment)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"name": "noisynet-dqm"}, "unknown agent 'noisynet-dqm'.*did you mean 'noisynet-dqn'"),
        ({"sigma": 1}, "did you mean 'exploration.sigma0'"),
        ({"preset": "clasic"}, "did you mean 'classic'"),
        ({"device": "quantum"}, "device: expected auto, cpu or a device of this machine"),
        ({"seed": -1}, "seed: Input should be greater than or equal to 0"),
    ],
)
def test_a_wrong_argument_is_refused(more: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        agent(**more)
    assert issubclass(ConfigError, ValueError)


# --- A3C -----------------------------------------------------------------------------------------


def test_a3c_learns_in_processes_and_leaves_nothing_behind(folder: Path) -> None:
    made = learnt(agent("noisynet-a3c"), 400)
    reached = made.steps
    assert reached >= 400
    initial = agent("noisynet-a3c").network
    assert not same(made.network, initial)
    learnt(made, 400)
    assert made.steps > reached
    assert files(folder) != []  # of the temporary folder
    probabilities = made.action_probabilities(observations())
    assert probabilities.sum(axis=1) == pytest.approx(1)
    assert np.array_equal(made.predict(observations()), probabilities.argmax(axis=1))
    assert made.action_probabilities(observations()[0]).shape == (2,)
    assert made.evaluate(2).noise
    with pytest.raises(TypeError, match="noisynet-a3c has no Q-values; use action_probabilities"):
        made.q_values(observations())
    del made
    assert files(folder) == []
    assert list((folder / "tmp").iterdir()) == []


def test_a3c_with_one_worker_has_the_weights_of_the_command_line(folder: Path) -> None:
    made = learnt(agent("a3c", "deep_sea/4", frames=400), 400)
    settings = [f"--set={key}={value}" for key, value in A3C.items() if key != "hidden"]
    command = ["train", "a3c", "deep_sea/4", "--frames", "400", "--name", "run"]
    command += ["--no-tensorboard", "--set=network.hidden=[16]", *settings]
    ended = CliRunner().invoke(app, command)
    assert ended.exit_code == 0, ended.output
    assert same(made.network, load_agent(folder / "runs" / "run")[0].online)


def test_a3c_needs_a_function_that_its_processes_can_import() -> None:
    with pytest.raises(ValueError, match="A3C plays in processes of its own, which cannot share"):
        agent("a3c", gymnasium.make("CartPole-v1"))
    with pytest.raises(ValueError, match="not as a lambda"):
        agent("a3c", lambda: gymnasium.make("CartPole-v1"))
    made = agent("a3c", partial(gymnasium.make, "CartPole-v1"))
    assert learnt(made, 40).steps >= 40
