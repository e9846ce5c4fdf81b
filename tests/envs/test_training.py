"""Every kind of environment trains, is evaluated, and resumes bit for bit."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch
from typer.testing import CliRunner

from noisynet.cli import app
from noisynet.config import Config, build_config
from noisynet.envs import EnvironmentLike, environment_name, make_environment
from noisynet.loops import Observer, load_agent, open_run_folder, train, try_build
from noisynet.runs import RunDamaged, list_traces, read_traces
from noisynet.watch.episode import replay, screens

from .custom_environments import SPACES, Corridor, Unseeded, make_corridor

ROOT = Path(__file__).parents[2]
FRAMES = 130
SHORT = [
    *("network.hidden=[16]", "learning.batch_size=4", "learning.starts_steps=40"),
    *("learning.update_period_steps=4", "learning.sync_target_steps=20"),
    *("replay.capacity_steps=100", "checkpoint_period_frames=30", "log_period_steps=20"),
    *("evaluation.period_frames=60", "evaluation.frames=40", f"frames={FRAMES}"),
]


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    before = dict(gymnasium.registry)
    for kind in SPACES:
        registered_id = f"noisynet-test/{kind.title().replace(' ', '')}-v3"
        gymnasium.register(registered_id, lambda **given: Corridor(**given), kwargs={"kind": kind})
    yield
    gymnasium.registry.clear()
    gymnasium.registry.update(before)


def configure(environment: EnvironmentLike, *settings: str, agent: str = "noisynet-dqn") -> Config:
    config = build_config(agent, environment_name(environment), settings=[*SHORT, *settings])
    assert isinstance(config, Config)
    return config


def stop_after(calls: int) -> Callable[[], bool]:
    """Is asked at every step of training and of evaluations."""
    counter = count(1)
    return lambda: next(counter) >= calls


def run(
    config: Config,
    path: Path,
    environment: EnvironmentLike | None = None,
    stop: Callable[[], bool] = lambda: False,
    keep_replay: bool = False,
) -> bool:
    folder = open_run_folder(path, config)
    with folder.lock():
        outcome = train(config, folder, stop=stop, environment=environment, keep_replay=keep_replay)
        return outcome.finished


def weights(path: Path, environment: EnvironmentLike | None = None) -> dict[str, torch.Tensor]:
    agent, frames = load_agent(path, environment=environment)
    assert frames >= FRAMES
    return agent.online.state_dict()


def assert_same_runs(first: Path, second: Path, environment: EnvironmentLike | None) -> None:
    assert (first / "metrics.jsonl").read_bytes() == (second / "metrics.jsonl").read_bytes()
    one, other = weights(first, environment), weights(second, environment)
    assert one.keys() == other.keys()
    for name in one:
        assert torch.equal(one[name], other[name]), name
    traces = [list_traces(path / "traces") for path in (first, second)]
    assert len(traces[0]) == 6  # three evaluations, one of them at the end, with noise on and off
    assert [file.path.read_bytes() for file in traces[0]] == [
        file.path.read_bytes() for file in traces[1]
    ]


# What it is, how it is given, settings, and the shape and dtype of one observation.
Row = tuple[Callable[[], EnvironmentLike], list[str], tuple[int, ...], str]
TABLE: dict[str, Row] = {
    "flat": (lambda: "gym/noisynet-test/Flat-v3", [], (1, 3), "float32"),
    "dict": (lambda: "gym/noisynet-test/Dict-v3", [], (1, 8), "float32"),
    "tuple": (lambda: "gym/noisynet-test/Tuple-v3", [], (1, 11), "float32"),
    "multi-binary": (lambda: "gym/noisynet-test/Multi-Binary-v3", [], (1, 6), "float32"),
    "multi-discrete": (lambda: "gym/noisynet-test/Multi-Discrete-v3", [], (1, 10), "float32"),
    "byte image": (lambda: "gym/noisynet-test/ByteImage-v3", [], (1, 3, 84, 84), "uint8"),
    "float image": (lambda: "gym/noisynet-test/FloatImage-v3", [], (1, 3, 84, 84), "float32"),
    "small image": (lambda: "gym/noisynet-test/SmallImage-v3", [], (1, 4, 10, 10), "uint8"),
    "id without a version": (lambda: "gym/noisynet-test/Flat", [], (1, 3), "float32"),
    "stacked frames": (
        lambda: "gym/noisynet-test/SmallImage-v3",
        ["environment_options.frame_stack=3"],
        (3, 4, 10, 10),
        "uint8",
    ),
    "object": (lambda: Corridor("dict"), [], (1, 8), "float32"),
    "object in wrappers": (
        lambda: gymnasium.wrappers.TimeLimit(Corridor("byte image"), 9),
        ["environment_options.greyscale=true", "environment_options.frame_stack=2"],
        (2, 84, 84),
        "uint8",
    ),
    "function": (lambda: make_corridor, ["num_envs=3"], (1, 8), "float32"),
    "class": (lambda: Corridor, [], (1, 3), "float32"),
    "partial": (lambda: partial(Corridor, "tuple"), ["num_envs=2"], (1, 11), "float32"),
    "parallel": (
        lambda: partial(Corridor, "dict"),
        ["num_envs=2", "environment_options.parallel=true"],
        (1, 8),
        "float32",
    ),
}


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[pytest.mark.slow] * (kind == "parallel")) for kind in TABLE],
)
def test_it_trains_and_resumes_bit_for_bit(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tests"))  # for the processes of parallel environments
    make, settings, shape, dtype = TABLE[kind]
    config = configure(make(), *settings)

    def given() -> EnvironmentLike | None:
        """As a new process would give it."""
        return None if isinstance(make(), str) else make()

    assert run(config, tmp_path / "whole", given())
    # In the first episodes, between two checkpoints, and within the first evaluation.
    for calls in (17, 45, 30):
        assert not run(config, tmp_path / "resumed", given(), stop_after(calls))
    assert run(config, tmp_path / "resumed", given())
    assert_same_runs(tmp_path / "whole", tmp_path / "resumed", given())
    agent, _ = load_agent(tmp_path / "whole", environment=given())
    assert ((agent.spec.stack, *agent.spec.frame_shape), agent.spec.frame_dtype) == (shape, dtype)
    assert agent.online.torso.convolutional == (len(shape) > 2)


def test_the_documentation_has_the_table() -> None:
    text = (ROOT / "docs" / "environments.md").read_text()
    expected = [
        (kind, "×".join(map(str, shape)), dtype, "yes" if len(shape) > 2 else "no")
        for kind, (_, _, shape, dtype) in TABLE.items()
    ]
    expected.append(("module in the current folder", "1×3", "float32", "no"))  # tested below
    assert re.findall(r"^\| (.+) \| ([\d×]+), (\w+) \| (yes|no) \|$", text, re.M) == expected


def test_stacked_frames_are_stored_once(tmp_path: Path) -> None:
    sizes = []
    for stack in (1, 4):
        path = tmp_path / str(stack)
        name = "gym/noisynet-test/SmallImage-v3"
        settings = configure(name, f"environment_options.frame_stack={stack}")
        run(settings, path, keep_replay=True)
        sizes.append((path / "replay" / "frames.bin").stat().st_size)
    assert sizes[0] <= sizes[1] < 1.2 * sizes[0]


@pytest.mark.parametrize("agent", ["noisynet-dqn", "c51"])
def test_the_preset_for_pixels_trains(agent: str, tmp_path: Path) -> None:
    pytest.importorskip("cv2")
    name = "gym/noisynet-test/ByteImage-v3"
    settings = [*SHORT, "environment_options.resize=40", "frames=60", "evaluation.frames=10"]
    config = build_config(agent, name, preset="pixels", settings=settings)
    assert isinstance(config, Config)
    assert run(config, tmp_path)
    spec = load_agent(tmp_path)[0].spec
    assert (spec.stack, spec.frame_shape, spec.frame_dtype) == (4, (40, 40), "uint8")
    assert spec.pixel_scale == 1 / 255


def test_more_than_256_actions_train_and_replay(tmp_path: Path) -> None:
    def make() -> gymnasium.Env[Any, Any]:
        many = gymnasium.spaces.Discrete(300)
        return gymnasium.wrappers.TransformAction(Corridor(), lambda action: action % 2, many)

    config = configure(make)
    assert run(config, tmp_path, make)
    agent, _ = load_agent(tmp_path, environment=make)
    traces = [
        trace for file in list_traces(tmp_path / "traces") for trace in read_traces(file.path)
    ]
    assert max(trace.actions.max() for trace in traces) > 255
    for trace in traces:
        replay(trace, agent, steps=1, samples=1, environment=make)


def test_evaluating_an_object_does_not_change_its_training(tmp_path: Path) -> None:
    game = Corridor("dict")
    run(configure(game), tmp_path / "evaluated", game)
    run(configure(game, "evaluation.period_frames=100000"), tmp_path / "trained", game)
    assert len(list_traces(tmp_path / "evaluated" / "traces")) == 6
    one, other = weights(tmp_path / "evaluated", game), weights(tmp_path / "trained", game)
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_an_object_and_a_function_play_the_same_games(tmp_path: Path) -> None:
    game, functions = Corridor("dict"), partial(Corridor, "dict")
    run(configure(game), tmp_path / "object", game)
    run(configure(functions), tmp_path / "function", functions)
    one, other = weights(tmp_path / "object", game), weights(tmp_path / "function", functions)
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_run_needs_the_environment_that_it_was_given(tmp_path: Path) -> None:
    game = Corridor()
    run(configure(game), tmp_path / "run", game)
    with pytest.raises(ValueError, match=r"environment of object/Corridor itself: it was given"):
        load_agent(tmp_path / "run")
    with pytest.raises(ValueError, match=r"expected the environment object/Corridor of the run"):
        load_agent(tmp_path / "run", environment=make_corridor)


class Messages(Observer):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def noted(self, message: str) -> None:
        self.texts.append(message)


def test_an_environment_that_does_not_follow_its_seed_is_reported(tmp_path: Path) -> None:
    config, messages = configure(Unseeded), Messages()
    folder = open_run_folder(tmp_path / "run", config)
    with folder.lock():
        train(config, folder, observers=[messages], environment=Unseeded, stop=stop_after(25))
    assert any("function/Unseeded does not repeat an episode" in text for text in messages.texts)
    with folder.lock(), pytest.raises(RunDamaged, match=r"did not reproduce .* seeds everything"):
        train(config, folder, environment=Unseeded)


def test_environments_that_follow_their_seed_are_not_reported(tmp_path: Path) -> None:
    config, messages = configure(Corridor), Messages()
    folder = open_run_folder(tmp_path / "run", config)
    with folder.lock():
        train(config, folder, observers=[messages], environment=Corridor)
    assert messages.texts
    assert not any("does not repeat" in text for text in messages.texts)


@pytest.mark.parametrize("make", [Corridor, lambda: Corridor(render_mode="rgb_array")])
def test_an_episode_of_what_was_given_is_rendered(
    make: Callable[[], Corridor], tmp_path: Path
) -> None:
    environment = Corridor if make is Corridor else make()
    run(configure(environment), tmp_path / "run", environment)
    trace = read_traces(list_traces(tmp_path / "run" / "traces")[-1].path)[0]
    agent, _ = load_agent(tmp_path / "run", environment=environment)
    steps = len(trace.actions)
    replayed = replay(trace, agent, steps=steps, samples=2, environment=environment)
    assert replayed.actions == ("left", "right")
    shown = list(screens(trace, replayed, steps, environment))
    assert len(shown) == steps + 1
    assert shown[0].shape == (8, 48, 3)
    assert {int(screen.max()) for screen in shown} <= {0, 255}


def test_an_object_without_a_render_mode_says_how_to_have_screens(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r'render_mode="rgb_array" to show its screen, got None'):
        make_environment(Corridor(), colour=True)


# --- other processes -----------------------------------------------------------------------------

CORRIDOR = (Path(__file__).parent / "custom_environments.py").read_text()


def python(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run Python as an installed command does: the current folder is not on its path."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-P", *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_module_in_the_current_folder_trains_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registration = 'gymnasium.register("Mine-v2", Corridor)\n'
    (tmp_path / "my_module.py").write_text(CORRIDOR + registration)
    settings = [word for one in (*SHORT[:-1], "compute=torch") for word in ("--set", one)]
    options = ["--no-tensorboard", *settings]
    command = ["-c", "from noisynet.cli import app; app()", "train", "noisynet-dqn"]
    ended = python(*command, "gym/my_module:Mine", "--frames", "60", *options, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "my_module", raising=False)
    arguments = ["train", "noisynet-dqn", "gym/my_module:Mine-v2", "--frames", str(FRAMES)]
    resumed = CliRunner().invoke(app, [*arguments, *options])
    assert resumed.exit_code == 0, resumed.output
    assert "resuming from frame 60" in resumed.output
    folder = Path("runs/gym/my_module.Mine-v2/noisynet-dqn/seed-0")
    assert (folder / "config.json").exists()
    assert [path.name for path in Path("runs/gym").iterdir()] == ["my_module.Mine-v2"]
    spec = load_agent(folder)[0].spec
    assert ((spec.stack, *spec.frame_shape), spec.frame_dtype) == ((1, 3), "float32")


SCRIPT = """
from pathlib import Path

