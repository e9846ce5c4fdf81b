"""The sections of a configuration, such as exploration, network and replay."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple, Self, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from noisynet import paper
from noisynet.envs.names import suggestion

Count = Annotated[int, Field(gt=0)]
Probability = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
Decay = Annotated[float, Field(ge=0, lt=1)]
Sizes = Annotated[
    tuple[Count, ...],
    Field(min_length=1),
    BeforeValidator(lambda size: (size,) if isinstance(size, int) else size),
]
Distribution = Literal["gaussian", "uniform", "rademacher"]
NoiseFunction = Literal["signed_sqrt", "identity"]
UsedIn = Literal["acting and learning", "acting", "learning"]


class Section(BaseModel):
    """Frozen; refuses unknown keys and numbers that are not finite."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False
    )


# --- exploration ---------------------------------------------------------------------------------


class EpsilonGreedy(Section):
    """Explore by a random action with probability ε."""

    kind: Literal["epsilon-greedy"] = "epsilon-greedy"
    initial: Probability = paper.EPSILON_INITIAL
    """ε until learning starts."""
    final: Probability = paper.EPSILON_FINAL
    """ε at the end of the schedule; 0 with `initial=0` is the control without exploration."""
    anneal_steps: Count = paper.EPSILON_ANNEAL_STEPS
    """Steps from the start of learning over which ε falls linearly."""
    evaluation: Probability = paper.EPSILON_EVALUATION
    """ε in evaluations."""


class NoisySection(Section):
    """Noise on the weights of fully connected layers."""

    kind: Literal["noisy-weights"] = "noisy-weights"
    noise: Literal["factorised", "independent"]
    """The kind of noise."""
    sigma0: Annotated[float, Field(ge=0)] | None = None
    """Initial σ = sigma0/√inputs (factorised) or sigma0 (independent); None for the paper's."""
    distribution: Distribution = "gaussian"
    """Of ε, with mean 0 and variance 1. The paper has the Gaussian, and calls it no
    restriction (section 1)."""
    f: NoiseFunction = "signed_sqrt"
    """Shapes factorised noise: the paper's sgn(x)√|x|, or x itself."""
    used_in: UsedIn = "acting and learning"
    """Where noise is used. The other two are controls: with `acting`, the loss has mean weights, so
    that σ has no gradient and stays frozen; with `learning`, the agent acts on mean weights."""
    learn_sigma: bool = True
    """Whether σ is trained; false is the control with noise everywhere and σ frozen."""
    evaluation: Literal["on", "off"] | None = None
    """Which evaluation gives the run's score; both are always measured. None: on, but off with
    used_in=learning, where the agent never acts noisily."""

    @model_validator(mode="after")
    def _fill_in(self) -> Self:
        if self.sigma0 is None:
            object.__setattr__(self, "sigma0", default_sigma0(self.noise))
        if self.evaluation is None:
            evaluation = "off" if self.used_in == "learning" else "on"
            object.__setattr__(self, "evaluation", evaluation)
        return self


class NoisyWeights(NoisySection):
    """Explore by noise on the weights of the fully connected layers (section 3.1)."""

    noise: Literal["factorised", "independent"] = "factorised"
    """The kind of noise; the paper's value agents use factorised noise."""
    redraw: Literal["action", "update", "episode"] = "action"
    """When acting noise is resampled; Algorithm 1 does so at every action. `episode` expects one
    environment."""
    warm_up: Literal["noisy", "uniform"] | None = None
    """How to act before learning starts. None: noisily, but uniformly if sigma0 is at most a fifth
    of the paper's, because such an agent almost always repeats one action."""

    @model_validator(mode="after")
    def _choose_warm_up(self) -> Self:
        if self.warm_up is None:
            assert self.sigma0 is not None
            small = self.sigma0 <= default_sigma0(self.noise) / 5
            object.__setattr__(self, "warm_up", "uniform" if small else "noisy")
        return self


class NoisyRollouts(NoisySection):
    """Explore by noise on the weights, one sample per roll-out (Algorithm 2); no entropy bonus."""

    noise: Literal["factorised", "independent"] = "independent"
    """The kind of noise; the paper's A3C uses independent noise, in Table 2 also factorised."""
    layers: Literal["all", "heads"] = "all"
    """Which layers are noisy: all fully connected layers (section 3.1), or the policy and value
    heads only (appendix A)."""


class EntropyBonus(Section):
    """Explore by sampling from the policy, with an entropy bonus in the loss (Eq. 6)."""

    kind: Literal["entropy-bonus"] = "entropy-bonus"
    beta: Annotated[float, Field(ge=0)] = paper.A3C_ENTROPY_WEIGHT
    """β of Eq. 6; 0 is the control without a bonus."""


