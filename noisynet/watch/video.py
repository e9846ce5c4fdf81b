"""Renders an episode of a run as mp4 or gif."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import torch
from numpy.typing import NDArray

from noisynet.agents import ActorCriticAgent, Agent
from noisynet.config import ActorCriticConfig
from noisynet.envs import EnvironmentLike, parse_environment
from noisynet.extras import import_extra
from noisynet.layers import noisy_layers, sigma_summary
from noisynet.loops import load_agent
from noisynet.runs import RunFolder, Trace, list_traces
from noisynet.watch.episode import (
    Noise,
    ReplayedEpisode,
    check_episode,
    choose_trace,
    play_episode,
    replay,
    screens,
)

if TYPE_CHECKING:
    from PIL.Image import Image

    from noisynet.watch.panel import Caption

ENDINGS: Final = (".mp4", ".gif")
"""The formats of videos, by the ending of the file's name."""

STEPS_PER_SECOND: Final = {
    "atari": 15,
    "minatar": 10,
    "deep_sea": 3,
    **dict.fromkeys(("gym", "object", "function"), 30),
}
"""Playback speed: Atari has 60 frames per second and 4 per step, others are easy to follow."""

_GAME_HEIGHT: Final = 600  # at least, unless the game is wider than this:
_GAME_WIDTH: Final = 800
_PALETTE_SCREENS: Final = 12


@dataclass(frozen=True)
class RenderedVideo:
    """A rendered video.

    `frames` is its number of pictures: one for each step and one second of the end; a gif may have
    fewer. `weights_frames` are the training frames of the weights whose values are shown.
    """

    path: Path
    frames: int
    seconds: float
    trace: Trace
    weights_frames: int
    notes: tuple[str, ...]


def render_episode(
    run: Path,
    output: Path,
    *,
    episode: str | int = "best",
    noise: Noise = "on",
    samples: int = 32,
    max_steps: int | None = None,
    device: torch.device | str = "cpu",
    environment: EnvironmentLike | None = None,
) -> RenderedVideo:
    """Render an episode in colour, next to the spread of its values under noise.

    The values are those of the newest checkpoint, which may be newer than the episode: the panel
    names both. The run is neither locked nor changed.

    Args:
        run: the run folder.
        output: the mp4 or gif to write; an existing one is replaced once the new one is complete.
        episode: "best" for the highest score of all evaluations, "last" for the last of the newest
            evaluation, a number within the newest evaluation, from 0, or "new" to play one with
            the newest weights. Without any evaluation, "best" and "last" play a new one, too.
        noise: show an episode played with noise or with mean weights; if there is none, one of the
            others.
        samples: the number of noise samples for the spread of values.
        max_steps: show only the first steps; the whole episode is checked nevertheless.
        device: of the network.
        environment: the object or the function that the run was given in Python; None for a name.

    Raises:
        ImportError: PyAV or Pillow is missing.
        RunError: the run, its checkpoint or the episode is missing or damaged; `ReplayMismatch` if
            the replayed episode differs from its trace; `StorageError` if the disk fails.
        ValueError: an argument is out of range.
    """
    run, output = Path(run), Path(output)
    check_video(output, samples, max_steps)
    check_episode(episode)
    agent, weights_frames = load_agent(run, device, environment)
    folder, notes = RunFolder(run), []
    if episode in ("best", "last") and not list_traces(folder.traces_path):
        episode = "new"
        notes.append("the run has no evaluation yet: the newest weights play a new episode")
    if episode == "new":
        trace = play_episode(agent, weights_frames, noise=noise, environment=environment)
    else:
        trace, notes = choose_trace(folder, episode, noise)
    rendered = render_trace(
        trace,
        agent,
        weights_frames,
        output,
        samples=samples,
        max_steps=max_steps,
        environment=environment,
    )
    return replace(rendered, notes=(*notes, *rendered.notes))


