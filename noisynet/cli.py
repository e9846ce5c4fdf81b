"""The command line. Heavy libraries are imported by the command that needs them."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from noisynet import cli_studies
from noisynet.config import (
    ACTOR_CRITIC_AGENTS,
    AGENTS,
    PRESETS,
    VALUE_AGENTS,
    ActorCriticConfig,
    Config,
    ConfigError,
    build_config,
    parse_count,
)

if TYPE_CHECKING:
    from noisynet.runs import RunFolder

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Noisy Networks for Exploration: train, evaluate, watch, audit, sweep and report.",
)

Out = Annotated[Path, typer.Option(help="Parent of the run folders.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, …")]
RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]


cli_studies.add_to(app)


@app.command()
def train(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help=", ".join(AGENTS))],
    environment: Annotated[
        str,
        typer.Argument(
            metavar="ENV", help="atari/<rom>, minatar/<game>, deep_sea/<n> or gym/<id>."
        ),
    ],
    frames: Annotated[
        str | None, typer.Option(help="Budget in emulator frames, such as 10M.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides every random stream.")] = 0,
    preset: Annotated[str | None, typer.Option(help=", ".join(PRESETS))] = None,
    out: Out = Path("runs"),
    name: Annotated[str | None, typer.Option(help="Run folder under --out.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="key=value, may be repeated.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes of an A3C agent; 1 is deterministic.")
    ] = None,
    patience: Annotated[
        float | None,
        typer.Option(help="Seconds without a step after which a worker is started again; 4."),
    ] = None,
    device: Device = "auto",
    tensorboard: Annotated[bool, typer.Option(help="Write TensorBoard events.")] = True,
) -> None:
    """Train an agent; the same command continues an interrupted run."""
    of_workers = {"--workers": workers, "--patience": patience}
    config = _config(agent, environment, frames, seed, preset, settings or [], of_workers)
    folder_path = out / (name or f"{config.environment}/{config.agent}/seed-{config.seed}")
    from noisynet.agents import NonFiniteLoss
    from noisynet.loops import PATIENCE_SECONDS, open_run_folder, try_build
    from noisynet.loops import train as train_run
    from noisynet.runs import RunError, RunFolder

    chosen_device = _device(device, config)
    try:
        # What only shows when it is made is refused before anything is created, too.
        if not RunFolder(folder_path).config_path.exists():
            try_build(config)
    except (ValueError, ImportError) as error:
        _fail(str(error), code=2)
    try:
        folder = open_run_folder(folder_path, config)
        with folder.lock() as lock, _observers(config, folder, tensorboard) as observers:
            for note in filter(None, [lock.note]):
                _say(note)
            with _stopping() as stop:
                outcome = train_run(
                    config,
                    folder,
                    device=chosen_device,
                    observers=observers,
                    stop=stop,
                    patience_seconds=patience or PATIENCE_SECONDS,
                )
    except (RunError, NonFiniteLoss, ImportError, ValueError) as error:
        _fail(str(error))
    if not outcome.finished:
        received = stop.signal or signal.SIGINT
        _say(f"interrupted at frame {outcome.frames:,} and saved; the same command continues")
        raise typer.Exit(128 + received)
    score = "no evaluation yet" if outcome.score is None else f"score {outcome.score:.2f}"
    _say(f"finished: {outcome.frames:,} frames, {score}, in {folder.path}")


@app.command()
def evaluate(
    run: RunArgument,
    frames: Annotated[str | None, typer.Option(help="Frames to play in each mode.")] = None,
    device: Device = "auto",
) -> None:
    """Play the newest checkpoint with noise on and off, side by side."""
    from noisynet.evaluation import evaluation_modes
    from noisynet.loops import load_agent
    from noisynet.runs import RunError

    budget = None if frames is None else _count(frames)
    try:
        agent, trained_frames = load_agent(run, _device(device))
        _say(f"{agent.config.agent} on {agent.config.environment} after {trained_frames:,} frames")
        for noise, result in evaluation_modes(agent, trained_frames, budget):
            unfinished = "" if result.completed else " (no episode was completed: partial return)"
            _print(
                f"noise {noise:<4} score {result.score:>10.2f}  best {result.best:>10.2f}  "
                f"episodes {result.episodes}{unfinished}"
            )
    except (RunError, ValueError, ImportError) as error:
        _fail(str(error))


@app.command()
def watch(
    run: RunArgument,
    output: Annotated[Path, typer.Option("-o", "--output", help="The video.")] = Path("game.mp4"),
    episode: Annotated[str, typer.Option(help="best, last or a number.")] = "best",
    noise: Annotated[str, typer.Option(help="Traces with noise on or off.")] = "on",
) -> None:
    """Render a traced episode, with what the noise does to each action's value."""
    if noise not in ("on", "off"):
        _fail(f"--noise expected on or off, got {noise!r}", code=2)
    if episode not in ("best", "last") and not episode.isdecimal():
        _fail(f"--episode expected best, last or a number, got {episode!r}", code=2)
    from noisynet.runs import RunError
    from noisynet.watch import render_episode

    try:
        chosen = int(episode) if episode.isdecimal() else episode
        made = render_episode(run, output, episode=chosen, noise=noise)  # type: ignore[arg-type]
    except (RunError, ValueError, ImportError) as error:
        _fail(str(error))
    for note in made.notes:
        _say(note)
    _say(f"{made.frames} pictures, {made.seconds:.0f} s, score {made.score:.1f}: {made.path}")


