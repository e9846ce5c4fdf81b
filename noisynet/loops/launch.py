"""Runs of either kind of agent: the configuration says which loop it is that trains it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from noisynet.agents import Agent, make_agent
from noisynet.config import ActorCriticConfig, Config, load_config
from noisynet.evaluation import make_configured_environment
from noisynet.loops import async_actors, training
from noisynet.loops.journal import Observer
from noisynet.loops.process import prepare_process
from noisynet.loops.supervisor import PATIENCE_SECONDS
from noisynet.loops.training import Outcome
from noisynet.runs import RunError, RunFolder, load_newest


def train(
    config: Config | ActorCriticConfig,
    folder: RunFolder,
    *,
    device: torch.device | str = "cpu",
    observers: Sequence[Observer] = (),
    stop: Callable[[], bool] = lambda: False,
    patience_seconds: float = PATIENCE_SECONDS,
) -> Outcome:
    """Train to the end of the budget, from where the folder's newest checkpoint stands.

    The caller holds the folder's lock.

    Args:
        config: the run's configuration.
        folder: where everything is kept.
        device: where the networks live.
        observers: are told how it goes.
        stop: asked at every step, or of runs with workers several times a second; true checkpoints
            and returns.
        patience_seconds: how long a worker may be without a heartbeat before it is started again.

    Raises:
        NonFiniteLoss: the loss became NaN or infinite; the last checkpoint is kept.
        ValueError: the environment gave a reward that is not finite; likewise. In a run with
            workers that is the death of one.
        WorkersFailed: a worker could not be kept alive; the run is saved.
        StorageError: the disk refused twice in a row to take a checkpoint, or a metric.
        RunDamaged: the folder's files are not what its checkpoints say.
    """
    if isinstance(config, Config):
        return training.train(config, folder, device=device, observers=observers, stop=stop)
    with async_actors.make_actor_training(
        config, folder, device, observers, stop, patience_seconds
    ) as run:
        return run.run()


def rehearse(config: Config | ActorCriticConfig) -> None:
    """Make a run's environment and agent once, and nothing on disk.

    Raises:
        ValueError: one of them does not accept its settings, such as an unknown Gymnasium id.
        ImportError: a package is missing.
    """
    prepare_process()  # a continued run does not rehearse, and must not differ from one that does
    with make_configured_environment(config, 1) as environment:
        make_agent(config, environment.spec)


def load_agent(path: Path, device: torch.device | str = "cpu") -> tuple[Agent, int]:
    """The agent of a run's newest checkpoint, and its training frames; the run is not touched."""
    folder = RunFolder(path)
    if not folder.config_path.exists():
        raise RunError(f"expected a run folder with a config.json, got {path}; see `noisynet list`")
    config = load_config(folder.read_config())
    with make_configured_environment(config, 1) as environment:
        spec = environment.spec
    if isinstance(config, Config):
        schema, identity = training.SCHEMA, training.identity(config, spec)
    else:
        schema, identity = async_actors.SCHEMA, async_actors.identity(config, spec)
    checkpoint, _ = load_newest(
        folder.checkpoints_path, schema=schema, identity=identity, repair=False
    )
    if checkpoint is None:
        raise RunError(f"{path} has no checkpoint yet; continue its training first")
    agent = make_agent(config, spec, device)
    agent.load_weights(checkpoint.tensors, "agent.")
    return agent, checkpoint.step * spec.frames_per_step
