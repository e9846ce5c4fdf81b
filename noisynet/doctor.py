"""Is everything here that a run needs, and does it work?"""

from __future__ import annotations

import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        what: the thing.
        well: whether it is as it should be.
        finding: what was found, or what to do.
    """

    what: str
    well: bool
    finding: str


def examine() -> Iterator[Finding]:
    """Look at versions, optional packages, games, and a run of a few seconds."""
    yield Finding("python", True, platform.python_version())
    for package in ("torch", "numpy", "numba", "pydantic", "safetensors"):
        yield Finding(package, True, metadata.version(package))
    for package, extra in (
        ("gymnasium", "gym"),
        ("ale-py", "atari"),
        ("minatar", "minatar"),
        ("av", "video"),
    ):
        try:
            yield Finding(package, True, metadata.version(package))
        except metadata.PackageNotFoundError:
            yield Finding(package, True, f'not installed; pip install "noisynet[{extra}]"')
    for what, look in (
        ("atari games", _games),
        ("noise audit", _audit),
        ("self-test", _train),
        ("workers", _train_with_workers),
    ):
        try:
            yield Finding(what, True, look())
        except ImportError as error:
            yield Finding(what, True, f"skipped: {error}")
        except Exception as error:  # whatever is broken is what the doctor is for
            yield Finding(what, False, f"{type(error).__name__}: {error}")


def _games() -> str:
    from noisynet.envs.names import ATARI_57

    try:
        from ale_py import roms
    except ImportError as error:
        raise ImportError('pip install "noisynet[atari]"') from error
    missing = [game for game in ATARI_57 if not Path(roms.get_rom_path(game) or "-").exists()]
    if missing:
        raise FileNotFoundError(f"no ROM for {', '.join(missing)}; reinstall ale-py")
    return f"all {len(ATARI_57)} ROMs are here"


def _audit() -> str:
    from noisynet.audit import audit_network
    from noisynet.layers import NoisyLinear

    report = audit_network(NoisyLinear(16, 8), updates=25)
    if not report.passed:
        raise AssertionError(str(report))
    return "the layers' noise is right"


def _train() -> str:
    """A run on Deep Sea, stopped half-way and continued, for about ten seconds."""
    from noisynet.config import build_config
    from noisynet.loops import train
    from noisynet.runs import RunFolder

    config = build_config("noisynet-dqn", "deep_sea/5", frames=2_000)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as parent:
        folder = RunFolder.create_or_open(
            Path(parent) / "run", config.model_dump(mode="json"), must_match=[]
        )
        with folder.lock():
            first = train(config, folder, stop=_after(500))
            second = train(config, folder)
    if first.finished or not second.finished:
        raise AssertionError("expected to stop half-way and to finish after continuing")
    speed = config.frames / (time.monotonic() - started)
    return f"trained, stopped and continued on deep_sea/5 at {speed:.0f} steps/s"


def _train_with_workers() -> str:
    """A run of A3C on Deep Sea: whether processes can be started and can share memory."""
    from noisynet.config import build_config
    from noisynet.loops import train
    from noisynet.runs import RunFolder

    config = build_config("a3c", "deep_sea/5", frames=1_000, settings=["workers=2"])
    with tempfile.TemporaryDirectory() as parent:
        folder = RunFolder.create_or_open(
            Path(parent) / "run", config.model_dump(mode="json"), must_match=[]
        )
        with folder.lock():
            started = time.monotonic()
            train(config, folder)
    return f"2 workers started and trained in {time.monotonic() - started:.0f} s"


def _after(calls: int) -> Callable[[], bool]:
    left = iter(range(calls))
    return lambda: next(left, None) is None