@app.command()
def audit(
    agent: Annotated[
        str,
        typer.Argument(
            metavar="AGENT",
            help=", ".join(name for name in AGENTS if name.startswith("noisynet"))
            + "; or another library's from a file: sb3:model.zip, torchrl:loss.pt, "
            "tianshou:algorithm.pt",
        ),
    ],
    environment: Annotated[str, typer.Argument(metavar="ENV")] = "atari/pong",
    settings: Annotated[list[str] | None, typer.Option("--set", help="key=value.")] = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Read a file of another library, which can run code.")
    ] = False,
) -> None:
    """Check that an agent keeps the noise contract: who draws when, and from what."""
    library, colon, path = agent.partition(":")
    if colon:
        _audit_file(library, Path(path), trust)
        return
    config = _config(agent, environment, None, 0, None, settings or [])
    from noisynet.agents import audit_agent, make_agent
    from noisynet.evaluation import make_configured_environment

    try:
        with make_configured_environment(config, 1) as made:
            report = audit_agent(make_agent(config, made.spec))
    except (ValueError, ImportError) as error:
        _fail(str(error), code=2)
    _print(str(report))
    if not report.passed:
        raise typer.Exit(1)


def _audit_file(library: str, path: Path, trust: bool) -> None:
    """Audit an agent of another library."""
    if not path.is_file():
        _fail(f"expected a file after {library}:, got {path}, which there is not", code=2)
    if not trust:
        _fail(
            f"{path} holds pickles, and reading a pickle runs whatever code its maker put there. "
            "Read it only if it is your own, or by somebody you trust: add --trust",
            code=2,
        )
    from noisynet import integrations

    try:
        report = integrations.check_noise(integrations.load(library, path))
    except (ValueError, TypeError, ImportError) as error:
        _fail(str(error), code=2)
    _print(str(report))
    if not report.passed:
        raise typer.Exit(1)


@app.command(name="list")
def list_runs(out: Out = Path("runs")) -> None:
    """Show the runs below a folder: state, frames, score."""
    from noisynet.runs import RunError, RunFolder

    found = sorted(path.parent for path in out.rglob("config.json"))
    if not found:
        _say(f"no runs below {out}; start one with: noisynet train noisynet-dqn minatar/breakout")
        return
    for path in found:
        folder = RunFolder(path)
        try:
            config, status = folder.read_config(), folder.read_status() or {}
        except RunError as error:
            _print(f"{path}: {error}")
            continue
        state = status.get("state", "new")
        if state == "running" and folder.holder() is None:
            state = "killed"  # the same command continues it
        score = status.get("score")
        shown = "-" if score is None else f"{score:.2f}"
        done = f"{status.get('frames', 0):,} of {config.get('frames', 0):,} frames"
        _print(f"{state:<12}{done:<36}score {shown:<12}{path}")


