"""Videos of traced episodes, next to the spread of the agent's values under noise."""

from noisynet.watch.episode import ReplayMismatch
from noisynet.watch.video import RenderedVideo, render_episode

__all__ = ["RenderedVideo", "ReplayMismatch", "render_episode"]
