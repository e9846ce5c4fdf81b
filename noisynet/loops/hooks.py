"""Observers that write the metrics of a run for other tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from noisynet.config import ActorCriticConfig, Config, NoisyRollouts, NoisyWeights
from noisynet.extras import extra
from noisynet.loops.run_log import Observer
from noisynet.runs import RunFolder, read_metrics
from noisynet.runs.encoding import flatten
from noisynet.runs.files import open_folder, storage_errors

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

_SCORE: Final = "evaluation/score"
_TAGS: Final = {
    "score_last": "train/return",
    "score_mean_100": "train/return_mean_100",
    "length_mean_100": "train/length_mean_100",
    **{
        name: f"train/{name}"
        for name in (
            *("loss", "policy_loss", "value_loss", "q_mean", "gradient_norm", "entropy", "epsilon"),
            *("dropped_updates", "worker_deaths"),
        )
    },
}
"""Tags of the numbers in a row of training metrics; a row has those of its agent."""


class TensorBoard(Observer):
    """Writes the metrics as TensorBoard events to the run's `tensorboard/`.

    Args:
        folder: the run folder.
        config: configuration of the run; its settings are the hyper-parameters.

    Raises:
        ImportError: the package `tensorboard` is missing.
    """

    def __init__(self, folder: RunFolder, config: Config | ActorCriticConfig) -> None:
        with extra("tensorboard"):
            from torch.utils.tensorboard import SummaryWriter
        self._make_writer = SummaryWriter
        self._folder, self._config = folder, config
        self._score_noise: str | None = None
        if isinstance(config.exploration, NoisyWeights | NoisyRollouts):
            self._score_noise = config.exploration.evaluation
        self._writer: SummaryWriter | None = None

    def started(self, frames: int) -> None:
        """Open the event file; hide the events after `frames`, which will be written again."""
        events = self._folder.path / "tensorboard"
        with storage_errors("make", events):
            events.mkdir(exist_ok=True)
            with open_folder(events):  # a folder, and not a link to one
                self._writer = self._make_writer(str(events), purge_step=frames)
        self._add_settings()
        # That hides events at this very frame, too; those in the logs are written again.
        timed = read_metrics(self._folder.timing_path)
        speeds = {row["frames"]: row["steps_per_second"] for row in timed if row["kind"] == "train"}
        for row in read_metrics(self._folder.metrics_path):
            if row.get("frames") == frames and row["kind"] == "train":
                self.logged(row, speeds[frames])
            elif row.get("frames") == frames and row["kind"] == "evaluation":
                self.evaluated(row)

    def logged(self, row: dict[str, Any], steps_per_second: float) -> None:
        """Write a row of training metrics."""
        for key, tag in _TAGS.items():
            if row.get(key) is not None:
                self._add(tag, row[key], row)
        for layer, sigma in row["sigma"].items():
            self._add(f"sigma/{layer}", sigma, row)
        self._add("train/steps_per_second", steps_per_second, row)
        self._flush()

    def evaluated(self, row: dict[str, Any]) -> None:
        """Write the score of an evaluation; for noisy agents also the score of each mode."""
        if self._score_noise in (None, row["noise"]):
            self._add(_SCORE, row["score"], row)
        if self._score_noise is not None:
            self._add(f"evaluation/score_noise_{row['noise']}", row["score"], row)
        self._flush()

    def _add_settings(self) -> None:
        """Write the hyper-parameters, as torch's `add_hparams` would to a folder of its own."""
        from torch.utils.tensorboard.summary import hparams

        assert self._writer is not None
        settings = flatten(self._config.model_dump(mode="json"))
        plain = {
            key: value if isinstance(value, bool | int | float | str) else str(value)
            for key, value in settings.items()
        }
        for summary in hparams(plain, {_SCORE: 0.0}):
            self._writer._get_file_writer().add_summary(summary)

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
