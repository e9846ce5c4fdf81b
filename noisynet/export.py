"""An agent as a file that runs without this package: ONNX, PyTorch's export, or plain weights.

A file is written only if it computes what the agent does, on observations of random play.
"""

from __future__ import annotations

import copy
import json
import logging
import warnings
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from noisynet.agents import ActorCriticAgent, Agent
from noisynet.envs import Environment, EnvironmentSpec, ObservationReader
from noisynet.extras import extra
from noisynet.layers import make_plain, noise_off, noisy_layers, resample_noise

SUFFIXES: Final = (".onnx", ".pt2")
CHECKED_OBSERVATIONS: Final = 1_000
_TOLERANCE: Final = 1e-4  # of the largest output


@dataclass(frozen=True)
class Exported:
    """A file that was written.

    Attributes:
        path: the file.
        observations: how many observations it was compared with the agent on.
        difference: the largest absolute difference of an output.
        inputs: name, type and shape of each input.
        outputs: names of the outputs.
    """

    path: Path
    observations: int
    difference: float
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def plain_network(network: nn.Module, noise_seed: int | None = None) -> nn.Module:
    """Return a copy of a network on the CPU, with ordinary layers in place of noisy ones.

    Args:
        network: such as `Agent.network`.
        noise_seed: draws one fixed noise sample; None for the mean weights.

    Raises:
        ValueError: a noise sample is asked of a network without noise.
    """
    plain = copy.deepcopy(network).cpu()
    if noisy_layers(plain):
        if noise_seed is not None:
            resample_noise(plain, torch.Generator().manual_seed(noise_seed))
        plain = make_plain(plain, noise=noise_seed is not None)
    elif noise_seed is not None:
        raise ValueError("the agent has no noise: expected no noise seed")
    if hasattr(plain, "trunk_gradient_scale"):
        plain.trunk_gradient_scale = 1.0  # type: ignore[assignment] # of the gradient only
    for parameter in plain.parameters():
        parameter.data = parameter.data.contiguous()  # not channels last
    return plain.eval().requires_grad_(False)


