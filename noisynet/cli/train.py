"""`noisynet train`."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noisynet.cli.messages import failing, say
from noisynet.cli.options import (
    TRACKERS,
    Agent,
    Device,
    Environment,
    Out,
    Preset,
    Settings,
    TensorBoard,
    Track,
    check_choice,
    choose_device,
    configure,
)
from noisynet.config import ActorCriticConfig, Config
from noisynet.envs import environment_folder

if TYPE_CHECKING:
    from noisynet.integrations.tracker import Tracker
    from noisynet.runs import RunFolder


def train(
    agent: Agent,
    environment: Environment,
    frames: Annotated[
        str | None, typer.Option(help="Budget in emulator frames, such as 10M.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of all random streams.")] = 0,
    preset: Preset = None,
    out: Out = Path("runs"),
    name: Annotated[str | None, typer.Option(help="Run folder under --out.")] = None,
    settings: Settings = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes of an A3C agent; 1 is deterministic.")
    ] = None,
    patience: Annotated[
        float | None,
        typer.Option(help="Seconds without a step after which a worker is restarted; 4."),
    ] = None,
    device: Device = "auto",
    tensorboard: TensorBoard = True,
    track: Track = None,
    keep_replay: Annotated[
        bool,
        typer.Option(
            "--keep-replay", help="Keep the replay of the finished run, for a longer budget."
        ),
    ] = False,
) -> None:
    """Train an agent. The same command resumes an interrupted run."""
    config = configure(
        agent,
        environment,
        frames=frames,
        seed=seed,
        preset=preset,
        settings=settings,
        workers=workers,
        patience=patience,
    )
    for wanted in track or ():
        check_choice("--track", wanted.partition(":")[0], TRACKERS)
    default_name = f"{environment_folder(config.environment)}/{config.agent}/seed-{config.seed}"
    folder_path = out / (name or default_name)
    from noisynet.agents import NonFiniteLoss
    from noisynet.envs import EnvironmentFailed
    from noisynet.loops import PATIENCE_SECONDS, open_run_folder, try_build
    from noisynet.loops import train as train_run
    from noisynet.runs import EXIT_LOCKED, RunError, RunFolder, RunLocked
    from noisynet.runs.stop_signals import stop_on_signals

    chosen_device = choose_device(device, config)
    trackers = _trackers(track or ())
    if not RunFolder(folder_path).config_path.exists():
        # Errors that show only when environment and agent are made come before the run folder.
        with failing(ValueError, ImportError, code=2):
            try_build(config)
    errors = (RunError, NonFiniteLoss, EnvironmentFailed, ImportError, ValueError)
    with failing(*errors), failing(RunLocked, code=EXIT_LOCKED):
        folder = open_run_folder(folder_path, config)
        with folder.lock() as lock, _observers(config, folder, tensorboard) as observers:
            observers += trackers
            if lock.note:
                say(lock.note)
            with stop_on_signals(interrupt_twice=True) as stop:
                outcome = train_run(
                    config,
                    folder,
                    device=chosen_device,
                    observers=observers,
                    stop=stop,
                    patience_seconds=patience or PATIENCE_SECONDS,
                    keep_replay=keep_replay,
                )
    if not outcome.finished:
        received = stop.signal or signal.SIGINT
        say(f"interrupted at frame {outcome.frames:,} and saved; the same command resumes it")
        raise typer.Exit(128 + received)
    say(f"finished: {outcome.frames:,} frames, score {outcome.score:.2f}, in {folder.given}")


def _trackers(wanted: Sequence[str]) -> list[Tracker]:
    if not wanted:
        return []
    with failing(ImportError, code=2):
        from noisynet.integrations.tracker import make_tracker

        return [make_tracker(text) for text in wanted]


@contextmanager
def _observers(
    config: Config | ActorCriticConfig, folder: RunFolder, tensorboard: bool
) -> Iterator[list[Any]]:
    closing: list[Callable[[], None]] = []
    hook, threading.excepthook = threading.excepthook, _ignore_disk_errors
    from noisynet.loops.terminal import Lines, Terminal

    shown: Lines | Terminal = Lines(config.frames, say)
    if sys.stdout.isatty():
        shown = Terminal(config.frames)
    observers: list[Any] = [shown]
    if tensorboard:
        from noisynet.loops.hooks import TensorBoard

        try:
            board = TensorBoard(folder, config)
        except ImportError as error:
            say(f"training without TensorBoard: {error}")
        else:
            observers.append(board)
            closing.append(board.close)
    if isinstance(shown, Terminal):
        shown.start()
        closing.append(shown.stop)
    try:
        yield observers
    finally:
        for close in closing:
            with suppress(OSError):  # the disk refuses the last events; the run has ended anyway
                close()
        threading.excepthook = hook


def _ignore_disk_errors(ended: threading.ExceptHookArgs) -> None:
    """TensorBoard writes in a thread; a disk error there reaches the run with its next call."""
    if not isinstance(ended.exc_value, OSError):
        threading.__excepthook__(ended)