def render_trace(
    trace: Trace,
    agent: Agent,
    weights_frames: int,
    output: Path,
    *,
    samples: int = 32,
    max_steps: int | None = None,
    environment: EnvironmentLike | None = None,
) -> RenderedVideo:
    """Render one episode with the values of an agent; arguments as of `render_episode`."""
    output = Path(output)
    check_video(output, samples, max_steps)
    from noisynet.watch.encode import atomic_file, gif_stride, write_gif, write_mp4

    total = len(trace.actions)
    steps = total if max_steps is None else min(max_steps, total)
    replayed = replay(trace, agent, steps=steps, samples=samples, environment=environment)
    outcome = "shown"
    if steps == total:
        outcome = "game over" if replayed.ended else "truncated"
    notes = []
    if outcome == "truncated":
        notes.append("this episode was stopped before its end")
    if weights_frames != trace.evaluation:
        notes.append(
            f"the episode was played at {trace.evaluation:,} training frames; the values shown are "
            f"those of the weights at {weights_frames:,}"
        )
    caption = _caption(trace, agent, weights_frames, samples, replayed.actions)
    rate = STEPS_PER_SECOND[parse_environment(trace.environment)[0]]
    gif = output.suffix.lower() == ".gif"
    stride = gif_stride(steps, rate) if gif else 1
    shown = [*range(0, steps, stride), steps]  # the last is the end, held for a second
    pictures = _pictures(
        trace,
        replayed,
        caption,
        steps,
        outcome,
        screens(trace, replayed, steps, environment),
        shown,
    )
    durations = [stride / rate] * (len(shown) - 1) + [1.0]
    with atomic_file(output) as path:
        if gif:
            every = max(1, steps // _PALETTE_SCREENS)
            again = enumerate(screens(trace, replayed, steps, environment))
            colours = [_game(screen) for number, screen in again if number % every == 0]
            first = next(pictures)
            write_gif(path, chain([first], pictures), durations, [first, *colours])
        else:
            write_mp4(path, _held(pictures, len(shown), rate), rate)
    frames = len(shown) if gif else len(shown) - 1 + rate
    return RenderedVideo(output, frames, sum(durations), trace, weights_frames, tuple(notes))


def check_video(output: Path, samples: int = 32, max_steps: int | None = None) -> None:
    """Check the arguments of a video, and that all it needs is installed.

    Raises:
        ImportError: PyAV or Pillow is missing.
        ValueError: an argument is out of range.
    """
    if Path(output).suffix.lower() not in ENDINGS:
        raise ValueError(f"expected an output that ends in {' or '.join(ENDINGS)}, got {output}")
    if samples < 1:
        raise ValueError(f"expected at least 1 noise sample, got {samples}")
    if max_steps is not None and max_steps < 1:
        raise ValueError(f"expected max_steps of at least 1, got {max_steps}")
    for module in ("av", "PIL.Image"):
        import_extra(module, "video")


def _caption(
    trace: Trace, agent: Agent, weights_frames: int, samples: int, actions: Sequence[str] = ()
) -> Caption:
    from noisynet.watch.panel import Caption

    config = agent.config
    differ = weights_frames != trace.evaluation
    initial = {
        name: layer.sigma0 / (layer.in_features**0.5 if layer.noise == "factorised" else 1)
        for name, layer in noisy_layers(agent.online).items()
    }
    mode = f", noise {trace.noise}" if agent.noisy else ""
    shown = ["π", "V"] if isinstance(agent, ActorCriticAgent) else ["Q"]
    shown += ["σ"] if agent.noisy else []
    what = " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))
    return Caption(
        title=f"{config.agent} on {trace.environment}, seed {config.seed}",
        episode=f"episode {trace.episode}, evaluation at {_count(trace.evaluation)} frames{mode}",
        weights=f"{what} of the weights at "
        f"{_count(weights_frames)} frames: "
        + ("not those that played" if differ else "those that played"),
        weights_differ=differ,
        actions=list(actions) or [f"action {a}" for a in range(agent.spec.num_actions)],
        sigma={
            name.removeprefix("head.").removesuffix("_gates"): (now, initial[name])
            for name, now in sigma_summary(agent.online).items()
        },
        samples=samples,
        total_steps=len(trace.actions),
        atoms=() if isinstance(config, ActorCriticConfig) else config.network.support,
    )


def _count(frames: int) -> str:
    return f"{frames / 1e6:.6g}M" if frames >= 1_000_000 else f"{frames:,}"


def _pictures(
    trace: Trace,
    replayed: ReplayedEpisode,
    caption: Caption,
    steps: int,
    outcome: str,
    all_screens: Iterator[NDArray[np.uint8]],
    shown: Sequence[int],
) -> Iterator[Image]:
    """The pictures of the `shown` states; state `steps` is the end."""
    from noisynet.watch.distribution_panel import DistributionPanel
    from noisynet.watch.panel import Panel

    panel, distributions = None, None
    wanted = set(shown)
    for number, screen in enumerate(all_screens):
        if number not in wanted:
            continue
        game = _game(screen)
        if panel is None:
            panel = Panel(caption, replayed, trace.actions, game.height)
            if replayed.values.distribution is not None:
                distributions = DistributionPanel(caption, replayed, trace.actions, panel.height)
        state = min(number, steps - 1)
        panels = [panel.draw(state, None if number < steps else outcome)]
        panels += [distributions.draw(state)] if distributions else []
        yield _beside(game, *panels)


def _held(pictures: Iterator[Image], count: int, times: int) -> Iterator[Image]:
    """Repeat the last of `count` pictures."""
    for number, picture in enumerate(pictures, start=1):
        yield from repeat(picture, times if number == count else 1)


def _game(screen: NDArray[np.uint8]) -> Image:
    """The screen, enlarged by an integer so that pixels stay square; a wide one is reduced."""
    from PIL import Image

    height, width, _ = screen.shape
    scale: float = min(-(-_GAME_HEIGHT // height), _GAME_WIDTH // width)
    kind = Image.Resampling.NEAREST
    if scale < 1:
        scale, kind = _GAME_WIDTH / width, Image.Resampling.LANCZOS
    return Image.fromarray(screen).resize((round(width * scale), round(height * scale)), kind)


def _beside(game: Image, *panels: Image) -> Image:
    """The game to the left of the panels; both sides are even, as H.264 requires."""
    from PIL import Image

    height = max(game.height, *(panel.height for panel in panels))
    width = game.width + sum(panel.width for panel in panels)
    colour = panels[-1].getpixel((panels[-1].width - 1, panels[-1].height - 1))
    picture = Image.new("RGB", (width + width % 2, height + height % 2), colour)
    picture.paste(game, (0, (height - game.height) // 2))
    left = game.width
    for panel in panels:
        picture.paste(panel, (left, 0))
        left += panel.width
    return picture
