"""Check the installation: packages, how runs are computed, games, and short runs."""

from __future__ import annotations

import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

from noisynet.config import (
    ActorCriticConfig,
    Config,
    build_config,
    cxx_compiler,
    has_kernels,
    missing_for,
)
from noisynet.extras import import_extra

_CORE: Final = ("torch", "numpy", "pydantic", "safetensors")
_EXTRAS: Final = {
    "gymnasium": "gym",
    "ale-py": "atari",
    "minatar": "minatar",
    "numba": "kernels",
    "scipy": "report",
    "av": "video",
    "tensorboard": "tensorboard",
}


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    subject: str
    ok: bool
    result: str


def examine() -> Iterator[Finding]:
    """Check packages, ways to compute, games, and two runs of a few seconds."""
    yield Finding("python", True, platform.python_version())
    for package in _CORE:
        yield Finding(package, True, metadata.version(package))
    for package, extra in _EXTRAS.items():
        try:
            yield Finding(package, True, metadata.version(package))
        except metadata.PackageNotFoundError:
            yield Finding(package, True, f'not installed: pip install "noisynet[{extra}]"')
    for subject, check in (
        ("compute=auto", _auto),
        ("compute=compile", _compile),
        ("threads", _threads),
        ("atari games", _games),
        ("noise audit", _audit),
        ("self-test", _train),
        ("workers", _train_with_workers),
    ):
        try:
            yield Finding(subject, True, check())
        except ImportError as error:
            yield Finding(subject, True, f"skipped: {error}")
        except Exception as error:  # any failure is a finding
            yield Finding(subject, False, f"{type(error).__name__}: {error}")


def _auto() -> str:
    if has_kernels():
        return "compiled kernels where they are faster on a CPU, otherwise PyTorch"
    return 'PyTorch; for compiled kernels on a CPU: pip install "noisynet[kernels]"'


def _compile() -> str:
    return missing_for("compile") or f"torch.compile with {cxx_compiler()}"


def _threads() -> str:
    import torch

    return f"{torch.get_num_threads()}, unless a run sets threads"


def _games() -> str:
    from noisynet.envs.names import ATARI_57

    roms = import_extra("ale_py.roms", "atari")
    missing = [game for game in ATARI_57 if not Path(roms.get_rom_path(game) or "-").exists()]
    if missing:
        raise FileNotFoundError(f"no ROM for {', '.join(missing)}; reinstall ale-py")
    return f"all {len(ATARI_57)} ROMs found"


def _audit() -> str:
    from noisynet.audit import audit_network
    from noisynet.layers import NoisyLinear

    report = audit_network(NoisyLinear(16, 8), updates=25)
    if not report.passed:
        raise AssertionError(str(report))
    return "the layers pass"


def _train() -> str:
    """Train on Deep Sea for a few seconds, stop half-way and resume."""
    config = build_config("noisynet-dqn", "deep_sea/5", frames=1_000)
    steps = iter(range(500))
    (first, second), seconds = _run(config, lambda: next(steps, None) is None, lambda: False)
    if first or not second:
        raise AssertionError("expected the run to stop half-way and to finish after resuming")
    speed = config.frames / seconds
    return f"trained, stopped and resumed on deep_sea/5 at {speed:.0f} steps/s"


def _train_with_workers() -> str:
    """Train A3C on Deep Sea: whether processes start and share memory."""
    config = build_config("a3c", "deep_sea/5", frames=1_000, settings=["workers=2"])
    _, seconds = _run(config, lambda: False)
    return f"2 workers started and trained in {seconds:.0f} s"


def _run(
    config: Config | ActorCriticConfig, *stops: Callable[[], bool]
) -> tuple[list[bool], float]:
    """Train in a temporary folder, once for each stop request: what finished, and the seconds."""
    from noisynet.loops import open_run_folder, train

    with tempfile.TemporaryDirectory() as parent:
        folder = open_run_folder(Path(parent) / "run", config)
        with folder.lock():
            started = time.monotonic()
            finished = [train(config, folder, stop=stop).finished for stop in stops]
            return finished, time.monotonic() - started
