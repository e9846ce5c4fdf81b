"""Observers of a run: they are told how it goes, and change nothing."""

from __future__ import annotations

from typing import Any

from torch.utils.tensorboard import SummaryWriter

from noisynet.runs import RunFolder


class TensorBoard:
    """Writes the metrics as TensorBoard events under the run's `tensorboard/`.

    Args:
        folder: the run.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._writer = SummaryWriter(str(folder.path / "tensorboard"))

    def logged(self, row: dict[str, Any], steps_per_second: float) -> None:
        """Write a row of training metrics."""
        for key in ("score_last", "score_mean_100", "loss"):
            if row[key] is not None:
                self._writer.add_scalar(f"train/{key}", row[key], row["frames"])
        for layer, sigma in row["sigma"].items():
            self._writer.add_scalar(f"sigma/{layer}", sigma, row["frames"])
        self._writer.add_scalar("train/steps_per_second", steps_per_second, row["frames"])

    def evaluated(self, row: dict[str, Any]) -> None:
        """Write a score."""
        self._writer.add_scalar(f"evaluation/noise_{row['noise']}", row["score"], row["frames"])
        self._writer.flush()

    def noted(self, message: str) -> None:
        """Notes are for people, not for curves."""

    def close(self) -> None:
        """Write what is left."""
        self._writer.close()