def default_sigma0(noise: str) -> float:
    """The paper's σ0 for a kind of noise (section 3.2)."""
    return paper.SIGMA0_FACTORISED if noise == "factorised" else paper.SIGMA0_INDEPENDENT


# --- optimisers ----------------------------------------------------------------------------------


class CentredRMSProp(Section):
    """The optimiser of Nature DQN, ε inside the root."""

    kind: Literal["centred-rmsprop"] = "centred-rmsprop"
    learning_rate: Positive = paper.RMSPROP_LEARNING_RATE
    """The step size."""
    decay: Decay = paper.RMSPROP_DECAY
    """Of both moving averages."""
    epsilon: Positive = paper.RMSPROP_EPSILON / paper.BATCH_SIZE**2
    """For gradients of the mean loss: the original's ε is for losses summed over the batch."""


class Adam(Section):
    """Kingma & Ba 2015."""

    kind: Literal["adam"] = "adam"
    learning_rate: Positive = 1e-4
    """The step size."""
    epsilon: Positive = paper.ADAM_EPSILON
    """Added to the root."""


class SharedRMSProp(Section):
    """The optimiser of A3C: uncentred, ε inside the root, statistics shared by all workers."""

    kind: Literal["shared-rmsprop"] = "shared-rmsprop"
    learning_rate: Positive = paper.A3C_LEARNING_RATE
    """The step size at the start."""
    decay: Decay = paper.A3C_RMSPROP_DECAY
    """Of the moving average of squared gradients."""
    epsilon: Positive = paper.A3C_RMSPROP_EPSILON
    """For gradients of a loss summed over the roll-out."""
    initial_square: Annotated[float, Field(ge=0)] = 0.0
    """What the moving average of squared gradients begins with. With 0 and a small ε, the first
    steps are 1/√(1 − decay) times as long as later ones; 1 makes them short, as in TensorFlow."""
    anneal: bool = True
    """Whether the learning rate falls linearly to 0 over the budget."""


# --- networks ------------------------------------------------------------------------------------

TorsoName = Literal["auto", "nature", "a3c", "minatar", "flat"]


class Convolution(NamedTuple):
    """One convolution, followed by a ReLU."""

    filters: int
    kernel: int
    stride: int
    padding: int


def _checked(value: Any) -> Any:
    """A name, or a tuple of convolutions."""
    if isinstance(value, str):
        if value in get_args(TorsoName):
            return value
        hint = suggestion(value, get_args(TorsoName))
        raise ValueError(f"expected {_EXPECTED}, got {value!r}.{hint}")
    if not isinstance(value, list | tuple) or not value:
        raise ValueError(f"expected {_EXPECTED}, got {value!r}")
    return tuple(_checked_convolution(layer) for layer in value)


def _checked_convolution(layer: Any) -> Convolution:
    if not isinstance(layer, list | tuple) or len(layer) != len(Convolution._fields):
        raise ValueError(f"expected a convolution as {_LAYER}, got {layer!r}")
    for name, number in zip(Convolution._fields, layer, strict=True):
        least = 0 if name == "padding" else 1
        if type(number) is not int or number < least:
            raise ValueError(
                f"expected the {name} of a convolution to be an integer of at least {least}, "
                f"got {number!r} in {list(layer)}"
            )
    return Convolution(*layer)


_LAYER = f"[{', '.join(Convolution._fields)}]"
_EXPECTED = f"{', '.join(get_args(TorsoName))} or a list of convolutions {_LAYER}"

Torso = Annotated[TorsoName | tuple[Convolution, ...], BeforeValidator(_checked)]
"""What `network.torso` accepts, for example "nature" or [[16, 8, 4, 0], [32, 4, 2, 1]]."""


class Network(Section):
    """The value network."""

    torso: Torso = "auto"
    """The convolutions: a name, or a list of [filters, kernel, stride, padding]. auto: nature for
    frames as large as Atari's, minatar for smaller images, flat for vectors."""
    hidden: Sizes = (paper.NATURE_HIDDEN,)
    """Sizes of the hidden fully connected layers."""
    dueling: bool = False
    """Whether Q is the sum of V and centred A (Eq. 3)."""
    trunk_gradient_scale: Positive = 1.0
    """Multiplies the gradient that enters the last convolution; 1/√2 for Dueling."""
    atoms: Annotated[int, Field(ge=2)] | None = None
    """Atoms of each action's distribution over returns (C51, Rainbow); None: plain Q-values."""
    v_min: float = -paper.C51_VALUE_LIMIT
    """The lowest atom."""
    v_max: float = paper.C51_VALUE_LIMIT
    """The highest atom."""

    @property
    def support(self) -> tuple[float, ...]:
        """The atoms, evenly spaced; none for plain Q-values."""
        if self.atoms is None:
            return ()
        width = (self.v_max - self.v_min) / (self.atoms - 1)
        return tuple(self.v_min + i * width for i in range(self.atoms))


