"""Commands about existing runs: evaluate, watch and list them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from noisynet.cli.messages import fail, say, show
from noisynet.cli.options import Device, Out, Run, choose_device, count


def evaluate(
    run: Run,
    frames: Annotated[str | None, typer.Option(help="Frames to play in each mode.")] = None,
    device: Device = "auto",
) -> None:
    """Evaluate the newest checkpoint with noise on and off."""
    budget = None if frames is None else count("--frames", frames)
    from noisynet.config import load_config
    from noisynet.evaluation import evaluation_modes
    from noisynet.loops import load_agent
    from noisynet.runs import RunError, RunFolder

    try:
        folder = RunFolder(run)
        # `load_agent` explains what a folder without a configuration is missing.
        known = folder.config_path.exists()
        chosen = choose_device(device, load_config(folder.read_config())) if known else "cpu"
        agent, trained_frames = load_agent(run, chosen)
        say(
            f"{agent.config.agent} on {agent.config.environment} after {trained_frames:,} frames: "
            f"device {chosen}"
        )
        for noise, result in evaluation_modes(agent, trained_frames, budget):
            unfinished = "" if result.completed else " (no episode was completed: partial return)"
            show(
                f"noise {noise:<4} score {result.score:>10.2f}  best {result.best:>10.2f}  "
                f"episodes {result.episodes}{unfinished}"
            )
    except (RunError, ValueError, ImportError) as error:
        fail(str(error))


def watch(
    run: Run,
    output: Annotated[Path, typer.Option("-o", "--output", help="The video.")] = Path("game.mp4"),
    episode: Annotated[str, typer.Option(help="best, last or a number.")] = "best",
    noise: Annotated[str, typer.Option(help="Episodes with noise on or off.")] = "on",
) -> None:
    """Render an evaluation episode to a video, with the effect of noise on each action's value."""
    if noise not in ("on", "off"):
        fail(f"--noise expected on or off, got {noise!r}", code=2)
    if episode not in ("best", "last") and not episode.isdecimal():
        fail(f"--episode expected best, last or a number, got {episode!r}", code=2)
    from noisynet.runs import RunError
    from noisynet.watch import render_episode

    try:
        chosen = int(episode) if episode.isdecimal() else episode
        made = render_episode(run, output, episode=chosen, noise=noise)  # type: ignore[arg-type]
    except (RunError, ValueError, ImportError) as error:
        fail(str(error))
    for note in made.notes:
        say(note)
    say(f"{made.frames} pictures, {made.seconds:.0f} s, score {made.score:.1f}: {made.path}")


def list_runs(out: Out = Path("runs")) -> None:
    """Show the runs below a folder: state, frames, score."""
    from noisynet.runs import RunError, RunFolder

    found = sorted(path.parent for path in out.rglob("config.json"))
    if not found:
        say(f"no runs below {out}; start one with: noisynet train noisynet-dqn minatar/breakout")
        return
    for path in found:
        folder = RunFolder(path)
        try:
            config, status = folder.read_config(), folder.read_status() or {}
        except RunError as error:
            show(f"{path}: {error}")
            continue
        state = status.get("state", "new")
        if state == "running" and folder.holder() is None:
            state = "killed"
        score = status.get("score")
        shown = "-" if score is None else f"{score:.2f}"
        done = f"{status.get('frames', 0):,} of {config.get('frames', 0):,} frames"
        show(f"{state:<12}{done:<36}score {shown:<12}{path}")
