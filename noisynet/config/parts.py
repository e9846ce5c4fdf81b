"""The parts of a configuration: exploration, network, learning, optimiser, replay, evaluation."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from noisynet import paper

Count = Annotated[int, Field(gt=0)]
Probability = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
Decay = Annotated[float, Field(ge=0, lt=1)]
Sizes = Annotated[tuple[Count, ...], Field(min_length=1)]


class Part(BaseModel):
    """Refuses keys that it does not know, changes, and numbers that are not finite."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False
    )


# --- exploration ---------------------------------------------------------------------------------


class EpsilonGreedy(Part):
    """Explore by a random action with probability ε."""

    kind: Literal["epsilon-greedy"] = "epsilon-greedy"
    initial: Probability = paper.EPSILON_INITIAL
    """ε until learning starts."""
    final: Probability = paper.EPSILON_FINAL
    """ε at the end of the schedule; with `initial` also 0: no exploration at all, a control."""
    anneal_steps: Count = paper.EPSILON_ANNEAL_STEPS
    """How many steps after the start of learning ε takes to fall, linearly."""
    evaluation: Probability = paper.EPSILON_EVALUATION
    """ε while evaluating."""


class NoisyWeights(Part):
    """Explore by noise on the weights of the fully connected layers (section 3.1)."""

    kind: Literal["noisy-weights"] = "noisy-weights"
    noise: Literal["factorised", "independent"] = "factorised"
    """The kind of noise; the paper's value agents use factorised."""
    sigma0: Annotated[float, Field(ge=0)] | None = None
    """The initial noise: σ = sigma0/√p (factorised) or sigma0 itself (independent); None: the
    paper's, 0.5 or 0.017."""
    redraw: Literal["action", "update", "episode"] = "action"
    """When acting noise is redrawn: Algorithm 1 does it at every action; `episode` is for one
    environment only."""
    warm_up: Literal["noisy", "uniform"] | None = None
    """How to act before learning starts; None: noisily, but uniformly where sigma0 is a fifth of
    the paper's or less (0.1 if factorised), which would otherwise be nearly one constant action."""
    used_in: Literal["acting and learning", "acting", "learning"] = "acting and learning"
    """Where noise is used; the two halves alone are controls."""
    learn_sigma: bool = True
    """Whether σ is trained; a frozen σ is a control."""
    evaluation: Literal["on", "off"] = "on"
    """Which of the two scores, always both measured, is *the* score."""

    @model_validator(mode="after")
    def _fill_in(self) -> Self:
        papers = _sigma0_of_the_paper(self.noise)
        sigma0 = papers if self.sigma0 is None else self.sigma0
        object.__setattr__(self, "sigma0", sigma0)
        if self.warm_up is None:
            object.__setattr__(self, "warm_up", "uniform" if sigma0 <= papers / 5 else "noisy")
        return self


class EntropyBonus(Part):
    """Explore by sampling from a policy that is paid for its entropy (Eq. 6)."""

    kind: Literal["entropy-bonus"] = "entropy-bonus"
    beta: Annotated[float, Field(ge=0)] = paper.A3C_ENTROPY_WEIGHT
    """β of Eq. 6; 0: no bonus at all, a control."""


class NoisyRollouts(Part):
    """Explore by noise on the weights, one sample for each roll-out (Algorithm 2); no bonus."""

    kind: Literal["noisy-weights"] = "noisy-weights"
    noise: Literal["factorised", "independent"] = "independent"
    """The kind of noise; the paper's A3C uses independent, and factorised in its Table 2."""
    sigma0: Annotated[float, Field(ge=0)] | None = None
    """The initial noise: σ = sigma0/√p (factorised) or sigma0 itself (independent); None: the
    paper's, 0.5 or 0.017."""
    layers: Literal["all", "heads"] = "all"
    """Which layers are noisy: every fully connected one, or the policy and value heads alone; the
    paper says one (section 3.1) and the other (its first appendix)."""
    learn_sigma: bool = True
    """Whether σ is trained; a frozen σ is a control."""
    evaluation: Literal["on", "off"] = "on"
    """Which of the two scores, always both measured, is *the* score."""

    @model_validator(mode="after")
    def _fill_in(self) -> Self:
        if self.sigma0 is None:
            object.__setattr__(self, "sigma0", _sigma0_of_the_paper(self.noise))
        return self


def _sigma0_of_the_paper(noise: str) -> float:
    return paper.SIGMA0_FACTORISED if noise == "factorised" else paper.SIGMA0_INDEPENDENT


# --- optimisers ----------------------------------------------------------------------------------


class CentredRMSProp(Part):
    """The optimiser of Nature DQN, ε inside the root."""

    kind: Literal["centred-rmsprop"] = "centred-rmsprop"
    learning_rate: Positive = paper.RMSPROP_LEARNING_RATE
    decay: Decay = paper.RMSPROP_DECAY
    epsilon: Positive = paper.RMSPROP_EPSILON / paper.BATCH_SIZE**2
    """For gradients of the mean loss: the original's 0.01 is for sums over batches of 32."""