from noisynet.config import build_config
from noisynet.envs import environment_name
from noisynet.loops import open_run_folder, train

if __name__ == "__main__":
    for frames in (200, 400):
        config = build_config(
            "noisynet-a3c", environment_name(make_corridor), frames=frames,
            settings=["workers=1", "compute=torch", "envs_per_worker=2", "network.hidden=[8]",
                      "checkpoint_period_frames=100", "evaluation.period_frames=200",
                      "evaluation.frames=30"],
        )
        folder = open_run_folder(Path("run"), config)
        with folder.lock():
            print(train(config, folder, environment=make_corridor))
"""


def test_a_function_of_a_script_trains_and_resumes_in_a3cs_processes(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(CORRIDOR + SCRIPT)
    ended = python("script.py", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    first, second = ended.stdout.splitlines()
    assert first.startswith("Outcome(finished=True, frames=200, score=")
    assert second.startswith("Outcome(finished=True, frames=400, score=")


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (Corridor(), "expected a function that makes the environment, got the environment object"),
        (lambda: Corridor(), r"function/lambda to be a function that A3C's processes can import"),
    ],
)
def test_a3c_refuses_what_its_processes_cannot_make(
    environment: EnvironmentLike, message: str, tmp_path: Path
) -> None:
    config = build_config("a3c", environment_name(environment))
    with pytest.raises(ValueError, match=message):
        try_build(config, environment)
    folder = open_run_folder(tmp_path / "runs" / "run", config)
    with folder.lock(), pytest.raises(ValueError, match=message):
        train(config, folder, environment=environment)
    assert not (tmp_path / "runs").exists()
