"""Observers that write the metrics of a run for other tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from noisynet.extras import extra
from noisynet.loops.run_log import Observer
from noisynet.runs import RunFolder, read_metrics

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

_CURVES: Final = (
    *("score_last", "score_mean_100", "loss", "policy_loss", "value_loss", "entropy"),
    *("dropped_updates", "worker_deaths"),
)


class TensorBoard(Observer):
    """Writes the metrics as TensorBoard events to the run's `tensorboard/`.

    Args:
        folder: the run folder.

    Raises:
        ImportError: the package `tensorboard` is missing.
    """

    def __init__(self, folder: RunFolder) -> None:
        with extra("tensorboard"):
            from torch.utils.tensorboard import SummaryWriter
        self._make_writer = SummaryWriter
        self._folder = folder
        self._writer: SummaryWriter | None = None

    def started(self, frames: int) -> None:
        """Open the event file; hide the events after `frames`, which will be written again."""
        self._writer = self._make_writer(str(self._folder.path / "tensorboard"), purge_step=frames)
        # That hides events at this very frame, too; those in the logs are written again.
        now = [
            row for row in read_metrics(self._folder.metrics_path) if row.get("frames") == frames
        ]
        for row in now:
            if row["kind"] == "train":
                self._add_training(row)
            elif row["kind"] == "evaluation":
                self.evaluated(row)
        timed = [
            row for row in read_metrics(self._folder.timing_path) if row.get("frames") == frames
        ]
        for row in [row for row in timed if row["kind"] == "train"][-1:]:
            self._add("train/steps_per_second", row["steps_per_second"], row)
        self._flush()

    def logged(self, row: dict[str, Any], steps_per_second: float) -> None:
        """Write a row of training metrics."""
        self._add_training(row)
        self._add("train/steps_per_second", steps_per_second, row)
        self._flush()

    def evaluated(self, row: dict[str, Any]) -> None:
        """Write the score of an evaluation."""
        self._add(f"evaluation/noise_{row['noise']}", row["score"], row)
        self._flush()

    def _add_training(self, row: dict[str, Any]) -> None:
        for key in _CURVES:
            if row.get(key) is not None:
                self._add(f"train/{key}", row[key], row)
        for layer, sigma in row["sigma"].items():
            self._add(f"sigma/{layer}", sigma, row)

    def _add(self, name: str, value: float, row: dict[str, Any]) -> None:
        assert self._writer is not None, "started must be called first"
        self._writer.add_scalar(name, value, row["frames"])

    def _flush(self) -> None:
        """Flush at once: a run killed after its next checkpoint does not write them again."""
        assert self._writer is not None
        self._writer.flush()

    def close(self) -> None:
        """Close the event file."""
        if self._writer is not None:
            self._writer.close()
