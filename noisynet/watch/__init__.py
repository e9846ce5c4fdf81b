"""Videos of traced episodes, next to the spread of the agent's values under noise."""

from noisynet.watch.episode import ReplayMismatch
from noisynet.watch.video import RenderedVideo, check_video, render_episode, render_trace

__all__ = ["RenderedVideo", "ReplayMismatch", "check_video", "render_episode", "render_trace"]
