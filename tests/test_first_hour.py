"""The commands of the README as a new user gives them: in a fresh folder, one after the other."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
from pathlib import Path
from typing import Final

import pytest
from typer.testing import CliRunner

from noisynet.cli import app

README: Final = Path(__file__).parent.parent / "README.md"
PONG: Final = Path("runs/atari/pong/noisynet-dqn/seed-0")
CARTPOLE: Final = Path("runs/gym/CartPole-v1/noisynet-dueling/seed-0")

# What makes each command of the README a matter of seconds.
SHORTER: Final = {
    "train noisynet-dqn atari/pong": ["--frames", "400"],
    "train noisynet-dueling gym/CartPole-v1": ["--frames", "300", "--set", "network.hidden=[16]"],
    "evaluate": ["--episodes", "1", "--frames", "400"],
    "watch": [],
    "audit": ["deep_sea/4", "--set", "network.hidden=[16]"],
    "train noisynet-a3c atari/pong": ["--frames", "100", "--workers", "1"],
    "sweep": ["--dry-run"],
    "report": [],
}


def readme_commands() -> dict[str, list[str]]:
    """The commands of the README, by their key in `SHORTER`."""
    lines = re.findall(r"^noisynet (.*?)(?: +#.*)?$", README.read_text(), re.M)
    found = {}
    for line in lines:
        (key,) = [key for key in SHORTER if line.startswith(key)]
        found[key] = shlex.split(line)
    return found


def run(*arguments: str, code: int = 0) -> str:
    """Run `noisynet …` and return what it prints."""
    ended = CliRunner().invoke(app, arguments)
    assert ended.exit_code == code, ended.output
    return ended.output


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Start in an empty folder; return the README's commands, made shorter."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    commands = readme_commands()
    assert commands.keys() == SHORTER.keys()
    return {key: [*commands[key], *SHORTER[key]] for key in SHORTER}


def test_the_first_hour(given: dict[str, list[str]]) -> None:
    # Train: one line first, an evaluation at the end, and little on the disk.
    said = run(*given["train noisynet-dqn atari/pong"]).splitlines()
    assert re.fullmatch(
        r"noisynet-dqn on atari/pong: device \S+, compute \S+, \d+ threads?, 400 frames, "
        rf"in {PONG}, \d+\.\d MB on disk",
        said[0],
    )
    assert re.fullmatch(rf"finished: 400 frames, score -?\d+\.\d\d, in {PONG}", said[-1])
    assert [line for line in said if line.startswith("frame 400: score")]
    assert not (PONG / "replay").exists()
    assert (
        sum(path.stat().st_size for path in PONG.rglob("*") if path.is_file()) < 120e6
    )  # two checkpoints

    # The same command does nothing more; a shorter budget is refused, a longer one continues.
    train = given["train noisynet-dqn atari/pong"]
    metrics = (PONG / "metrics.jsonl").read_bytes()
    assert run(*train).splitlines()[-1] == said[-1]
    assert (PONG / "metrics.jsonl").read_bytes() == metrics
    assert "has a budget of 400 frames" in run(*train, "--frames", "200", code=1)
    longer = run(*train, "--frames", "440")
    assert "resuming from frame 400" in longer
    assert "it refills" in longer
    assert "finished: 440 frames" in longer

    # Look at it.
    said = run(*given["evaluate"]).splitlines()
    assert said[0].startswith("noisynet-dqn on atari/pong after 440 frames")
    assert [line.split()[:2] for line in said[1:]] == [["noise", "on"], ["noise", "off"]]
    shown = run("show", str(PONG))
    assert re.search(r"^frames +440$", shown, re.M)
    assert re.search(r"^made by +python .*torch .*; commit ", shown, re.M)
    pytest.importorskip("av")
    said = run(*given["watch"]).splitlines()
    assert re.search(r"\d+ pictures, \d+ s, \d+\.\d MB, score -?\d+\.\d: game\.mp4$", said[-1])
    assert Path("game.mp4").stat().st_size > 0


def test_ctrl_c_and_the_same_command(
    given: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from noisynet.agents import ValueAgent

    train, act = given["train noisynet-dueling gym/CartPole-v1"], ValueAgent.act

    def interrupt(agent: ValueAgent, observation: object, step: int) -> object:
        if step == 100:
            os.kill(os.getpid(), signal.SIGINT)
        return act(agent, observation, step)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(ValueAgent, "act", interrupt)
        said = run(*train, code=130)
    assert "interrupted at frame 101 and saved; the same command resumes it" in said
    said = run(*train)
    assert "resuming from frame 101" in said
    assert "finished: 300 frames" in said
    stored = json.loads((CARTPOLE / "config.json").read_text())
    assert (stored["exploration"]["sigma0"], stored["learning"]["n_step"]) == (0.1, 3)


def test_the_other_commands(given: dict[str, list[str]]) -> None:
    said = run(*given["train noisynet-a3c atari/pong"])
    assert re.search(r"^finished: 1\d\d frames, score -?\d+\.\d\d, in \S+$", said, re.M)
    assert "PASS" in run(*given["audit"]).upper()
    assert run(*given["sweep"]).startswith("classic: 12 runs (2 agents, 2 environments, 3 seeds)")
    (row,) = run("runs").splitlines()[1:]
    assert row.split()[0] == "finished"
    assert "index.html" in run(*given["report"])
    assert Path("report/index.html").stat().st_size > 0
