"""From a configuration and a folder to a run, and from a run folder to its agent."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeAlias

import torch

from noisynet.agents import Agent, ValueAgent, make_agent
from noisynet.agents.compute import cache_note
from noisynet.config import ActorCriticConfig, Config, ConfigError, load_config
from noisynet.envs import Environment, EnvironmentLike, encode_function, family_of, repeats_episodes
from noisynet.evaluation import make_configured_environment
from noisynet.loops.async_actors import AsyncTrainer
from noisynet.loops.off_policy_trainer import OffPolicyTrainer
from noisynet.loops.process import choose_threads, default_threads, prepare_process
from noisynet.loops.run import Outcome, Run, Trainer, checkpoint_identity
from noisynet.loops.run_log import Observer, RunLog
from noisynet.loops.supervisor import PATIENCE_SECONDS
from noisynet.runs import (
    CHANGEABLE_SETTINGS,
    RunDamaged,
    RunError,
    RunFolder,
    RunMismatch,
    load_newest,
)
from noisynet.runs.encoding import flatten
from noisynet.runs.provenance import describe_machine, format_bytes

_log = logging.getLogger(__name__)

AnyConfig: TypeAlias = Config | ActorCriticConfig


def train(
    config: AnyConfig,
    folder: RunFolder,
    *,
    device: torch.device | str = "cpu",
    observers: Sequence[Observer] = (),
    stop: Callable[[], bool] = lambda: False,
    patience_seconds: float = PATIENCE_SECONDS,
    environment: EnvironmentLike | None = None,
    keep_replay: bool = False,
) -> Outcome:
    """Train to the end of the budget, starting from the newest checkpoint in the folder.

    Args:
        config: configuration of the run.
        folder: the run folder; the caller holds its lock.
        device: device of the networks.
        observers: are notified of metrics and messages.
        stop: asked at every step, or several times a second in runs with workers; true saves the
            run and returns.
        patience_seconds: a worker without a heartbeat for so long is restarted.
        environment: an environment object, or a function that makes one, whose `environment_name`
            the configuration has; None for the configured name. Training and evaluation share an
            object. A3C needs a function, which its processes import.
        keep_replay: whether a value agent's replay is kept when the budget is spent. Without it, a
            longer budget later continues with an empty replay.

    Raises:
        NonFiniteLoss: the loss became NaN or infinite; the last checkpoint is kept.
        ValueError: the environment returned a reward that is not finite; the last checkpoint is
            kept. In a run with workers, the worker dies of it.
        WorkersFailed: a worker died too often; the run is saved.
        StorageError: a metric, or two checkpoints in a row, could not be written.
        RunDamaged: the files of the folder do not match its checkpoints.
    """
    with open_run(
        config, folder, device, observers, stop, patience_seconds, environment, keep_replay
    ) as run:
        return run.run()


@contextmanager
def open_run(
    config: AnyConfig,
    folder: RunFolder,
    device: torch.device | str = "cpu",
    observers: Sequence[Observer] = (),
    stop: Callable[[], bool] = lambda: False,
    patience_seconds: float = PATIENCE_SECONDS,
    environment: EnvironmentLike | None = None,
    keep_replay: bool = False,
) -> Iterator[Run]:
    """Build a run and restore its newest checkpoint; the arguments are those of `train`.

    The number of threads is fixed here and stored in the folder: sums in PyTorch depend on it. A
    new run that cannot be built leaves no folder.
    """
    prepare_process()
    with ExitStack() as resources:
        try:
            num_envs = config.num_envs if isinstance(config, Config) else 1
            games = make_configured_environment(config, num_envs, environment)
            resources.enter_context(games)
            spec, stored = games.spec, folder.read_config()
            default = default_threads(config, spec)
            threads, note = choose_threads(config.threads, stored.get("threads"), default)
            resources.callback(torch.set_num_threads, torch.get_num_threads())
            torch.set_num_threads(threads)
            config = config.model_copy(update={"threads": threads})
            agent = make_agent(config, spec, device)
            log = RunLog(folder, spec.frames_per_step, config.log_period_steps, observers)
            resources.callback(log.close)
            trainer: Trainer
            if isinstance(agent, ValueAgent):
                trainer = OffPolicyTrainer(agent, games, folder, log, keep_replay)
            else:
                trainer = AsyncTrainer(agent, spec, folder, log, patience_seconds, environment)
                resources.callback(trainer.close)
            notes = (note, cache_note(agent.compute), _warning(games))
            for text in filter(None, (_description(trainer, folder), *notes)):
                log.message(text)
            if isinstance(trainer, AsyncTrainer):
                games.close()  # every worker has its own
            run = Run(trainer, config, spec, folder, log, stop, environment)
            run.resume()
            made_by = describe_machine(_device_name(agent.device))
            folder.write_config(
                {**stored, "frames": config.frames, "threads": threads}, made_by=made_by
            )
        except BaseException:
            resources.close()
            folder.remove_if_unused()
            raise
        yield run


def _description(trainer: Trainer, folder: RunFolder) -> str:
    """The first line of a run."""
    agent, config = trainer.agent, trainer.agent.config
    compute, threads = getattr(agent, "compute", "torch"), config.threads
    return (
        f"{config.agent} on {config.environment}: device {agent.device}, compute {compute}, "
        f"{threads} thread{'' if threads == 1 else 's'}, {config.frames:,} frames, in "
        f"{folder.given}, {format_bytes(trainer.disk_bytes)} on disk"
    )


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return f"{device} ({torch.cuda.get_device_name(device)})"
    return str(device)


def _warning(games: Environment) -> str | None:
    """A note for the user if the environment does not repeat its episodes."""
    if family_of(games.spec.name).repeats_episodes or repeats_episodes(games):
        return None
    return (
        f"{games.spec.name} does not repeat an episode from the same seed and actions: this run "
        "cannot be resumed, nor its episodes shown; make reset(seed=...) seed everything random"
    )


def open_run_folder(path: Path, config: AnyConfig) -> RunFolder:
    """Open the folder of a run, or make it if it does not exist.

    Raises:
        RunMismatch: the folder belongs to another run, to one with a longer budget, or to another
            version of noisynet.
        RunDamaged: its config.json is not JSON.
        StorageError: the disk cannot be read or written.
    """
    folder = RunFolder(path)
    if folder.config_path.exists():
        expected = flatten(_read_config(folder).model_dump(mode="json"))
        missing = expected.keys() - flatten(folder.read_config()).keys()
        if unknown := sorted(missing - set(CHANGEABLE_SETTINGS)):
            raise _other_version(folder, f"it has no {', '.join(unknown)}")
    given = config.model_dump(mode="json")
    must_match = [key for key in given if key not in CHANGEABLE_SETTINGS]
    opened = RunFolder.create_or_open(path, given, must_match=must_match)
    budget = opened.read_config()["frames"]
    if budget > config.frames:
        raise RunMismatch(
            f"{path} has a budget of {budget:,} frames: expected at least as many, got "
            f"{config.frames:,}; settings such as an annealed learning rate depend on it. Give "
            f"--frames {budget} or more, or choose another --out or --name"
        )
    return opened


def try_build(config: AnyConfig, environment: EnvironmentLike | None = None) -> None:
    """Make the environment and the agent of a run once, and nothing on disk.

    Raises:
        ValueError: one of them does not accept its settings, such as an unknown Gymnasium id.
        ImportError: a package is missing.
    """
    prepare_process()  # a resumed run skips this function, and must not differ from others
    if environment is not None and isinstance(config, ActorCriticConfig):
        encode_function(environment)  # its workers can import it
    with make_configured_environment(config, 1, environment) as games:
        make_agent(config, games.spec)


def load_agent(
    path: Path,
    device: torch.device | str = "cpu",
    environment: EnvironmentLike | None = None,
) -> tuple[Agent, int]:
    """Load the agent of a run's newest checkpoint; return it with its training frames.

    The run folder is not changed.
    """
    folder = RunFolder(path)
    if not folder.config_path.exists():
        raise RunError(f"expected a run folder with a config.json, got {path}; see `noisynet runs`")
    config = _read_config(folder)
    with make_configured_environment(config, 1, environment) as games:
        spec = games.spec
    checkpoint, skipped = load_newest(
        folder.checkpoints_path, **checkpoint_identity(config, spec), repair=False
    )
    for bad in skipped:
        _log.warning("%s is damaged, an older checkpoint is used: %s", bad.path, bad.reason)
    if checkpoint is None:
        raise RunError(f"{path} has no checkpoint yet; resume its training first")
    agent = make_agent(config, spec, device)
    try:
        agent.load_weights(checkpoint.tensors, "agent.")
    except (LookupError, RuntimeError) as error:
        raise RunDamaged(
            f"the checkpoint of step {checkpoint.step} in {path} verifies, but its weights do not "
            f"fit the configuration: {error}"
        ) from error
    return agent, checkpoint.step * spec.frames_per_step


def _read_config(folder: RunFolder) -> AnyConfig:
    try:
        return load_config(folder.read_config())
    except ConfigError as error:
        raise _other_version(folder, "; ".join(str(error).splitlines())) from error


def _other_version(folder: RunFolder, why: str) -> RunMismatch:
    return RunMismatch(
        f"{folder.config_path} was not written by this version of noisynet: {why}; resume the run "
        "with the version that started it, or start a new run with another --out or --name"
    )