def export_network(network: nn.Module, path: Path, noise_seed: int | None = None) -> nn.Module:
    """Write the weights of `plain_network` as safetensors, with its layers as text; return it.

    Raises:
        ValueError: the ending is not .safetensors.
    """
    from safetensors.torch import save_file

    if path.suffix != ".safetensors":
        raise ValueError(f"expected a file ending in .safetensors for a network, got {path}")
    plain = plain_network(network, noise_seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(plain.state_dict(), path, {"architecture": str(plain)})
    return plain


@final
class ExportedAgent(nn.Module):
    """Observations of the environment → actions, and Q-values or action probabilities.

    Args:
        network: a network of ordinary layers.
        spec: of the environment.
        reader: of the environment's observations.
        policy: whether the network is that of an actor-critic agent.
    """

    def __init__(
        self, network: nn.Module, spec: EnvironmentSpec, reader: ObservationReader, policy: bool
    ) -> None:
        super().__init__()
        self.network, self.policy, self.spec = network, policy, spec
        self.first_action = reader.first_action
        space, kind = reader.space, type(reader.space).__name__
        self.discrete = (int(space.n), int(space.start)) if kind == "Discrete" else None
        self.encodes = kind in ("Box", "Discrete")  # otherwise its inputs are frames
        self.shape: tuple[int, ...] = tuple(space.shape) if self.encodes else spec.frame_shape
        self.dtype = np.dtype(space.dtype if self.encodes else spec.frame_dtype)
        channels, *image = spec.frame_shape if len(spec.frame_shape) == 3 else (0,)
        self.channels_last = self.shape == (*image, channels) != spec.frame_shape

    def forward(
        self, observation: Tensor, hidden: Tensor | None = None, cell: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """Actions [B] and values [B, A]; with an LSTM, also its state, as input and output."""
        return self.decide(self.encode(observation), hidden, cell)

    def encode(self, observation: Tensor) -> Tensor:
        """Network inputs [B, stack, *frame]."""
        x = observation if self.spec.stack > 1 else observation.unsqueeze(1)
        if self.discrete is not None:
            number, start = self.discrete
            x = (x.unsqueeze(-1) - start) == torch.arange(number)  # one-hot
        elif self.channels_last:
            x = x.movedim(-1, -3)
        x = x.reshape(x.shape[0], self.spec.stack, *self.spec.frame_shape)
        return x.to(getattr(torch, self.spec.frame_dtype))

    def decide(
        self, x: Tensor, hidden: Tensor | None = None, cell: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """The outputs, from network inputs."""
        if not self.policy:
            values = self.network(x)
            return values.argmax(dim=1) + self.first_action, values
        state = None if hidden is None or cell is None else (hidden, cell)
        logits, _, state = self.network(x, state)
        outputs = (logits.argmax(dim=1) + self.first_action, logits.softmax(dim=1))
        return outputs if state is None else (*outputs, *state)

    def observations(self, frames: NDArray[Any]) -> NDArray[Any]:
        """Inputs [B, …] from stacked frames [B, stack, *frame], the inverse of the encoding."""
        if self.discrete is not None:
            raw = frames.argmax(axis=-1) + self.discrete[1]
        elif self.channels_last:
            raw = np.moveaxis(frames, -3, -1)
        else:
            raw = frames.reshape(*frames.shape[:2], *self.shape)
        raw = raw if self.spec.stack > 1 else raw[:, 0]
        return np.ascontiguousarray(raw, self.dtype)


def export_agent(
    agent: Agent,
    environment: Environment,
    path: Path,
    *,
    noise_seed: int | None = None,
    notes: Mapping[str, Any] | None = None,
) -> Exported:
    """Write an agent as an .onnx or a .pt2 file.

    Args:
        agent: the agent.
        environment: one environment of its kind, to play random actions in.
        path: the file to write.
        noise_seed: as for `plain_network`.
        notes: stored in an .onnx file, JSON-able.

    Raises:
        ValueError: the ending is another, or the file does not compute what the agent does.
        ImportError: a package of the extra `export` is missing.
    """
    if path.suffix not in SUFFIXES:
        raise ValueError(f"expected a file ending in {' or '.join(SUFFIXES)}, got {path}")
    policy, reader = isinstance(agent, ActorCriticAgent), ObservationReader(environment)
    module = ExportedAgent(
        plain_network(agent.online, noise_seed), environment.spec, reader, policy
    )
    frames = random_play(environment, CHECKED_OBSERVATIONS)
    inputs = {"observation": torch.from_numpy(module.observations(frames))}
    outputs = ["action", "probabilities" if policy else "q_values"]
    cells = getattr(getattr(module.network, "cell", None), "hidden_size", None)
    if cells is not None:
        random = torch.Generator().manual_seed(0)
        memory = ("hidden", "cell")
        inputs |= {name: torch.randn(len(frames), cells, generator=random) for name in memory}
        outputs += [f"next_{name}" for name in memory]

    reference = ExportedAgent(copy.deepcopy(agent.online).cpu(), environment.spec, reader, policy)
    mean: AbstractContextManager[None] = nullcontext()
    if noise_seed is not None:
        resample_noise(reference, torch.Generator().manual_seed(noise_seed))
    elif agent.noisy is not None:
        mean = noise_off(reference)
    read = reader.read(inputs["observation"].numpy())[0] if module.encodes else frames
    with torch.no_grad(), mean:
        expected = reference.decide(torch.from_numpy(read), *list(inputs.values())[1:])

    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}.tmp{path.suffix}")
    try:
        program = _program(module, inputs)
        if path.suffix == ".onnx":
            run = _write_onnx(program, list(inputs), outputs, temporary, notes or {})
        else:
            run = _write_pt2(program, temporary)
        difference = _check(run(inputs), [output.numpy() for output in expected])
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    shapes = {name: ", ".join(["batch", *map(str, x.shape[1:])]) for name, x in inputs.items()}
    described = [f"{name}: {x.numpy().dtype} [{shapes[name]}]" for name, x in inputs.items()]
    return Exported(path, len(frames), difference, tuple(described), tuple(outputs))


def random_play(environment: Environment, count: int) -> NDArray[Any]:
    """Stacked frames [count, stack, *frame] of episodes with random actions."""
    spec, actions = environment.spec, np.random.default_rng(0)
    found = np.zeros((count, spec.stack, *spec.frame_shape), spec.frame_dtype)
    last: deque[NDArray[Any]] = deque(maxlen=spec.stack)
    seed = 0
    for observation in found:
        if not last:
            last.append(environment.start([seed])[0])
            seed += 1
        observation[-len(last) :] = last
        environment.send(actions.integers(spec.num_actions, size=1))
        step = environment.recv()
        last.append(step.frame[0])
        if step.terminated[0] or step.truncated[0]:
            last.clear()
    return found


_Run = Callable[[Mapping[str, Tensor]], Sequence[NDArray[Any]]]


def _program(module: nn.Module, inputs: Mapping[str, Tensor]) -> torch.export.ExportedProgram:
    batch = torch.export.Dim("batch", min=1, max=1 << 20)
    example = {name: value[:2] for name, value in inputs.items()}
    with torch.no_grad():
        shapes = {name: {0: batch} for name in inputs}
        return torch.export.export(module, (), example, dynamic_shapes=shapes)


def _write_pt2(program: torch.export.ExportedProgram, path: Path) -> _Run:
    torch.export.save(program, path)
    loaded = torch.export.load(path).module()
    return lambda given: [output.numpy() for output in loaded(**given)]


def _write_onnx(
    program: torch.export.ExportedProgram,
    inputs: Sequence[str],
    outputs: Sequence[str],
    path: Path,
    notes: Mapping[str, Any],
) -> _Run:
    with extra("export"):
        import onnx  # noqa: F401 - torch's exporter needs both
        import onnxruntime
        import onnxscript  # noqa: F401
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)  # about torchvision, which is not needed
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's own, about itself
            model = torch.onnx.export(
                program, input_names=inputs, output_names=outputs, dynamo=True, verbose=False
            )
    finally:
        logging.disable(level)
    assert model is not None
    model.model.metadata_props["noisynet"] = json.dumps(dict(notes))
    model.save(path, external_data=False)
    session = onnxruntime.InferenceSession(str(path))
    return lambda given: session.run(None, {name: x.numpy() for name, x in given.items()})


def _check(found: Sequence[NDArray[Any]], expected: Sequence[NDArray[Any]]) -> float:
    """Return the largest difference of an output; refuse other values and other actions."""
    pairs = zip(found[1:], expected[1:], strict=True)
    largest = max(float(np.abs(one - other).max()) for one, other in pairs)
    allowed = _TOLERANCE * max(1.0, float(np.abs(expected[1]).max()))
    # Where the two best actions are equal up to rounding, either may be chosen.
    best = np.sort(expected[1], axis=1)
    other = (found[0] != expected[0]) & (best[:, -1] - best[:, -2] > 2 * allowed)
    if not largest <= allowed or other.any():
        raise ValueError(
            f"expected the file to compute what the agent does, got {other.sum()} other actions in "
            f"{len(other)} observations, and outputs that differ by {largest:.2g}: nothing was "
            "written"
        )
    return largest
