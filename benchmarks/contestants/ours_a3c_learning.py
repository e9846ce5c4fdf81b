"""Our A3C on minatar/breakout: ours_a3c_learning.py AGENT WORKERS ENVS FRAMES SEED.

Workers take turns in one process, roll-out by roll-out, so that the result does not depend on the
speed of the machine. Prints the finished episodes as JSON: the step of all workers at which each
ended, and its return.
"""

from __future__ import annotations

import json
import sys

import torch

from noisynet.agents import ActorCriticAgent
from noisynet.config import ActorCriticConfig, build_config
from noisynet.evaluation import make_configured_environment
from noisynet.loops.channel import Channel
from noisynet.loops.episodes import FinishedEpisode
from noisynet.loops.process import prepare_process
from noisynet.loops.shared_state import SharedState
from noisynet.loops.worker import Worker


class RecordingWorker(Worker):
    """Keeps the returns of its episodes instead of reporting them."""

    episodes: list[tuple[int, float]]

    def _report(self, finished: list[FinishedEpisode], *_: object) -> None:
        self.episodes += [(self.shared.steps, episode.score) for episode in finished]


def train(config: ActorCriticConfig) -> list[tuple[int, float]]:
    """Train; return the step at which every episode ended, and its return."""
    with make_configured_environment(config, 1) as environment:
        initial = ActorCriticAgent(config, environment.spec).parameters
    shared = SharedState.create(config.workers, len(initial))
    shared.parameters[:] = initial.numpy()
    RecordingWorker.episodes = []
    channel, _ = Channel.pair()
    workers = [
        RecordingWorker(config, shared, channel, number=number, incarnation=0)
        for number in range(config.workers)
    ]
    while shared.steps < config.frames:
        for worker in workers:
            if shared.steps < config.frames:
                worker._roll_out(shared.steps)
    return RecordingWorker.episodes


def main() -> None:
    """Train as the command line says."""
    agent, workers, envs, frames, seed = sys.argv[1:]
    torch.set_num_threads(1)
    prepare_process()
    config = build_config(
        agent,
        "minatar/breakout",
        seed=int(seed),
        frames=int(frames),
        settings=[f"workers={workers}", f"envs_per_worker={envs}"],
    )
    assert isinstance(config, ActorCriticConfig)
    print(json.dumps(train(config)))


if __name__ == "__main__":
    main()
