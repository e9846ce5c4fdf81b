"""Everything that decides the result of a run: typed, validated, frozen.

A configuration is the agent's settings of the papers, then a preset's differences, then the user's.
Nothing here imports torch, so that a bad command is refused at once.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Annotated, Any, Final, Literal, Self, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

from noisynet import paper, presets
from noisynet.contradictions import contradictions
from noisynet.envs.make import parse_environment

AgentName = Literal["dqn", "dueling", "noisynet-dqn", "noisynet-dueling"]
PresetName = Literal["paper", "minatar", "pong-fast", "classic"]

AGENTS: Final[tuple[str, ...]] = get_args(AgentName)
PRESETS: Final[tuple[str, ...]] = get_args(PresetName)

Count = Annotated[int, Field(gt=0)]
Probability = Annotated[float, Field(ge=0, le=1)]


class ConfigError(ValueError):
    """A configuration that cannot be; the message lists every error."""


class _Part(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False
    )


class EpsilonGreedy(_Part):
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


class NoisyWeights(_Part):
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
        factorised = self.noise == "factorised"
        papers = paper.SIGMA0_FACTORISED if factorised else paper.SIGMA0_INDEPENDENT
        sigma0 = papers if self.sigma0 is None else self.sigma0
        object.__setattr__(self, "sigma0", sigma0)
        if self.warm_up is None:
            object.__setattr__(self, "warm_up", "uniform" if sigma0 <= papers / 5 else "noisy")
        return self


class CentredRMSProp(_Part):
    """The optimiser of Nature DQN, ε inside the root."""

    kind: Literal["centred-rmsprop"] = "centred-rmsprop"
    learning_rate: Annotated[float, Field(gt=0)] = paper.RMSPROP_LEARNING_RATE
    decay: Annotated[float, Field(ge=0, lt=1)] = paper.RMSPROP_DECAY
    epsilon: Annotated[float, Field(gt=0)] = paper.RMSPROP_EPSILON / paper.BATCH_SIZE**2
    """For gradients of the mean loss: the original's 0.01 is for sums over batches of 32."""


class Adam(_Part):
    """Kingma & Ba 2015."""

    kind: Literal["adam"] = "adam"
    learning_rate: Annotated[float, Field(gt=0)] = 1e-4
    epsilon: Annotated[float, Field(gt=0)] = 1e-8


class Network(_Part):
    """The shape of the value network."""

    torso: Literal["auto", "nature", "minatar", "flat"] = "auto"
    """The convolutions; auto chooses by the size of a frame."""
    hidden: Annotated[tuple[Count, ...], Field(min_length=1)] = (512,)
    """Sizes of the hidden fully connected layers."""
    dueling: bool = False
    """Whether Q is put together from V and A (Eq. 3)."""
    trunk_gradient_scale: Annotated[float, Field(gt=0)] = 1.0
    """Multiplies the gradient that enters the last convolution; 1/√2 for Dueling."""


class Learning(_Part):
    """How the value network is trained."""

    loss: Literal["huber", "squared"] = "huber"
    """Huber clips the error to ±1, as Nature; the NoisyNet paper writes the squared error."""
    double_q: bool = False
    """Whether the online network selects the action that the target network values (Eq. 5)."""
    discount: Annotated[float, Field(ge=0, lt=1)] = paper.DISCOUNT
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
    max_gradient_norm: Annotated[float, Field(gt=0)] | None = None


class UniformReplay(_Part):
    """Every stored transition is as likely as any other."""

    kind: Literal["uniform"] = "uniform"
    capacity_steps: Count = paper.REPLAY_STEPS


class PrioritisedReplay(_Part):
    """Proportional prioritisation (Schaul et al. 2016), which Algorithm 1 allows for."""

    kind: Literal["prioritised"] = "prioritised"
    capacity_steps: Count = paper.REPLAY_STEPS
    alpha: Probability = 0.6
    beta_initial: Probability = 0.4
    """The exponent of the importance weights; it rises linearly to 1 over the budget."""


class Evaluation(_Part):
    """The protocol: learning is suspended and the latest agent plays."""

    period_frames: Count = paper.EVALUATION_PERIOD_FRAMES
    frames: Count = paper.EVALUATION_FRAMES
    """How long each evaluation plays, with noise on and again with noise off."""


class Config(_Part):
    """A run."""

    agent: AgentName
    environment: str
    environment_options: dict[str, Any] = Field(default_factory=dict)
    """What the environment's family takes, for example `{"sticky_action_prob": 0.0}`."""
    seed: Annotated[int, Field(ge=0, lt=2**31)]
    frames: Count
    """The budget, in frames of the emulator."""
    num_envs: Count = 1
    exploration: Annotated[EpsilonGreedy | NoisyWeights, Field(discriminator="kind")]
    network: Network = Network()
    learning: Learning = Learning()
    optimiser: Annotated[CentredRMSProp | Adam, Field(discriminator="kind")] = CentredRMSProp()
    replay: Annotated[UniformReplay | PrioritisedReplay, Field(discriminator="kind")] = (
        UniformReplay()
    )
    evaluation: Evaluation = Evaluation()
    max_episode_frames: Count | None = paper.MAX_EPISODE_FRAMES
    """Frames after which an episode is truncated; None: the environment's own limit."""
    checkpoint_period_frames: Count = 32_000
    """The replay's files have room for twice as much; on Atari this keeps them below 7.2 GB."""
    log_period_steps: Count = 1_000

    @field_validator("environment")
    @classmethod
    def _known_environment(cls, name: str) -> str:
        parse_environment(name)
        return name

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if problems := contradictions(_flat(dict(self))):
            raise ValueError("\n".join(problems))
        return self


