"""Agents in Python: train one, use it, save it and load it.

With `folder`, an agent is a run like one of the command line. Without, everything is in memory and
nothing is written. A3C alone, whose processes report through files, then has a temporary folder,
which is deleted with the agent.
"""

from __future__ import annotations

import signal
import tempfile
import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from noisynet.agents import (
    ValueAgent,
)
from noisynet.callbacks import Callback, progress_observer
from noisynet.config import (
    ActorCriticConfig,
    Config,
    ConfigError,
    build_config,
    load_config,
    missing_for,
    settings_from_keywords,
)
from noisynet.envs import (
    EnvironmentLike,
    environment_name,
    name_of_gymnasium_id,
    release_object,
)
from noisynet.envs.environment import check_count
from noisynet.envs.names import FAMILIES
from noisynet.evaluation import make_configured_environment
from noisynet.loops import Observer, Run, load_agent, open_run, open_run_folder
from noisynet.loops.async_actors import AsyncTrainer
from noisynet.loops.in_memory import MemoryRun
from noisynet.player import Player
from noisynet.runs import RunError, RunFolder, load_agent_file
from noisynet.runs.stop_signals import stop_on_signals


class Agent(Player):
    """An agent with its environment.

    Args:
        name: such as "noisynet-dqn"; `noisynet agents` lists all.
        environment: a name such as "minatar/breakout"; a Gymnasium id such as "CartPole-v1"; an
            environment object; or a function that makes one, such as its class. Several
            environments (`num_envs`) and A3C's processes need a name or a function.
        seed: the seed of all random streams.
        preset: the settings to begin with; None for those of the environment's family.
        device: of the network: "auto", "cpu", "cuda", …
        folder: a run folder, new or of this very run; None: everything is in memory.
        **settings: by name, such as `sigma0=0.1`, `n_step=3` or `num_envs=8`, or by dotted key,
            such as `**{"learning.discount": 0.97}`; `noisynet settings AGENT ENV` lists them.
            `frames` is the budget of schedules, see `learn`.

    Attributes:
        config: the configuration.
        device: the device of the network.
        folder: the run folder, or None.

    Raises:
        ConfigError: a setting is unknown, ambiguous or out of range; names the nearest.
        ValueError: the environment does not fit.
        RunError: the folder belongs to another run.
    """

    def __init__(
        self,
        name: str,
        environment: EnvironmentLike,
        *,
        seed: int = 0,
        preset: str | None = None,
        device: str = "auto",
        folder: Path | str | None = None,
        **settings: Any,
    ) -> None:
        config = build_config(
            name,
            _environment_id(environment),
            seed=seed,
            preset=preset,
            settings=settings_from_keywords(name, settings),
        )
        if problem := missing_for(config.compute):
            raise ConfigError(problem)
        self._set_up(config, environment, device, folder)
        self._budget_frames = config.frames if "frames" in settings else 0
        run = None if self.folder is None else RunFolder(self.folder)
        if run is not None and run.config_path.exists():
            self._open(run)

    @classmethod
    def _of(
        cls,
        config: Config | ActorCriticConfig,
        environment: EnvironmentLike | None,
        device: str,
        folder: Path | None = None,
    ) -> Self:
        """The agent of a stored configuration."""
        if environment is not None and _environment_id(environment) != config.environment:
            raise ValueError(
                f"expected the environment {config.environment} of the agent, got {environment}"
            )
        agent = cls.__new__(cls)
        agent._set_up(config, environment, device, folder)
        agent._budget_frames = 0
        return agent

    def _set_up(
        self,
        config: Config | ActorCriticConfig,
        environment: EnvironmentLike | None,
        device: str,
        folder: Path | str | None,
    ) -> None:
        super().__init__(config, environment, device)
        self.folder = None if folder is None else Path(folder)
        self._memory: MemoryRun | None = None
        self._temporary: Path | None = None
        self._target = 0  # steps of the run at the end of the last `learn`
        self._resources = ExitStack()
        weakref.finalize(self, self._resources.close)

    def _open(self, run: RunFolder) -> None:
        """Take the weights of a run that exists; refuse that of another agent."""
        open_run_folder(run.path, self.config)
        self._budget_frames = max(self._budget_frames, load_config(run.read_config()).frames)
        if any(run.checkpoints_path.glob("*.safetensors")):
            self._agent, frames = load_agent(run.path, self.device, self._source)
            self._run_steps = frames // self._spec.frames_per_step
            release_object(self._source)

    def __repr__(self) -> str:
        return f"Agent({self.config.agent!r}, {self.config.environment!r}, steps={self.steps:,})"

    # --- training --------------------------------------------------------------------------------

    def learn(
        self, steps: float, progress: bool | None = None, callbacks: Sequence[Observer] = ()
    ) -> Self:
        """Train for `steps` more agent steps; call it again to go on.

        Steps are counted from the start of the script. With a folder, a script that is started
        again thus does not repeat the steps that the run already has. To train a finished run for
        longer, `load` it.

        Two schedules depend on the budget: β of prioritised replay (Rainbow) and the learning rate
        of A3C end with it. It is the sum of all steps asked for so far. To keep a schedule over
        several calls, give the agent the setting `frames`. All others, such as ε of DQN, depend on
        the steps so far only, and `learn` twice is the same as once.

        Args:
            steps: agent steps of all environments together; 1e5 is 100,000.
            progress: None for a live view in a terminal and a line a minute elsewhere, True for
                the live view, False for nothing.
            callbacks: are notified of metrics and evaluations; a `Callback` can stop training.

        Returns:
            The agent.

        Raises:
            NonFiniteLoss: the loss became NaN or infinite.
            KeyboardInterrupt: Ctrl-C, after the current step; you can go on afterwards.
        """
        frames_per_step = self._spec.frames_per_step
        whole = int(steps) if isinstance(steps, float) and steps.is_integer() else steps
        more = check_count("steps", whole, at_least=1)
        self._target = min(self._target, self._run_steps) + more  # it may have stopped early
        self._budget_frames = max(self._budget_frames, self._target * frames_per_step)
        self.config = self.config.model_copy(update={"frames": self._budget_frames})
        own = [callback for callback in callbacks if isinstance(callback, Callback)]
        for callback in own:
            callback.stopped = False
        with (
            stop_on_signals(interrupt_twice=True) as interrupted,
            progress_observer(progress, self._target, frames_per_step) as shown,
        ):
            train = self._learn_in_memory
            if self.folder is not None or isinstance(self.config, ActorCriticConfig):
                train = self._learn_in_folder
            train(
                [*shown, *callbacks],
                lambda: interrupted() or any(callback.stopped for callback in own),
            )
        release_object(self._source)
        if interrupted.signal == signal.SIGINT:
            raise KeyboardInterrupt
        if interrupted.signal is not None:
            raise SystemExit(128 + interrupted.signal)
        return self

    def _learn_in_memory(self, observers: Sequence[Observer], stop: Callable[[], bool]) -> None:
        assert isinstance(self.config, Config)
        assert isinstance(self._agent, ValueAgent)
        if self._memory is None:
            games = make_configured_environment(self.config, self.config.num_envs, self._source)
            self._resources.enter_context(games)
            self._memory = MemoryRun(self._agent, games, self._source)
        try:
            self._memory.train(self._target, self._budget_frames, observers, stop)
        finally:
            self._run_steps = self._memory.steps

    def _learn_in_folder(self, observers: Sequence[Observer], stop: Callable[[], bool]) -> None:
        folder = open_run_folder(self.folder or self._temporary_folder(), self.config)
        running: list[Run] = []
        ends_early = self._target * self._spec.frames_per_step < self._budget_frames

        def stop_at_target() -> bool:
            return stop() or (ends_early and running[0].steps >= self._target)

        with (
            folder.lock(),
            open_run(
                self.config,
                folder,
                self.device,
                observers,
                stop_at_target,
                environment=self._source,
                keep_replay=True,  # `learn` may be called again
            ) as run,
        ):
            running.append(run)
            self._agent = run.trainer.agent
            if self._loaded is not None and run.checkpointed_at < 0:
                assert isinstance(run.trainer, AsyncTrainer), "value agents are in memory"
                run.trainer.load_weights(self._loaded.tensors)
            try:
                if run.steps < self._target:
                    run.run()
                else:
                    run.log.message(
                        f"{folder.path} has {run.steps:,} steps already; noisynet.load it to train "
                        "for longer"
                    )
            finally:
                self._run_steps = run.steps
                running.clear()  # a cycle would keep the temporary folder until it is collected

    def _temporary_folder(self) -> Path:
        if self._temporary is None:
            made = tempfile.TemporaryDirectory(prefix="noisynet-")
            self._temporary = Path(self._resources.enter_context(made)) / "run"
        return self._temporary