class Adam(Part):
    """Kingma & Ba 2015."""

    kind: Literal["adam"] = "adam"
    learning_rate: Positive = 1e-4
    epsilon: Positive = 1e-8


class SharedRMSProp(Part):
    """The optimiser of A3C: uncentred, ε inside the root, statistics shared by all workers."""

    kind: Literal["shared-rmsprop"] = "shared-rmsprop"
    learning_rate: Positive = paper.A3C_LEARNING_RATE
    decay: Decay = paper.A3C_RMSPROP_DECAY
    epsilon: Positive = paper.A3C_RMSPROP_EPSILON
    """For gradients of a loss summed over the roll-out."""
    anneal: bool = True
    """Whether the rate falls linearly to 0 over the budget."""


# --- networks ------------------------------------------------------------------------------------


class Network(Part):
    """The shape of the value network."""

    torso: Literal["auto", "nature", "a3c", "minatar", "flat"] = "auto"
    """The convolutions; auto chooses by the size of a frame."""
    hidden: Sizes = (512,)
    """Sizes of the hidden fully connected layers."""
    dueling: bool = False
    """Whether Q is put together from V and A (Eq. 3)."""
    trunk_gradient_scale: Positive = 1.0
    """Multiplies the gradient that enters the last convolution; 1/√2 for Dueling."""


class ActorCriticShape(Part):
    """The shape of the network of policy and value."""

    torso: Literal["auto", "nature", "a3c", "minatar", "flat"] = "auto"
    """The convolutions; auto chooses by the size of a frame, a3c for Atari's."""
    hidden: Sizes | None = None
    """Sizes of the hidden fully connected layers, which policy and value share; None: 256, but 512
    after Nature's convolutions."""
    cells: Count = paper.A3C_LSTM_CELLS
    """How many cells the LSTM has, where the agent is recurrent."""

    @model_validator(mode="after")
    def _fill_in(self) -> Self:
        if self.hidden is None:
            size = paper.NATURE_HIDDEN if self.torso == "nature" else paper.A3C_HIDDEN
            object.__setattr__(self, "hidden", (size,))
        return self


# --- learning ------------------------------------------------------------------------------------


class Learning(Part):
    """How the value network is trained."""

    loss: Literal["huber", "squared"] = "huber"
    """Huber clips the error to ±1, as Nature; the NoisyNet paper writes the squared error."""
    double_q: bool = False
    """Whether the online network selects the action that the target network values (Eq. 5)."""
    discount: Decay = paper.DISCOUNT
    n_step: Count = 1
    batch_size: Count = paper.BATCH_SIZE
    starts_steps: Count = paper.LEARNING_STARTS_STEPS
    update_period_steps: Count = paper.UPDATE_PERIOD_STEPS
    """Steps for each update; the NoisyNet text has one update for every action."""
    draws_ahead: bool = False
    """Whether the batch of an update is drawn as soon as the update before is made, so that it is
    computed while the agent acts; otherwise it is drawn when it is due (Algorithm 1)."""
    sync_target_steps: Count = paper.SYNC_TARGET_STEPS
    clip_rewards: bool = True
    """Whether rewards are clipped to ±1 in training."""
    max_gradient_norm: Positive | None = None


class ActorCriticLearning(Part):
    """How policy and value are trained (Eqs. 6 and 7)."""

    rollout_steps: Count = paper.A3C_ROLLOUT_STEPS
    """t_max: steps of each environment for every update."""
    discount: Decay = paper.DISCOUNT
    value_weight: Annotated[float, Field(ge=0)] = paper.A3C_VALUE_WEIGHT
    """Multiplies ½(Q̂ − V)², so that λ of the paper, which has no ½, is half of it."""
    clip_rewards: bool = True
    """Whether rewards are clipped to ±1 in training."""
    max_gradient_norm: Positive | None = paper.A3C_MAX_GRADIENT_NORM
    """The longest gradient of one roll-out; None: any."""


# --- replay and evaluation -----------------------------------------------------------------------


class UniformReplay(Part):
    """Every stored transition is as likely as any other."""

    kind: Literal["uniform"] = "uniform"
    capacity_steps: Count = paper.REPLAY_STEPS


class PrioritisedReplay(Part):
    """Proportional prioritisation (Schaul et al. 2016), which Algorithm 1 allows for."""

    kind: Literal["prioritised"] = "prioritised"
    capacity_steps: Count = paper.REPLAY_STEPS
    alpha: Probability = 0.6
    beta_initial: Probability = 0.4
    """The exponent of the importance weights; it rises linearly to 1 over the budget."""


class Evaluation(Part):
    """The protocol: learning is suspended and the latest agent plays."""

    period_frames: Count = paper.EVALUATION_PERIOD_FRAMES
    frames: Count = paper.EVALUATION_FRAMES
    """How long each evaluation plays, with noise on and again with noise off."""
