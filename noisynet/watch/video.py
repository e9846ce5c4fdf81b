"""Renders an evaluation episode of a run as mp4."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from noisynet.agents import ActorCriticAgent, Agent
from noisynet.config import ActorCriticConfig
from noisynet.envs import EnvironmentLike, parse_environment
from noisynet.extras import import_extra
from noisynet.layers import noisy_layers, sigma_summary
from noisynet.loops import load_agent
from noisynet.runs import RunFolder, Trace
from noisynet.runs.files import storage_errors, temporary_name
from noisynet.watch.episode import (
    ReplayedEpisode,
    choose_trace,
    replay,
    screens,
)

if TYPE_CHECKING:
    from PIL.Image import Image

    from noisynet.watch.panel import Caption

STEPS_PER_SECOND: Final = {
    "atari": 15,
    "minatar": 10,
    "deep_sea": 3,
    **dict.fromkeys(("gym", "object", "function"), 30),
}
"""Playback speed: Atari has 60 frames per second and 4 per step, others are easy to follow."""

_MIN_GAME_HEIGHT = 600
_BT709 = 1  # of primaries, transfer and matrix alike
_LIMITED_RANGE = 1


@dataclass(frozen=True)
class RenderedVideo:
    """A rendered video.

    Attributes:
        path: of the file.
        frames: how many it has: one for each step, and one second of the end.
        seconds: its duration.
        score: the episode's score.
        trace: the episode.
        weights_frames: training frames of the weights whose values are shown.
        notes: for the user, a sentence each.
    """

    path: Path
    frames: int
    seconds: float
    score: float
    trace: Trace
    weights_frames: int
    notes: tuple[str, ...]


def render_episode(
    run: Path,
    output: Path,
    *,
    episode: str | int = "best",
    noise: Literal["on", "off"] = "on",
    samples: int = 32,
    max_steps: int | None = None,
    device: torch.device | str = "cpu",
    environment: EnvironmentLike | None = None,
) -> RenderedVideo:
    """Render a traced evaluation episode in colour, next to the spread of its values under noise.

    The values are those of the newest checkpoint, which may be newer than the episode: the panel
    names both. The run is neither locked nor changed.

    Args:
        run: the run folder.
        output: the mp4 to write; an existing one is replaced once the new one is complete.
        episode: "best" for the highest score of all evaluations, "last" for the last of the newest
            evaluation, or a number within the newest evaluation, from 0.
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
    check_video(output, samples, max_steps)
    agent, weights_frames = load_agent(Path(run), device, environment)
    trace, notes = choose_trace(RunFolder(run), episode, noise)
    made = render_trace(
        trace,
        agent,
        weights_frames,
        output,
        samples=samples,
        max_steps=max_steps,
        environment=environment,
    )
    return replace(made, notes=(*notes, *made.notes))


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
    """Render any traced episode of an agent's environment, as `render_episode` does.

    Args:
        trace: the episode.
        agent: its weights give the values that are shown.
        weights_frames: training frames of these weights.
        output: as for `render_episode`, like all that follow.
        samples: likewise.
        max_steps: likewise.
        environment: likewise.
    """
    av, output = check_video(output, samples, max_steps), Path(output)
    notes = []
    total = len(trace.actions)
    steps = total if max_steps is None else min(max_steps, total)
    replayed = replay(trace, agent, steps=steps, samples=samples, environment=environment)
    outcome = _outcome(replayed, steps, total)
    if outcome == "truncated":
        notes.append("the evaluation ended before this episode")
    if weights_frames != trace.evaluation:
        notes.append(
            f"the episode was played at {trace.evaluation:,} training frames; the values shown are "
            f"those of the weights at {weights_frames:,}"
        )
    caption = _caption(trace, agent, weights_frames, samples, replayed.actions)
    rate = STEPS_PER_SECOND[parse_environment(trace.environment)[0]]
    with _atomic_file(output) as path:
        shown = screens(trace, replayed, steps, environment)
        pictures = _pictures(trace, replayed, caption, steps, outcome, shown, hold=rate)
        frames = _encode(av, path, rate, pictures)
    return RenderedVideo(
        output, frames, frames / rate, trace.score, trace, weights_frames, tuple(notes)
    )


