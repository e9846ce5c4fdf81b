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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from noisynet.agents import ActorCriticAgent, EvaluationPolicy, ValueAgent, choose_device
from noisynet.agents import Agent as AnyAgent
from noisynet.agents import make_agent
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
    ObservationReader,
    check_single,
    encode_function,
    environment_name,
    name_of_gymnasium_id,
    release_object,
)
from noisynet.envs.environment import check_count
from noisynet.envs.names import FAMILIES
from noisynet.evaluation import EvaluationResult, counted, make_configured_environment
from noisynet.evaluation import evaluate as play_evaluation
from noisynet.loops import Observer, Run, load_agent, open_run, open_run_folder
from noisynet.loops.async_actors import AsyncTrainer
from noisynet.loops.in_memory import MemoryRun
from noisynet.loops.process import prepare_process
from noisynet.runs import AgentFile, RunFolder, load_agent_file, save_agent_file
from noisynet.runs.stop_signals import stop_on_signals
from noisynet.state_dicts import add_prefix


@dataclass(frozen=True)
class Evaluation:
    """Result of `Agent.evaluate`.

    Attributes:
        mean: mean return of the episodes.
        standard_deviation: of the returns, with n − 1 in the divisor.
        returns: undiscounted, unclipped return of each episode [episodes].
        noise: whether the agent played with noise.
    """

    mean: float
    standard_deviation: float
    returns: NDArray[np.float64]
    noise: bool

    def __str__(self) -> str:
        mode = "with noise" if self.noise else "without noise"
        spread = f"± {self.standard_deviation:.2f}"
        return f"{self.mean:.2f} {spread} ({len(self.returns)} episodes {mode})"