_EPSILON_ONLY: Final = {f"exploration.{name}" for name in EpsilonGreedy.model_fields} - {
    "exploration.kind"
}


def build_config(
    agent: str,
    environment: str,
    *,
    frames: int | None = None,
    seed: int = 0,
    preset: str | None = None,
    settings: Iterable[str] = (),
) -> Config:
    """The configuration of a run, from what stands on the command line.

    Args:
        agent: one of `AGENTS`.
        environment: such as "atari/pong".
        frames: the budget; None for the preset's.
        seed: decides every random stream.
        preset: one of `PRESETS`; None for the one of the environment's family.
        settings: `key=value` pairs over everything else, keys dotted: "learning.discount=0.9".

    Raises:
        ConfigError: listing everything that is wrong, with the nearest valid names.
    """
    errors: list[str] = []
    flat: dict[str, Any] = {"agent": agent, "environment": environment, "seed": seed}
    if agent not in AGENTS:
        errors.append(_unknown("agent", agent, AGENTS))
        # The settings are judged as of the agent that was probably meant.
        agent = next(iter(_nearest(agent, AGENTS)), "dqn")
    default_preset = presets.DEFAULT_PRESETS.get(environment.partition("/")[0], "paper")
    if preset is None:
        preset = default_preset
    elif preset not in PRESETS:
        errors.append(_unknown("preset", preset, PRESETS))
        preset = next(iter(_nearest(preset, PRESETS)), default_preset)  # likewise
    noisy = agent.startswith("noisynet")
    layers = [presets.DEFAULT_KINDS, presets.AGENT_SETTINGS[agent]]
    layers += [presets.DUELING_SETTINGS] if "dueling" in agent else []
    layers.append(presets.PRESET_SETTINGS[preset])
    for layer in layers:
        applicable = {k: v for k, v in layer.items() if not (noisy and k in _EPSILON_ONLY)}
        flat = _overridden(flat, applicable)
    if frames is not None:
        flat["frames"] = frames
    given: dict[str, Any] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key.strip():
            errors.append(f"--set expected key=value, got {setting!r}")
        else:
            given |= _by_dotted_keys(key.strip(), _parse_value(value.strip()))
    return _validated(_overridden(flat, given), errors)


def _by_dotted_keys(key: str, value: Any) -> dict[str, Any]:
    """A part that is given whole, such as replay={"kind": …}, is given field by field."""
    parts = ("exploration", "network", "optimiser", "replay", "learning", "evaluation")
    if key not in parts or not isinstance(value, dict):
        return {key: value}
    return {f"{key}.{field}": of_field for field, of_field in value.items()}


# What outlives a change of kind, because it means the same to every kind. The rate and the ε that
# both optimisers have are tuned to one: who asks for Adam expects Adam's own, not RMSProp's.
_OF_EVERY_KIND: Final = {"replay.capacity_steps"}


def _overridden(flat: dict[str, Any], layer: Mapping[str, Any]) -> dict[str, Any]:
    """`flat` with `layer` over it; where the layer changes a kind, the old kind's settings go."""
    for key, value in layer.items():
        part, _, last = key.rpartition(".")
        if last == "kind" and flat.get(key) != value:
            flat = {
                k: v for k, v in flat.items() if k in _OF_EVERY_KIND or not k.startswith(f"{part}.")
            }
    return flat | dict(layer)


def load_config(stored: Mapping[str, Any]) -> Config:
    """The configuration that a run folder holds."""
    return _validated(dict(stored), [])


def parse_count(text: str) -> int:
    """A whole number that may be written 10M, 250k or 1e6."""
    match = re.fullmatch(r"(\d[\d_]*(?:\.\d+)?(?:e\d{1,2})?)([kKmM]?)", text.strip())
    if match:  # exactly: 1.001 * 1000 is not 1001 in binary
        scale = {"": 1, "k": 1_000, "m": 1_000_000}[match[2].lower()]
        value = Fraction(match[1].replace("_", "")) * scale
        if value >= 1 and value.denominator == 1:
            return value.numerator
    raise ValueError(f"expected a positive whole number such as 500000, 500k or 10M, got {text!r}")


def _parse_value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        try:
            return parse_count(text)
        except ValueError:
            return text


