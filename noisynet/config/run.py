"""The configuration of a run, of a value agent or of an actor-critic agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self, get_args

from pydantic import Field, field_validator, model_validator

from noisynet import paper
from noisynet.config.parts import (
    ActorCriticLearning,
    ActorCriticShape,
    Adam,
    CentredRMSProp,
    Count,
    EntropyBonus,
    EpsilonGreedy,
    Evaluation,
    Learning,
    Network,
    NoisyRollouts,
    NoisyWeights,
    Part,
    PrioritisedReplay,
    SharedRMSProp,
    UniformReplay,
)
from noisynet.contradictions import contradictions
from noisynet.envs.make import parse_environment

ValueAgentName = Literal["dqn", "dueling", "noisynet-dqn", "noisynet-dueling"]
ActorCriticAgentName = Literal["a3c", "noisynet-a3c", "noisynet-a3c-factorised"]
PresetName = Literal["paper", "minatar", "pong-fast", "classic"]

VALUE_AGENTS: Final[tuple[str, ...]] = get_args(ValueAgentName)
ACTOR_CRITIC_AGENTS: Final[tuple[str, ...]] = get_args(ActorCriticAgentName)
AGENTS: Final[tuple[str, ...]] = VALUE_AGENTS + ACTOR_CRITIC_AGENTS
PRESETS: Final[tuple[str, ...]] = get_args(PresetName)


class RunConfig(Part):
    """What the configuration of every run has."""

    agent: str
    environment: str
    environment_options: dict[str, Any] = Field(default_factory=dict)
    """What the environment's family takes, for example `{"sticky_action_prob": 0.0}`."""
    seed: Annotated[int, Field(ge=0, lt=2**31)]
    frames: Count
    """The budget, in frames of the emulator."""
    evaluation: Evaluation = Evaluation()
    max_episode_frames: Count | None = paper.MAX_EPISODE_FRAMES
    """Frames after which an episode is truncated; None: the environment's own limit."""
    checkpoint_period_frames: Count = 32_000
    log_period_steps: Count = 1_000
    threads: Count | None = None
    """Threads of torch; None: chosen when the run starts, and stored with it."""

    @field_validator("environment")
    @classmethod
    def _known_environment(cls, name: str) -> str:
        parse_environment(name)
        return name

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if problems := contradictions(flat_settings(dict(self))):
            raise ValueError("\n".join(problems))
        return self


class Config(RunConfig):
    """A run of a value agent: DQN or Dueling, plain or noisy."""

    agent: ValueAgentName
    num_envs: Count = 1
    exploration: Annotated[EpsilonGreedy | NoisyWeights, Field(discriminator="kind")]
    network: Network = Network()
    learning: Learning = Learning()
    optimiser: Annotated[CentredRMSProp | Adam, Field(discriminator="kind")] = CentredRMSProp()
    replay: Annotated[UniformReplay | PrioritisedReplay, Field(discriminator="kind")] = (
        UniformReplay()
    )
    checkpoint_period_frames: Count = 32_000
    """The replay's files have room for twice as much; on Atari this keeps them below 7.2 GB."""


class ActorCriticConfig(RunConfig):
    """A run of A3C, plain or noisy."""

    agent: ActorCriticAgentName
    workers: Count = paper.A3C_WORKERS
    """How many processes act and learn, each by itself, on shared weights."""
    envs_per_worker: Count = 1
    """How many environments a worker plays at once, each with noise of its own; the loss of a
    roll-out is their mean, so that an update has the size of one environment's."""
    recurrent: bool = False
    """Whether an LSTM stands between the hidden layers and the heads."""
    noisy_lstm: bool = False
    """Whether the LSTM of a noisy agent is noisy too, which the paper leaves to future work."""
    exploration: Annotated[EntropyBonus | NoisyRollouts, Field(discriminator="kind")]
    network: ActorCriticShape = ActorCriticShape()
    learning: ActorCriticLearning = ActorCriticLearning()
    optimiser: SharedRMSProp = SharedRMSProp()
    checkpoint_period_frames: Count = 400_000
    """Nothing but weights, statistics and streams is written; a minute or two of Atari."""


def flat_settings(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration's fields by dotted key."""
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, Part):
            flat |= {f"{name}.{inner}": setting for inner, setting in value}
        else:
            flat[name] = value
    return flat