@app.command()
def doctor() -> None:
    """Say what is installed, whether the games load, and run a short self-test."""
    from noisynet.doctor import examine

    healthy = True
    for found in examine():
        healthy = healthy and found.well
        _print(f"{'ok  ' if found.well else 'FAIL'}  {found.what:<14}{found.finding}")
    if not healthy:
        raise typer.Exit(1)


class _Stop:
    """Turns SIGINT and SIGTERM into a polite request; a second Ctrl-C means it."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __call__(self) -> bool:
        return self.signal is not None

    def receive(self, number: int, _frame: object) -> None:
        # Those that send SIGTERM often send it twice, to a process and to its group.
        if number == self.signal == signal.SIGINT:
            signal.default_int_handler(number, None)
        self.signal = number


@contextmanager
def _stopping() -> Iterator[_Stop]:
    stop = _Stop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, stop.receive) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _observers(
    config: Config | ActorCriticConfig, folder: RunFolder, tensorboard: bool
) -> Iterator[list[Any]]:
    closing: list[Callable[[], None]] = []
    hook, threading.excepthook = threading.excepthook, _without_refusals
    from noisynet.loops.terminal import Lines, Terminal

    observers: list[Any] = [Terminal(config.frames)] if sys.stdout.isatty() else [Lines(_say)]
    if tensorboard:
        from noisynet.loops.hooks import TensorBoard

        board = TensorBoard(folder)
        observers.append(board)
        closing.append(board.close)
    if isinstance(observers[0], Terminal):
        observers[0].start()
        closing.append(observers[0].stop)
    try:
        yield observers
    finally:
        for close in closing:
            with suppress(OSError):  # the disk refuses the last events: the run is over anyway
                close()
        threading.excepthook = hook


def _without_refusals(ended: threading.ExceptHookArgs) -> None:
    """TensorBoard writes in a thread; its next call tells the run what the disk refused."""
    if not isinstance(ended.exc_value, OSError):
        threading.__excepthook__(ended)


def _config(
    agent: str,
    environment: str,
    frames: str | None,
    seed: int,
    preset: str | None,
    settings: list[str],
    of_workers: Mapping[str, float | None] | None = None,
) -> Config | ActorCriticConfig:
    errors, budget = [], None
    for option, value in (of_workers or {}).items():
        if value is not None and agent in VALUE_AGENTS:
            errors.append(
                f"{option} is for {', '.join(ACTOR_CRITIC_AGENTS)}; {agent} learns in one process: "
                "leave it out, or play several environments at once with --set num_envs=N"
            )
        elif value is not None and not 0 < value < float("inf"):
            errors.append(f"{option} expected a number above 0, got {value}")
        elif value is not None and option == "--workers":
            settings = [*settings, f"workers={value}"]
    if frames is not None:
        try:
            budget = parse_count(frames)
        except ValueError as error:
            errors.append(f"--frames {error}")
    try:
        config = build_config(
            agent, environment, frames=budget, seed=seed, preset=preset, settings=settings
        )
    except ConfigError as error:
        errors += str(error).splitlines()
    if errors:
        _fail("\n".join(errors), code=2)
    return config


def _count(text: str) -> int:
    try:
        return parse_count(text)
    except ValueError as error:
        _fail(f"--frames {error}", code=2)


def _device(name: str, config: Config | ActorCriticConfig | None = None) -> str:
    import torch

    if name == "auto" and isinstance(config, ActorCriticConfig):
        return "cpu"  # a small network for each of many processes, one observation at a time
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        _fail(f"--device expected auto, cpu or a device that is here, got {name!r}: {error}", 2)
    return name


def _print(text: str) -> None:
    typer.echo(text)


def _say(text: str) -> None:
    typer.echo(text, err=True)


def _fail(message: str, code: int = 1) -> NoReturn:
    for line in message.splitlines():
        typer.echo(f"noisynet: {line}", err=True)
    raise typer.Exit(code)
