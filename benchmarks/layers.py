"""What noise costs: DQN's noisy head against the plain one and other libraries' layers.

The head is Linear(3136→512), ReLU, Linear(512→6). The contestants take turns in one process, and
the figures are ratios to `nn.Linear` in the same round, so that a busy machine slows all alike. Our
layers take part in plain PyTorch and, where numba is installed, with the kernel that agents use
under `compute=auto`.

    PYTHONPATH=. path/to/peers/bin/python benchmarks/layers.py

Other libraries' layers take part where they can be imported: run this with the Python of an
environment that has torchrl, pfrl, tianshou and numba (benchmarks/README.md says how to make one).
It takes about 2 minutes.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import time
from collections.abc import Callable, Mapping
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from turns import machine, ratio, write_results

from noisynet import NoisyLinear, resample_noise

RESULTS = Path(__file__).parent / "results" / "layers.json"
INPUTS, HIDDEN, ACTIONS = 3136, 512, 6
TARGETS = {"learn 32": 1.85, "act 1": 3.0, "forward+backward 1": 2.6}

Redraw = Callable[[nn.Module], None]
Layer = Callable[[int, int], nn.Module]


def no_redraw(_module: nn.Module) -> None:
    """For plain layers, and for layers that draw noise in `forward`."""


def redraw_by(method: str) -> Redraw:
    """Call `method` on every layer that has it."""

    def redraw(module: nn.Module) -> None:
        for layer in module.modules():
            if hasattr(layer, method):
                getattr(layer, method)()

    return redraw


PEERS: dict[str, tuple[str, str, Redraw]] = {
    "torchrl": ("torchrl.modules", "NoisyLinear", redraw_by("reset_noise")),
    "pfrl": ("pfrl.nn.noisy_linear", "FactorizedNoisyLinear", no_redraw),
    "tianshou": ("tianshou.utils.net.discrete", "NoisyLinear", redraw_by("sample")),
}
"""The module and name of each library's layer, and how its noise is resampled."""


def with_kernel(in_features: int, out_features: int) -> nn.Module:
    """Our layer with factorised noise, by the fused kernel; independent noise has none."""
    from noisynet.kernels.noise import perturbed_weight

    layer = NoisyLinear(in_features, out_features)
    layer.perturb = perturbed_weight
    return layer


def own_layers() -> dict[str, tuple[Layer, Redraw]]:
    """The plain layer, and ours."""
    found: dict[str, tuple[Layer, Redraw]] = {
        "nn.Linear": (nn.Linear, no_redraw),
        "noisynet factorised": (NoisyLinear, resample_noise),
        "noisynet independent": (
            lambda p, q: NoisyLinear(p, q, noise="independent"),
            resample_noise,
        ),
    }
    if importlib.util.find_spec("numba"):
        found["noisynet factorised, kernel"] = (with_kernel, resample_noise)
    return found


def peer_layers() -> dict[str, tuple[Layer, Redraw]]:
    """The layers of the libraries that are installed here."""
    found: dict[str, tuple[Layer, Redraw]] = {}
    for library, (module, name, redraw) in PEERS.items():
        try:
            kind: Any = getattr(import_module(module), name)
        except ImportError:
            continue
        found[library] = (from_plain(kind) if library == "pfrl" else kind, redraw)
        if library == "torchrl":  # its layer uses its means unless exploration is switched on
            exploration: Any = import_module("torchrl.envs.utils")
            exploration.set_exploration_type(exploration.ExplorationType.RANDOM).__enter__()
    return found


def from_plain(kind: Callable[[nn.Module], nn.Module]) -> Layer:
    """For a layer that is made from a plain one."""
    return lambda p, q: kind(nn.Linear(p, q))


def head(layer: Layer) -> nn.Sequential:
    """The fully connected layers of Nature DQN, in training mode: some peers need it for noise."""
    return nn.Sequential(layer(INPUTS, HIDDEN), nn.ReLU(), layer(HIDDEN, ACTIONS)).train()


