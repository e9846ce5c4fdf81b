"""Watching a run: a traced episode as a video, beside what the noise does to its values."""

from noisynet.watch.episode import ReplayDiffers
from noisynet.watch.video import Rendered, render_episode

__all__ = ["Rendered", "ReplayDiffers", "render_episode"]