class Agent:
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
        self.config = config
        self.folder = None if folder is None else Path(folder)
        self._source = None if isinstance(environment, str) else environment
        if self._source is not None:
            if isinstance(config, ActorCriticConfig):
                encode_function(self._source)  # its processes can import it
            else:
                check_single(self._source, config.num_envs)
        prepare_process()  # before anything is computed, as in a run
        with make_configured_environment(config, 1, self._source) as games:
            self._spec, self._reader = games.spec, ObservationReader(games)
        release_object(self._source)
        self.device = choose_device(device, config)
        self._agent: AnyAgent = make_agent(config, self._spec, self.device)
        self._policies: dict[bool, EvaluationPolicy] = {}
        self._memory: MemoryRun | None = None
        self._temporary: Path | None = None
        self._loaded: AgentFile | None = None  # whose weights training begins with
        self._run_steps = 0
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

    @property
    def network(self) -> nn.Module:
        """The network, with its latest weights; `learn` with a folder, or of A3C, replaces it."""
        return self._agent.online

    @property
    def steps(self) -> int:
        """Agent steps that the weights were trained for; on Atari, one has four frames."""
        return self._run_steps + (self._loaded.steps if self._loaded else 0)

    # --- training --------------------------------------------------------------------------------

    def learn(
        self, steps: int, progress: bool | None = None, callbacks: Sequence[Observer] = ()
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
            steps: agent steps of all environments together.
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
        steps = check_count("steps", steps, at_least=1)
        self._target = min(self._target, self._run_steps) + steps  # it may have stopped early
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

    # --- use -------------------------------------------------------------------------------------

    def predict(self, observation: Any, noise: bool = False) -> int | NDArray[np.int64]:
        """Choose the best action: of the highest Q, or the most probable one for A3C.

        Args:
            observation: one observation as the environment itself returns it, image or vector, or
                a batch of them. Where frames are stacked (`frame_stack`, Atari), the last ones,
                the oldest first. For Atari, MinAtar and Deep Sea, frames of
                `noisynet.envs.make_environment`.
            noise: False for the mean weights; True for a new noise sample at each call, and for
                each row of a batch.

        Returns:
            The environment's own number of the action; for a batch, an array of them [B].
        """
        outputs, is_batch = self._outputs(observation, noise)
        actions: NDArray[np.int64] = outputs.argmax(axis=1) + self._reader.first_action
        return actions if is_batch else int(actions[0])

    def q_values(self, observation: Any, noise: bool = False) -> NDArray[np.float32]:
        """Return Q of each action [A], or [B, A] for a batch; the arguments are those of `predict`.

        Raises:
            TypeError: A3C has no Q-values, see `action_probabilities`.
        """
        if not isinstance(self._agent, ValueAgent):
            raise TypeError(f"{self.config.agent} has no Q-values; use action_probabilities")
        outputs, is_batch = self._outputs(observation, noise)
        return outputs if is_batch else outputs[0]

    def action_probabilities(self, observation: Any, noise: bool = False) -> NDArray[np.float32]:
        """Return π of A3C for each action [A], or [B, A]; the arguments are those of `predict`.

        Raises:
            TypeError: value agents have no policy of their own, see `q_values`.
        """
        if not isinstance(self._agent, ActorCriticAgent):
            raise TypeError(f"{self.config.agent} has no action probabilities; use q_values")
        outputs, is_batch = self._outputs(observation, noise)
        probabilities: NDArray[np.float32] = torch.from_numpy(outputs).softmax(dim=1).numpy()
        return probabilities if is_batch else probabilities[0]

    @torch.no_grad()
    def _outputs(self, observation: Any, noise: bool) -> tuple[NDArray[np.float32], bool]:
        """Q or logits [B, A], and whether the observation is a batch."""
        agent, mode = self._agent, self._mode(noise)
        if isinstance(self.config, ActorCriticConfig) and self.config.recurrent:
            raise TypeError(
                "a recurrent agent needs every observation of an episode, not one: use evaluate, "
                "watch, or network(observation, state)"
            )
        inputs, is_batch = self._reader.read(observation)
        policy = self._policies.get(noise)
        if policy is None or policy.agent is not agent:
            policy = self._policies[noise] = EvaluationPolicy(agent, mode, "predict")
        with policy.resampled(len(inputs)):
            outputs = policy.network(agent.to_device(inputs))
        if isinstance(agent, ActorCriticAgent):
            outputs = outputs[0]
        values: NDArray[np.float32] = outputs.cpu().numpy()
        return values, is_batch

    def evaluate(self, episodes: int = 20, noise: bool | None = None) -> Evaluation:
        """Play full episodes with the latest weights; training is not changed.

        A plain value agent plays with `exploration.evaluation` as its ε, and A3C samples from its
        policy, both as in the evaluations of a run.

        Args:
            episodes: how many.
            noise: whether a noisy agent plays with noise, resampled at every action, or with its
                mean weights; None for what its evaluations are scored with (`exploration.evaluation`).
        """
        mode = self._mode(noise)
        result = self._play(check_count("episodes", episodes, at_least=1), mode)
        returns = np.array([trace.score for trace in counted(result.traces)])
        return Evaluation(result.score, result.standard_deviation, returns, mode == "on")

    def watch(
        self, path: Path | str, *, noise: bool | None = None, max_steps: int | None = None
    ) -> Path:
        """Play an episode and write it as a video, next to the effect of noise on each action.

        Args:
            path: the mp4 to write.
            noise: as for `evaluate`.
            max_steps: show only the first steps.

        Returns:
            The path.

        Raises:
            ImportError: a package of the extra `video` is missing.
            ValueError: the environment cannot show its screen.
        """
        from noisynet.watch import check_video, render_trace

        path = Path(path)
        check_video(path, max_steps=max_steps)
        (trace,) = self._play(1, self._mode(noise)).traces
        try:
            render_trace(
                trace,
                self._agent,
                trace.evaluation,
                path,
                max_steps=max_steps,
                environment=self._source,
            )
        finally:
            release_object(self._source)
        return path

    def _play(self, episodes: int, mode: Literal["on", "off"]) -> EvaluationResult:
        with make_configured_environment(self.config, 1, self._source) as game:
            result = play_evaluation(
                self._agent,
                game,
                frames=None,
                episodes=episodes,
                training_frames=self.steps * self._spec.frames_per_step,
                noise=mode,
            )
        release_object(self._source)
        return result

    def _mode(self, noise: bool | None) -> Literal["on", "off"]:
        noisy = self._agent.noisy
        if noise and noisy is None:
            raise ValueError(f"{self.config.agent} has no noise: expected noise=False")
        if noise is None and noisy is not None:
            assert noisy.evaluation is not None, "the configuration has filled it in"
            return noisy.evaluation
        return "on" if noise else "off"

    # --- files -----------------------------------------------------------------------------------

    def save(self, path: Path | str) -> Path:
        """Write the weights and the configuration as one safetensors file, for `load`.

        The replay and the optimiser are not saved: for training that goes on exactly, use
        `folder`.

        Returns:
            The path.
        """
        weights = add_prefix("online.", self._agent.online.state_dict())
        config = self.config.model_dump(mode="json")
        save_agent_file(Path(path), AgentFile(config, self.steps, weights))
        return Path(path)


def load(
    path: Path | str, environment: EnvironmentLike | None = None, *, device: str = "auto"
) -> Agent:
    """Load an agent from a file of `Agent.save`, or from a run folder.

    `learn` trains a run for longer. With a file it starts a new training, in memory, whose initial
    weights are those of the file; replay and optimiser are empty.

    Args:
        path: the file or the run folder.
        environment: the object or the function that the agent was given; None for a name.
        device: as for `Agent`.

    Raises:
        RunError: it is neither, or it is damaged.
        ValueError: the environment is missing or another one.
    """
    path = Path(path)
    if environment is not None:
        environment_name(environment)  # is it an environment at all?
    if path.is_dir():
        run = RunFolder(path)
        if not run.config_path.exists():
            load_agent(path)  # explains what is missing
        agent = Agent._of(load_config(run.read_config()), environment, device, path)
        agent._open(run)
        agent._target = agent._run_steps
        return agent
    stored = load_agent_file(path)
    agent = Agent._of(load_config(stored.config), environment, device)
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
