"""Commands about existing runs: evaluate, watch, list and show them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from noisynet.cli.messages import fail, failing, say, show, show_table
from noisynet.cli.options import Device, Out, Run, check_choice, check_run, choose_device, count


def evaluate(
    run: Run,
    episodes: Annotated[
        int | None, typer.Option(min=1, help="Episodes to play in each mode.")
    ] = None,
    frames: Annotated[str | None, typer.Option(help="Frames to play in each mode.")] = None,
    device: Device = "auto",
) -> None:
    """Evaluate the newest checkpoint with noise on and off."""
    budget = count("--frames", frames)
    check_run(run)
    from noisynet.config import load_config
    from noisynet.envs import EnvironmentFailed
    from noisynet.evaluation import evaluation_modes
    from noisynet.loops import load_agent
    from noisynet.runs import RunError, RunFolder

    with failing(RunError, EnvironmentFailed, ValueError, ImportError):
        chosen = choose_device(device, load_config(RunFolder(run).read_config()))
        agent, trained_frames = load_agent(run, chosen)
        say(
            f"{agent.config.agent} on {agent.config.environment} after {trained_frames:,} frames: "
            f"device {chosen}"
        )
        for noise, result in evaluation_modes(agent, trained_frames, budget, episodes):
            spread = f"± {result.standard_deviation:.2f} standard deviation, n = {result.episodes}"
            if not result.completed:
                spread = "(no episode was completed: partial return)"
            show(f"noise {noise:<4} score {result.score:>10.2f} {spread}, best {result.best:.2f}")


def watch(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, or a saved agent.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The video: a file.mp4 or a file.gif.")
    ] = Path("game.mp4"),
    episode: Annotated[
        str | None, typer.Option(help="best, last or a number; default: best.")
    ] = None,
    play: Annotated[
        bool, typer.Option("--play", help="Play a new episode with the newest weights.")
    ] = False,
    noise: Annotated[str, typer.Option(help="Episodes with noise on or off.")] = "on",
    max_steps: Annotated[int | None, typer.Option(min=1, help="Show only the first steps.")] = None,
) -> None:
    """Render an episode to a video, with the effect of noise on each action's value."""
    check_choice("--noise", noise, ("on", "off"))
    check_choice("the ending of --output", output.suffix.lower(), (".mp4", ".gif"))
    if play and episode is not None:
        fail("--play plays a new episode, --episode shows a traced one: choose one of them", code=2)
    if episode is not None and not episode.isdecimal():
        check_choice("--episode", episode, ("best", "last", "a number"))
    if run.is_file():
        if episode is not None:
            fail("a saved agent has no traced episodes: leave --episode out, one is played", code=2)
        _watch_saved(run, output, noise, max_steps)
        return
    check_run(run)
    from noisynet.envs import EnvironmentFailed
    from noisynet.runs import RunError
    from noisynet.watch import render_episode

    with failing(RunError, EnvironmentFailed, ValueError, ImportError):
        made = render_episode(
            run,
            output,
            episode="new" if play else episode or "best",
            noise=noise,  # type: ignore[arg-type]
            max_steps=max_steps,
        )
    for note in made.notes:
        say(note)
    say(
        f"{made.frames} pictures, {made.seconds:.0f} s, {_megabytes(made.path)}, score "
        f"{made.trace.score:.1f}: {made.path}"
    )


def _watch_saved(file: Path, output: Path, noise: str, max_steps: int | None) -> None:
    """Play an episode with an agent of `Agent.save`, and render it."""
    from noisynet.api import load
    from noisynet.envs import EnvironmentFailed
    from noisynet.runs import RunError

    with failing(RunError, EnvironmentFailed, ValueError, ImportError):
        # A plain agent has no noise to switch on.
        made = load(file).watch(output, noise=None if noise == "on" else False, max_steps=max_steps)
    say(f"{_megabytes(made)}: {made}")


