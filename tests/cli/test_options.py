"""Bad commands: every error at once, quickly, and nothing is created."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from noisynet.cli.options import choose_device
from noisynet.config import build_config

from .calling import command, invoke

PONG = ["noisynet-dqn", "atari/pong"]


BAD_COMMANDS: dict[str, tuple[list[str], list[str]]] = {
    "everything at once": (
        [
            *("noisynet-dqnn", "atari/pongg", "--preset", "papper", "--frames", "many"),
            *("--set", "learning.discont=0.9", "--set", "learning.batch_size=big"),
            *("--set", "learning.discount=1.5", "--set", "network"),
        ],
        [
            "unknown agent 'noisynet-dqnn'.*did you mean 'noisynet-dqn'",
            "atari has no game 'pongg'.*'atari/pong'",
            "unknown preset 'papper'.*did you mean 'paper'",
            "--frames expected a positive whole number.*'many'",
            "unknown key 'learning.discont'; did you mean 'learning.discount'",
            "learning.batch_size: .*integer.*'big'",
            "learning.discount: .*less than 1.*1.5",
            "--set expected key=value, got 'network'",
        ],
    ),
    "another family": (["dqn", "minatr/breakout"], ["'minatr/breakout'.*'minatar/breakout'"]),
    "no family": (["dqn", "breakout"], ["'breakout'.*Did you mean '(atari|minatar)/breakout'"]),
    "out of range": (
        [*PONG, "--seed=-1", "--frames", "0", "--set", "num_envs=0"],
        ["seed: .*greater than or equal to 0.*-1", "--frames .*'0'", "num_envs: .*got 0"],
    ),
    "wrong types": (
        [*PONG, "--set", "network.hidden=wide", "--set", "learning.double_q=perhaps"],
        ["network.hidden: .*'wide'", "learning.double_q: .*'perhaps'"],
    ),
    "a noisy agent with ε": (
        [*PONG, "--set", "exploration.final=0.1"],
        ["unknown key 'exploration.final'"],
    ),
    "a3c compiled": (
        ["a3c", "atari/pong", "--set", "compute=compile"],
        ["compute=compile is for value agents; a3c expects compute=auto or compute=torch"],
    ),
    "settings of other sections and libraries": (
        [*PONG, "--set", "learning.lr=0.1", "--set", "sigma0=0.1", "--set", "gamma=0.9"],
        [
            "'learning.lr'; did you mean 'optimiser.learning_rate'",
            "'sigma0'; did you mean 'exploration.sigma0'",
            "'gamma'; did you mean 'learning.discount'",
        ],
    ),
    "a wrong convolution": (
        [*PONG, "--set", "network.torso=[[16,8,4]]"],
        [r"network.torso: expected a convolution as \[filters, kernel, stride, padding\]"],
    ),
    "a noisy agent that is greedy": (
        [*PONG, "--set", "exploration.kind=epsilon-greedy"],
        ["noisynet-dqn does not explore by epsilon-greedy; choose the agent dqn instead"],
    ),
    "a replay that is too small": (
        [*PONG, "--set", "replay.capacity_steps=10"],
        [r"replay.capacity_steps \(10\) is below learning.batch_size \(32\)", "starts_steps"],
    ),
    "noise of one episode for several environments": (
        [*PONG, "--set", "exploration.redraw=episode", "--set", "num_envs=4"],
        ["exploration.redraw=episode expects num_envs=1, got 4.*set num_envs=1, or"],
    ),
    "an unknown kind": (
        [*PONG, "--set", "replay.kind=prioritized"],
        ["replay.*'prioritized'; did you mean 'prioritised'"],
    ),
    "a contradiction beside a wrong choice": (
        [*PONG, "--set", "replay.capacity_steps=10", "--set", "exploration.noise=factorized"],
        [
            r"replay.capacity_steps \(10\) is below learning.batch_size \(32\)",
            "exploration.noise: .*'factorized'; did you mean 'factorised'",
        ],
    ),
}


@pytest.mark.parametrize("name", BAD_COMMANDS)
def test_a_bad_command_lists_every_error_and_creates_nothing(name: str, tmp_path: Path) -> None:
    arguments, expected = BAD_COMMANDS[name]
    out = tmp_path / "out"
    ended = invoke("train", *arguments, "--out", str(out))
    told = ended.stderr.splitlines()
    assert ended.exit_code == 2, told
    for pattern in expected:
        assert any(re.search(pattern, line) for line in told), f"{pattern} is not in {told}"
    assert "Traceback" not in ended.stderr
    assert not out.exists()


def test_errors_are_found_without_torch() -> None:
    arguments, _ = BAD_COMMANDS["everything at once"]
    ended = command("train", *arguments, interpreter=("-X", "importtime"))
    imported = {line.rpartition("|")[2].strip() for line in ended.stderr.splitlines()}
    assert ended.returncode == 2
    assert "noisynet.config" in imported
    assert not imported & {"torch", "scipy", "gymnasium", "ale_py"}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["train", "dqn", "gym/CartPole-v9"], "CartPole-v9"),
        (["train", "dqn", "deep_sea/4", "--set", "environment_options.bogus=1"], "bogus"),
        (
            ["train", "dqn", "deep_sea/4", "--set", "network.torso=nature"],
            "at least 36 pixels a side",
        ),
        (["train", "dqn", "deep_sea/4", "--device", "quantum"], "--device"),
    ],
)
def test_errors_of_environment_and_agent_come_before_anything_is_created(
    arguments: list[str], told: str, tmp_path: Path
) -> None:
    ended = invoke(*arguments, "--out", str(tmp_path / "out"))
    assert ended.exit_code == 2, ended.output
    assert told in ended.output
    assert isinstance(ended.exception, SystemExit)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["train", "audit"])
def test_compile_without_a_compiler_is_refused_with_what_to_install(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    out = ["--out", str(tmp_path / "out")] if name == "train" else []
    ended = invoke(name, "noisynet-dqn", "deep_sea/4", "--set", "compute=compile", *out)
    assert ended.exit_code == 2, ended.output
    assert "install g++ or clang++" in ended.output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("agent", "name", "torso", "device"),
    [
        ("dqn", "atari/pong", "auto", "cuda"),
        ("dqn", "atari/pong", "flat", "cpu"),
        ("dqn", "minatar/breakout", "auto", "cpu"),
        ("dqn", "deep_sea/4", "auto", "cpu"),
        ("dqn", "gym/CarRacing-v3", "[[16, 8, 4, 0]]", "cuda"),
        ("a3c", "atari/pong", "auto", "cpu"),
    ],
)
def test_auto_chooses_cuda_for_large_convolutions_only(
    agent: str, name: str, torso: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = build_config(agent, name, settings=[f"network.torso={torso}"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_device("auto", config) == device
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto", config) == "cpu"