def _validated(flat: dict[str, Any], errors: list[str]) -> Config:
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        *parents, last = key.split(".")
        place = nested
        for parent in parents:
            place = place.setdefault(parent, {})
            if not isinstance(place, dict):
                break
        if isinstance(place, dict):
            place[last] = value
        else:
            errors.append(f"{key}: {'.'.join(parents)} is a value and has no parts")
    try:
        config = Config.model_validate(nested)
    except ValidationError as error:
        found = error.errors()
        errors += [_explain(one, nested) for one in found]
        # pydantic compares fields only where each is valid by itself.
        wrong = {".".join(_path(one)[:2]) for one in found if one["loc"]}
        errors += contradictions(_valid_settings(nested, wrong)) if wrong else []
    if errors:
        raise ConfigError("\n".join(dict.fromkeys(errors)))
    return config


def _valid_settings(nested: dict[str, Any], wrong: set[str]) -> dict[str, Any]:
    """Every field but the wrong ones, by dotted key; the default where nothing is given."""
    fields: dict[str, Any] = {}
    for name, field in Config.model_fields.items():
        if name in wrong:
            continue
        if name in nested:
            given = nested[name]
            if isinstance(given, dict):
                given = {k: v for k, v in given.items() if f"{name}.{k}" not in wrong}
            fields[name] = TypeAdapter(field.rebuild_annotation()).validate_python(given)
        else:
            fields[name] = field.get_default(call_default_factory=True)
    return {key: value for key, value in _flat(fields).items() if key not in wrong}


def _flat(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration's fields by dotted key."""
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, _Part):
            flat |= {f"{name}.{inner}": setting for inner, setting in value}
        else:
            flat[name] = value
    return flat


def _path(error: Any) -> list[str]:
    """Where one of pydantic's errors is, as in a dotted key."""
    path = [str(part) for part in error["loc"]]
    if path and path[0] in _KINDS:
        del path[1:2]  # the kind, which is no part of the key
    return path


def _explain(error: Any, nested: dict[str, Any]) -> str:
    """One line for one of pydantic's errors, with the nearest valid key or choice."""
    path = _path(error)
    key = ".".join(path)
    if error["type"] == "extra_forbidden":
        known = list(_known_keys(nested))
        near = difflib.get_close_matches(key, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        return f"unknown key {key!r}{hint}"
    if key == "agent":
        return _unknown("agent", str(error["input"]), AGENTS)
    if error["type"] == "union_tag_invalid":
        return _not_a_choice(f"{key}.kind", error["input"]["kind"], list(_KINDS[key]))
    if error["type"] == "literal_error":
        part = _part(path[0], nested)
        assert part is not None  # the agent's name is the only other choice
        return _not_a_choice(key, error["input"], _choices(part.model_fields[path[1]].annotation))
    message = error["msg"].removeprefix("Value error, ")
    if not key or error["type"] == "value_error":
        return f"{key}: {message}" if key and key != "environment" else message
    return f"{key}: {message}, got {error['input']!r}"


def _not_a_choice(key: str, came: Any, choices: list[str]) -> str:
    near = _nearest(came, choices) if isinstance(came, str) else []
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"{key}: expected {' or '.join(map(repr, choices))}, got {came!r}{hint}"


def _choices(annotation: Any) -> list[str]:
    """The texts of a `Literal`, which may stand in a union."""
    found: list[str] = []
    for argument in get_args(annotation):
        found += [argument] if isinstance(argument, str) else _choices(argument)
    return found


_KINDS: Final[dict[str, dict[str, type[_Part]]]] = {
    "exploration": {"epsilon-greedy": EpsilonGreedy, "noisy-weights": NoisyWeights},
    "optimiser": {"centred-rmsprop": CentredRMSProp, "adam": Adam},
    "replay": {"uniform": UniformReplay, "prioritised": PrioritisedReplay},
}
_FIXED: Final[dict[str, type[_Part]]] = {
    "network": Network,
    "learning": Learning,
    "evaluation": Evaluation,
}


def _part(name: str, nested: dict[str, Any]) -> type[_Part] | None:
    """What this configuration has under `name`; None for a value, or an unknown kind."""
    if name not in _KINDS:
        return _FIXED.get(name)
    kind: Any = next(iter(_KINDS[name]))
    if isinstance(chosen := nested.get(name), dict):
        kind = chosen.get("kind", kind)
    return _KINDS[name].get(kind) if isinstance(kind, str) else None


def _known_keys(nested: dict[str, Any]) -> Iterable[str]:
    """Every dotted key of the parts that this configuration has."""
    for name in Config.model_fields:
        part = _part(name, nested)
        if part is None:
            yield name
        else:
            yield from (f"{name}.{field}" for field in part.model_fields)


def _unknown(what: str, came: str, known: Iterable[str]) -> str:
    near = _nearest(came, known)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"unknown {what} {came!r}, expected one of {', '.join(known)}{hint}"


def _nearest(came: str, known: Iterable[str]) -> list[str]:
    return difflib.get_close_matches(came, list(known), n=1, cutoff=0.4)