class ActorCriticShape(Section):
    """The network of policy and value."""

    torso: Torso = "auto"
    """The convolutions: a name, or a list of [filters, kernel, stride, padding]. auto: nature for
    frames as large as Atari's, minatar for smaller images, flat for vectors."""
    hidden: Sizes | None = None
    """Sizes of the hidden fully connected layers, which policy and value share; None: Nature's 512,
    or 256 with torso=a3c."""
    cells: Count = paper.A3C_LSTM_CELLS
    """The number of LSTM cells of a recurrent agent."""
    initial_weights: Literal["uniform", "orthogonal"] = "uniform"
    """Of plain layers: PyTorch's U[±1/√inputs], or orthogonal, which keeps what differs between two
    images as large as they are. Noisy layers always have the paper's."""
    centre_images: bool = False
    """Whether each observation's own mean is subtracted from it: a bright background, as Pong's,
    otherwise outweighs what moves before it."""

    @model_validator(mode="after")
    def _fill_in(self) -> Self:
        if self.hidden is None:
            size = paper.A3C_HIDDEN if self.torso == "a3c" else paper.NATURE_HIDDEN
            object.__setattr__(self, "hidden", (size,))
        return self


# --- learning ------------------------------------------------------------------------------------


class Learning(Section):
    """How the value network is trained."""

    loss: Literal["huber", "squared"] = "huber"
    """Of Q-values: huber clips the gradient of the TD error δ to ±1, as Nature's code does; squared
    is ½δ², the NoisyNet paper's loss up to the factor. Distributions have the cross-entropy."""
    double_q: bool = False
    """Whether the online network selects the action that the target network evaluates (Eq. 5)."""
    discount: Decay = paper.DISCOUNT
    """γ."""
    n_step: Count = 1
    """Rewards that are summed before a target value is bootstrapped."""
    batch_size: Count = paper.BATCH_SIZE
    """Transitions per update."""
    starts_steps: Count = paper.LEARNING_STARTS_STEPS
    """Steps before the first update."""
    update_period_steps: Count = paper.UPDATE_PERIOD_STEPS
    """Steps per update; the NoisyNet text has one update per step."""
    sync_target_steps: Count = paper.SYNC_TARGET_STEPS
    """Steps, not updates, between copies to the target network."""
    clip_rewards: bool = True
    """Whether rewards are clipped to ±1 in training."""
    max_gradient_norm: Positive | None = None
    """The gradient of the mean loss is clipped to this norm; None: not clipped."""


class ActorCriticLearning(Section):
    """How policy and value are trained (Eqs. 6 and 7)."""

    rollout_steps: Count = paper.A3C_ROLLOUT_STEPS
    """t_max: steps of each environment per update."""
    discount: Decay = paper.DISCOUNT
    """γ."""
    value_weight: Annotated[float, Field(ge=0)] = paper.A3C_VALUE_WEIGHT
    """Multiplies ½(Q̂ − V)²; the paper's λ, without the ½, is half of it."""
    clip_rewards: bool = True
    """Whether rewards are clipped to ±1 in training."""
    max_gradient_norm: Positive | None = paper.A3C_MAX_GRADIENT_NORM
    """The gradient of a roll-out is clipped to this norm; None: not clipped."""


# --- replay and evaluation -----------------------------------------------------------------------


class UniformReplay(Section):
    """Transitions are sampled uniformly."""

    kind: Literal["uniform"] = "uniform"
    capacity_steps: Count = paper.REPLAY_STEPS
    """Steps that are kept; older ones are overwritten."""


class PrioritisedReplay(Section):
    """Proportional prioritisation (Schaul et al. 2016), which Algorithm 1 mentions."""

    kind: Literal["prioritised"] = "prioritised"
    capacity_steps: Count = paper.REPLAY_STEPS
    """Steps that are kept; older ones are overwritten."""
    alpha: Probability = paper.PRIORITY_EXPONENT
    """The exponent of the priorities."""
    beta_initial: Probability = paper.PRIORITY_BETA_INITIAL
    """The exponent of the importance weights, which rises linearly to 1 over the budget."""


class Evaluation(Section):
    """The evaluation protocol: learning is suspended and the latest agent plays (section 4.1)."""

    period_frames: Count = paper.EVALUATION_PERIOD_FRAMES
    """Training frames between evaluations."""
    frames: Count = paper.EVALUATION_FRAMES
    """Frames of each evaluation; noisy agents play as many again with noise off."""