def load(
    path: Path | str, environment: EnvironmentLike | None = None, *, device: str = "auto"
) -> Agent:
    """Load an agent from a file of `Agent.save`, a run folder, or a repository of the Hub.

    `learn` trains a run for longer. With a file it starts a new training, in memory, whose initial
    weights are those of the file; replay and optimiser are empty.

    Args:
        path: the file, the run folder, or the repository as "hf://user/name" or
            "hf://user/name@revision".
        environment: the object or the function that the agent was given; None for a name.
        device: as for `Agent`.

    Raises:
        RunError: it is neither, or it is damaged.
        ValueError: the environment is missing or another one.
    """
    shared = str(path).startswith("hf://")
    if shared:
        from noisynet.integrations.hub import download

        path = download(str(path))
    path = Path(path)
    if not path.exists():
        raise RunError(f"expected a file of Agent.save or a run folder, {path} does not exist")
    if path.is_dir():
        run = RunFolder(path)
        if not run.config_path.exists():
            load_agent(path)  # explains what is missing
        agent = Agent._of(load_config(run.read_config()), environment, device, path)
        agent._open(run)
        agent._target = agent._run_steps
        return agent
    stored = load_agent_file(path)
    config = load_config(stored.config)
    if shared and environment is None and ":" in config.environment:
        raise ValueError(
            f"the agent is of {config.environment}, whose module would be imported: pass "
            f"environment={config.environment!r} if you trust it"
        )
    agent = Agent._of(config, environment, device)
    agent._loaded = stored
    agent._agent.load_weights(stored.tensors)
    if isinstance(agent._agent, ValueAgent):
        agent._agent.sync_target()
    return agent


def _environment_id(environment: EnvironmentLike) -> str:
    """The name of an environment; "CartPole-v1" is "gym/CartPole-v1"."""
    if isinstance(environment, str) and environment.partition("/")[0] not in FAMILIES:
        found = name_of_gymnasium_id(environment)
        # Ids of Atari and MinAtar are refused with a suggestion: our protocols are not theirs.
        return found if found is not None and found.startswith("gym/") else environment
    return environment if isinstance(environment, str) else environment_name(environment)
