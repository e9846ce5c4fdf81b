"""Every agent is killed at least twenty times, and ends as if nothing had happened."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from loops.conftest import EVALUATE, LOG, RUNS
from noisynet.config import AGENTS

if TYPE_CHECKING:
    from loops.conftest import Bench, Ended

_COMMON: Final = [
    *(
        "--frames",
        "3000",
        "--set",
        "evaluation.period_frames=800",
        "--set",
        "evaluation.frames=150",
    ),
    *("--set", "checkpoint_period_frames=250", "--set", "log_period_steps=200"),
    *("--set", "network.hidden=[32]"),
]
_VALUE: Final = [
    *("--set", "learning.starts_steps=100", "--set", "replay.capacity_steps=500"),
    *("--set", "learning.update_period_steps=2"),
]
_A3C: Final = ["--workers", "1", "--set", "learning.rollout_steps=5"]  # one worker repeats itself
ENVIRONMENTS: Final = {
    "dqn": "gym/CartPole-v1",
    "noisynet-dqn": "deep_sea/8",
    "dueling": "minatar/breakout",
    "noisynet-dueling": "gym/CartPole-v1",
    "c51": "deep_sea/8",
    "noisynet-c51": "minatar/breakout",
    "rainbow": "minatar/breakout",
    "rainbow-without-noise": "gym/CartPole-v1",
    "a3c": "gym/CartPole-v1",
    "noisynet-a3c": "minatar/breakout",
    "noisynet-a3c-factorised": "deep_sea/8",
}
KILLS: Final = 20


class Lives:
    """The processes of one run, each killed at a moment that is drawn."""

    def __init__(self, bench: Bench, agent: str, stream: random.Random, seconds: float) -> None:
        self.bench, self.stream, self.seconds = bench, stream, seconds
        policy = "noisynet.agents.actor_critic:ActorCriticPolicy.act"
        self.evaluate = policy if "a3c" in agent else EVALUATE

    def live(self, command: list[str], moment: str) -> Ended:
        """Start the command; send it SIGKILL from outside, or at an event of its own."""
        if moment == "any time":
            started = self.bench.start(command)
            time.sleep(self.stream.uniform(0, self.seconds))
            os.kill(started.pid, signal.SIGKILL)
            return started.wait()
        event, most = {
            "starting": ("files /run/", 40),
            "row": (LOG, 8),
            "evaluation": (self.evaluate, 200),
            "checkpoint": ("files /checkpoints/.", 8),
        }[moment]
        return self.bench.run(command, (event, self.stream.randint(1, most)))


def test_all_agents_are_among_them() -> None:
    assert set(ENVIRONMENTS) == set(AGENTS)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("agent", ENVIRONMENTS)
def test_twenty_kills_of_every_agent_leave_no_trace(
    agent: str,
    bench: Bench,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Any,
) -> None:
    own = _A3C if "a3c" in agent else _VALUE
    monkeypatch.setitem(RUNS, agent, [agent, ENVIRONMENTS[agent], *_COMMON, *own])
    expected = bench.reference(agent)
    began = time.monotonic()  # kernels are compiled now
    assert bench.run(bench.command(agent, tmp_path / "timed")).status == 0
    stream = random.Random(agent)
    lives = Lives(bench, agent, stream, time.monotonic() - began)
    killed: Counter[str] = Counter()
    compared = 0
    while killed.total() < KILLS or compared == 0:
        out = tmp_path / str(compared)
        command, status = bench.command(agent, out), -signal.SIGKILL
        while status == -signal.SIGKILL and killed.total() < KILLS:
            moment = stream.choice(
                ["any time"] * 4 + ["starting", "row", "evaluation", "checkpoint"]
            )
            ended = lives.live(command, moment)
            status = ended.status
            assert status in (-signal.SIGKILL, 0), ended.said
            killed[moment] += status == -signal.SIGKILL
        if status:
            ended = bench.run(command)
            assert ended.status == 0, ended.said
        assert bench.remains(out / "run") == expected, killed
        compared += 1
    record_property("kills", dict(killed))
    record_property("runs", compared)