def check_video(output: Path, samples: int = 32, max_steps: int | None = None) -> Any:
    """Return PyAV, once the arguments of a video are valid and all it needs is installed.

    Raises:
        ImportError: PyAV or Pillow is missing.
        ValueError: an argument is out of range.
    """
    av = import_extra("av", "video")
    import_extra("PIL.Image", "video")
    output = Path(output)
    if output.suffix.lower() != ".mp4":
        raise ValueError(f"expected an output that ends in .mp4, got {output}")
    if samples < 1:
        raise ValueError(f"expected at least 1 noise sample, got {samples}")
    if max_steps is not None and max_steps < 1:
        raise ValueError(f"expected max_steps of at least 1, got {max_steps}")
    return av


def _outcome(episode: ReplayedEpisode, steps: int, total: int) -> str:
    if steps < total:
        return "shown"
    return "game over" if episode.ended else "truncated"


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
    shown: Iterator[NDArray[np.uint8]],
    *,
    hold: int,
) -> Iterator[Image]:
    """One picture for each step, then the end `hold` times."""
    from noisynet.watch.distribution_panel import DistributionPanel
    from noisynet.watch.panel import Panel

    panel, distributions = None, None
    for number, screen in enumerate(shown):
        if panel is None:
            panel = Panel(caption, replayed, trace.actions, len(screen) * _enlargement(screen))
            if replayed.values.distribution is not None:
                distributions = DistributionPanel(caption, replayed, trace.actions, panel.height)
        state = min(number, steps - 1)
        panels = [panel.draw(state, None if number < steps else outcome)]
        panels += [distributions.draw(state)] if distributions else []
        picture = _beside(screen, *panels)
        yield from (picture for _ in range(1 if number < steps else hold))


def _enlargement(screen: NDArray[np.uint8]) -> int:
    """An integer, so that pixels stay square."""
    height: int = screen.shape[0]
    return max(1, -(-_MIN_GAME_HEIGHT // height))


def _beside(screen: NDArray[np.uint8], *panels: Image) -> Image:
    """The enlarged screen to the left of the panels; both sides are even, as H.264 requires."""
    from PIL import Image

    scale = _enlargement(screen)
    game = Image.fromarray(screen)
    game = game.resize((game.width * scale, game.height * scale), Image.Resampling.NEAREST)
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


@contextmanager
def _atomic_file(output: Path) -> Iterator[Path]:
    """A temporary path that is renamed to `output` on success and deleted on failure."""
    with storage_errors("write", output):
        output.parent.mkdir(parents=True, exist_ok=True)
        temporary = temporary_name(output)
        try:
            yield temporary
            temporary.replace(output)
        except BaseException:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise


def _encode(av: Any, path: Path, rate: int, pictures: Iterator[Image]) -> int:
    """Write pictures as mp4, in H.264 if PyAV has it; returns their number."""
    count, stream = 0, None
    with av.open(str(path), "w", format="mp4", options={"movflags": "+faststart"}) as container:
        for count, picture in enumerate(pictures, start=1):
            if stream is None:
                stream = _stream(av, container, rate, picture.size)
            frame = av.VideoFrame.from_image(picture)
            frame = frame.reformat(format="yuv420p", dst_colorspace=_BT709)
            frame.pts, frame.time_base = count - 1, Fraction(1, rate)
            container.mux(stream.encode(frame))
        if stream is not None:
            container.mux(stream.encode())
    return count


def _stream(av: Any, container: Any, rate: int, size: tuple[int, int]) -> Any:
    if "libx264" in av.codec.codecs_available:
        stream = container.add_stream(
            "libx264", rate=rate, options={"crf": "18", "preset": "veryfast"}
        )
    else:
        stream = container.add_stream("mpeg4", rate=rate, options={"qscale": "3"})
    stream.width, stream.height = size
    stream.pix_fmt = "yuv420p"
    context = stream.codec_context
    context.color_primaries = context.color_trc = context.colorspace = _BT709
    context.color_range = _LIMITED_RANGE
    return stream
