"""Experience replay that stores each frame once.

`FrameStore` is the storage, in memory or memory-mapped. `UniformReplay` and `PrioritisedReplay`
sample `TransitionBatch`es from it.
"""

from noisynet.replay.columns import RowLayout, delete_columns
from noisynet.replay.frames import FrameStore
from noisynet.replay.prioritised import PrioritisedReplay
from noisynet.replay.sum_tree import SumTree
from noisynet.replay.transitions import TransitionBatch
from noisynet.replay.uniform import UniformReplay

__all__ = [
    "FrameStore",
    "PrioritisedReplay",
    "RowLayout",
    "SumTree",
    "TransitionBatch",
    "UniformReplay",
    "delete_columns",
]
