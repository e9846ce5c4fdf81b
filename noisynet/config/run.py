"""The configuration of a run, of a value agent or of an actor-critic agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self, get_args

from pydantic import Field, field_validator, model_validator

from noisynet import paper
from noisynet.config.agents import ActorCriticAgentName, ValueAgentName
from noisynet.config.compute import Compute
from noisynet.config.contradictions import contradictions
from noisynet.config.sections import (
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
    PrioritisedReplay,
    Section,
    SharedRMSProp,
    UniformReplay,
)
from noisynet.envs.make import resolve_environment
from noisynet.envs.names import family_of

PresetName = Literal[
    "paper", "minatar", "minatar-fast", "pong-fast", "classic", "cartpole", "acrobot", "pixels"
]
PRESETS: Final[tuple[str, ...]] = get_args(PresetName)


class RunConfig(Section):
    """The settings of every run."""

    agent: str
    """What learns; see `noisynet agents`."""
    environment: str
    """What it plays; see `noisynet envs`."""
    environment_options: dict[str, Any] = Field(default_factory=dict)
    """Options of the environment's family, such as `sticky_action_prob` of MinAtar, or `resize`,
    `greyscale`, `frame_stack` and `parallel` of Gymnasium."""
    seed: Annotated[int, Field(ge=0, lt=2**31)]
    """The seed of all random streams."""
    frames: Count
    """The training budget in emulator frames."""
    compute: Compute = "auto"
    """auto: compiled kernels where they are known to be faster on a CPU, otherwise PyTorch. torch:
    plain PyTorch; numba is never imported. compile: torch.compile, for value agents."""
    threads: Count | None = None
    """The number of PyTorch threads; None: chosen when the run starts, then stored with it."""
    evaluation: Evaluation = Evaluation()
    max_episode_frames: Count | None = paper.MAX_EPISODE_FRAMES
    """Frames after which an episode is truncated; None: the environment's own limit."""
    checkpoint_period_frames: Count = 32_000
    """Frames between checkpoints."""
    log_period_steps: Count = 1_000
    """Steps between rows of training metrics."""

    @field_validator("environment")
    @classmethod
    def _known_environment(cls, name: str) -> str:
        return resolve_environment(name)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if problems := contradictions(flat_settings(dict(self))):
            raise ValueError("\n".join(problems))
        return self


class Config(RunConfig):
    """A run of a value agent: DQN, Dueling, C51 or Rainbow, plain or noisy."""

    agent: ValueAgentName
    num_envs: Count = 1
    """Environments that are stepped together."""
    exploration: Annotated[EpsilonGreedy | NoisyWeights, Field(discriminator="kind")]
    network: Network = Network()
    learning: Learning = Learning()
    optimiser: Annotated[CentredRMSProp | Adam, Field(discriminator="kind")] = CentredRMSProp()
    replay: Annotated[UniformReplay | PrioritisedReplay, Field(discriminator="kind")] = (
        UniformReplay()
    )
    checkpoint_period_frames: Count = 32_000
    """Frames between checkpoints. The replay's files also hold what the last two refer to; this
    period keeps them below 7.2 GB on Atari."""


class ActorCriticConfig(RunConfig):
    """A run of A3C, plain or noisy."""

    agent: ActorCriticAgentName
    workers: Annotated[Count, Field(le=512)] = paper.A3C_WORKERS
    """The number of processes, at most 512; each acts and learns on shared weights."""
    envs_per_worker: Count = 1
    """Environments per worker, each with its own noise sample. Learning rate, ε of RMSProp and the
    longest gradient are those of a single environment: an update of N of them moves the weights as
    far as N updates would."""
    recurrent: bool = False
    """Whether an LSTM follows the hidden layers."""
    noisy_lstm: bool = False
    """Whether the LSTM of a noisy agent is noisy, too; the paper leaves this to future work."""
    exploration: Annotated[EntropyBonus | NoisyRollouts, Field(discriminator="kind")]
    network: ActorCriticShape = ActorCriticShape()
    learning: ActorCriticLearning = ActorCriticLearning()
    optimiser: SharedRMSProp = SharedRMSProp()
    checkpoint_period_frames: Count = 400_000
    """Frames between checkpoints, which hold no replay; one or two minutes on Atari."""


def flat_settings(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration's fields by dotted key."""
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, Section):
            flat |= {f"{name}.{inner}": setting for inner, setting in value}
        else:
            flat[name] = value
    return flat


def has_large_convolutions(config: Config | ActorCriticConfig) -> bool:
    """Whether the network has convolutions for frames as large as Atari's.

    Where the frames of an environment are known only when it is made, as in Gymnasium, `auto` is
    taken for small, unless its images are resized.
    """
    torso = config.network.torso
    if torso == "auto":
        if "resize" in config.environment_options:
            return True
        return family_of(config.environment).has_large_frames
    return torso not in ("minatar", "flat")
