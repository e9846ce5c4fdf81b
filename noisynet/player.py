"""What an agent with its environment can do with its weights: play, be shown and be saved."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from noisynet.agents import (
    ActorCriticAgent,
    Agent,
    EvaluationPolicy,
    ValueAgent,
    choose_device,
    make_agent,
)
from noisynet.config import ActorCriticConfig, Config
from noisynet.envs import (
    EnvironmentLike,
    ObservationReader,
    check_single,
    encode_function,
    release_object,
)
from noisynet.envs.environment import check_count
from noisynet.evaluation import EvaluationResult, counted, evaluate, make_configured_environment
from noisynet.loops.process import prepare_process
from noisynet.runs import AgentFile, save_agent_file
from noisynet.state_dicts import add_prefix

if TYPE_CHECKING:
    from noisynet.export import Exported


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


class Player:
    """An agent in its environment.

    Args:
        config: the configuration.
        environment: the object or the function that the agent is given; None, or any name, for the
            configured name.
        device: of the network: "auto", "cpu", "cuda", …

    Attributes:
        config: the configuration.
        device: the device of the network.
    """

    def __init__(
        self,
        config: Config | ActorCriticConfig,
        environment: EnvironmentLike | None,
        device: str,
    ) -> None:
        self.config = config
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
        self._agent: Agent = make_agent(config, self._spec, self.device)
        self._policies: dict[bool, EvaluationPolicy] = {}
        self._run_steps = 0
        self._loaded: AgentFile | None = None  # whose weights training begins with

    @property
    def network(self) -> nn.Module:
        """The network, with its latest weights; `learn` with a folder, or of A3C, replaces it."""
        return self._agent.online

    @property
    def steps(self) -> int:
        """Agent steps that the weights were trained for; on Atari, one has four frames."""
        return self._run_steps + (self._loaded.steps if self._loaded else 0)

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
                mean weights; None for the mode that it is scored with (`exploration.evaluation`).
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
            path: the mp4 or gif to write.
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
            result = evaluate(
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

    def export(self, path: Path | str, *, noise_seed: int | None = None) -> Exported:
        """Write the agent as a file that runs without noisynet: agent.onnx or agent.pt2.

        Its input are observations as for `predict`, in a batch; its outputs are the actions and
        Q-values or action probabilities. The file is compared with the agent on 1,000 observations.

        Args:
            path: the file to write.
            noise_seed: draws one fixed noise sample; None for the mean weights.

        Raises:
            ValueError: the ending is another, or the agent has no noise to draw.
            ImportError: a package of the extra `export` is missing.
        """
        from noisynet.export import export_agent

        weights = "mean" if noise_seed is None else f"noise sample {noise_seed}"
        notes = {"agent": self.config.agent, "environment": self.config.environment}
        notes |= {"steps": str(self.steps), "weights": weights}
        try:
            with make_configured_environment(self.config, 1, self._source) as game:
                return export_agent(
                    self._agent, game, Path(path), noise_seed=noise_seed, notes=notes
                )
        finally:
            release_object(self._source)