def _megabytes(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:.1f} MB"


def list_runs(
    out: Out = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the runs below a folder: state, frames, score."""
    from noisynet.runs import find_run_folders

    found = [_describe(path) for path in find_run_folders(out)]
    if as_json:
        show(json.dumps(found, indent=2))
    elif found:
        columns = ("state", "frames", "of", "score", "updated", "folder")
        show_table(columns, [[_cell(run[column]) for column in columns] for run in found])
    else:
        say(f"no runs below {out}; start one with: noisynet train noisynet-dqn minatar/breakout")


def show_run(
    run: Run,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check every file of the run instead.")
    ] = False,
) -> None:
    """Show a run: progress, evaluations, size on disk, what made it, and its own settings."""
    check_run(run)
    from noisynet.config import ConfigError, build_config
    from noisynet.runs import Unreadable, read_run
    from noisynet.runs.encoding import flatten
    from noisynet.runs.provenance import format_bytes

    if verify:
        _verify(run)
        return
    record = read_run(run, points=0)
    if isinstance(record, Unreadable):
        fail(record.reason)
    config = record.config
    with failing(ConfigError):
        preset = build_config(config.agent, config.environment, seed=config.seed)
    described = _describe(run)
    for key in ("agent", "environment", "seed", "state", "frames", "of", "score", "updated"):
        show(f"{key:<12} {_cell(described[key])}")
    sizes = {
        Path(folder, name): os.lstat(Path(folder, name)).st_size
        for folder, _, names in os.walk(run)
        for name in names
    }
    checkpoints = sorted(path.name for path in sizes if path.parent.name == "checkpoints")
    show(f"{'checkpoints':<12} {', '.join(checkpoints) or '-'}")
    show(f"{'on disk':<12} {format_bytes(sum(sizes.values()))}")
    for made in config.made_by:
        versions = ", ".join(f"{name} {number}" for name, number in made.versions.items())
        show(f"{'made by':<12} {versions}; commit {made.commit or '-'}")
        machine = f"{made.machine}, {made.processor}, {made.cores} cores, {made.system}"
        show(f"{'':<12} device {made.device} of {machine}")
    if record.evaluations:
        show("\nevaluations")
        columns = ("frames", "noise", "score", "episodes")
        rows = [[_cell(getattr(row, column)) for column in columns] for row in record.evaluations]
        show_table(columns, rows)
    default = flatten(preset.model_dump(mode="json"))
    own = {
        key: value for key, value in flatten(record.settings).items() if value != default.get(key)
    }
    if own:
        show("\nsettings that differ from the preset")
        rest = [
            [key, json.dumps(value), json.dumps(default.get(key))] for key, value in own.items()
        ]
        show_table(("key", "run", "preset"), rest)


def _verify(run: Path) -> None:
    """Check every file of a run; exit with 1 if one is damaged."""
    from noisynet.loops.verify import verify_run

    checked, problems = verify_run(run)
    for problem in problems:
        say(f"damaged: {problem}")
    if problems:
        fail(f"{len(problems)} of {checked:,} files of {run} are damaged")
    show(f"{checked:,} files of {run} are intact")


def _describe(path: Path) -> dict[str, Any]:
    """The identity and the progress of a run, JSON-able."""
    from noisynet.runs import Unreadable, read_run

    found: dict[str, Any] = {"folder": str(path), "state": "unreadable"}
    keys = ("agent", "environment", "seed", "frames", "of", "score", "updated")
    found |= dict.fromkeys(keys)
    record = read_run(path)
    if isinstance(record, Unreadable):
        return found | {"error": record.reason}
    config, status = record.config, record.status
    found |= {"agent": config.agent, "environment": config.environment, "seed": config.seed}
    found |= {"state": record.state, "frames": 0, "of": config.frames}
    if status is not None:
        found |= {"score": status.score, "updated": status.updated, "frames": status.frames}
    return found


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}"
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