def tasks(network: nn.Module, redraw: Redraw) -> dict[str, Callable[[], object]]:
    """What is timed, by name; the number is the batch size."""
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-6, fused=True)
    # Convolutions come before the head, so that it needs the gradient of its input, too.
    batches = {size: torch.randn(size, INPUTS, requires_grad=True) for size in (1, 32)}

    def forward_backward(x: Tensor) -> None:
        redraw(network)
        optimiser.zero_grad()
        x.grad = None
        network(x).square().sum().backward()

    def learn() -> None:
        forward_backward(batches[32])
        optimiser.step()

    @torch.no_grad()
    def act() -> None:
        redraw(network)
        network(batches[1])

    return {
        "learn 32": learn,
        "forward+backward 32": lambda: forward_backward(batches[32]),
        "forward+backward 1": lambda: forward_backward(batches[1]),
        "act 1": act,
    }


def measure(
    contestants: Mapping[str, Mapping[str, Callable[[], object]]], rounds: int
) -> dict[str, dict[str, list[float]]]:
    """Seconds of each task; every contestant takes one turn in every round."""
    times: dict[str, dict[str, list[float]]] = {}
    for task in next(iter(contestants.values())):
        times[task] = {name: [] for name in contestants}
        for done in range(rounds + 10):
            for name, work in contestants.items():
                start = time.perf_counter()
                work[task]()
                if done >= 10:  # the first rounds warm the caches
                    times[task][name].append(time.perf_counter() - start)
    return times


def summarise(times: Mapping[str, Mapping[str, list[float]]]) -> dict[str, dict[str, Any]]:
    """Median times, and ratios to `nn.Linear`."""
    summary: dict[str, dict[str, Any]] = {}
    for task, by_name in times.items():
        plain = by_name["nn.Linear"]
        summary[task] = {}
        for name, seconds in by_name.items():
            median = round(1e3 * statistics.median(seconds), 4)
            summary[task][name] = {"median_ms": median, **ratio(seconds, plain)}
    return summary


def normals_ms(count: int, repeats: int = 30) -> float:
    """The time of `torch.randn` of so many numbers, which bounds independent noise from below."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        torch.randn(count)
        seconds.append(time.perf_counter() - start)
    return round(1e3 * statistics.median(seconds), 4)


def table(summary: Mapping[str, Mapping[str, Any]]) -> str:
    """The ratios as text, with the targets."""
    lines = []
    for task, by_name in summary.items():
        target = f"  (target for factorised: at most {TARGETS[task]}×)" if task in TARGETS else ""
        lines.append(f"\n{task}{target}")
        for name, row in by_name.items():
            low, high = row["ratio_quartiles"]
            lines.append(
                f"  {name:<22}{row['median_ms']:>9.3f} ms {row['ratio']:>7.2f}×"
                f"   quartiles {low:.2f} to {high:.2f}"
            )
    return "\n".join(lines)


def main() -> None:
    """Time everything, print the table and, if all peers took part, write the results file."""
    parser = argparse.ArgumentParser(description="What noise costs, as ratios to nn.Linear")
    parser.add_argument("--rounds", type=int, default=150, help="timed rounds of each task")
    parser.add_argument("--out", type=Path, help="write the results to this file")
    options = parser.parse_args()
    torch.manual_seed(0)
    peers = peer_layers()
    contestants = {
        name: tasks(head(layer), redraw) for name, (layer, redraw) in (own_layers() | peers).items()
    }
    summary = summarise(measure(contestants, options.rounds))
    normals = (INPUTS + 1) * HIDDEN + (HIDDEN + 1) * ACTIONS
    drawing = {
        "factorised_normals": INPUTS + HIDDEN + HIDDEN + ACTIONS,
        "factorised_randn_ms": normals_ms(INPUTS + HIDDEN + HIDDEN + ACTIONS),
        "independent_normals": normals,
        "independent_randn_ms": normals_ms(normals),
    }
    print(table(summary))
    print(
        f"\ntorch.randn of {normals:,} numbers, which independent noise needs: "
        f"{drawing['independent_randn_ms']:.3f} ms; of {drawing['factorised_normals']:,}: "
        f"{drawing['factorised_randn_ms']:.3f} ms"
    )
    report = {
        "machine": machine(),
        "threads": torch.get_num_threads(),
        "versions": {"torch": torch.__version__} | {name: metadata.version(name) for name in peers},
        "rounds": options.rounds,
        "targets": TARGETS,
        "tasks": summary,
        "drawing": drawing,
    }
    missing = [name for name in PEERS if name not in peers]
    if not importlib.util.find_spec("numba"):
        missing.append("numba")
    write_results(report, RESULTS, options.out, missing)


if __name__ == "__main__":
    main()
