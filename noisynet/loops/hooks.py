"""Metrics of a run as tagged numbers, for other tools; and the observer for TensorBoard."""

from __future__ import annotations

from collections.abc import Iterator
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
_SPEED: Final = "train/steps_per_second"
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


def tagged(
    row: dict[str, Any], config: Config | ActorCriticConfig, steps_per_second: float | None = None
) -> dict[str, float]:
    """Return the numbers of a row of metrics by tag, such as "train/loss".

    An evaluation has its score if it is in the mode that the agent is scored with. For noisy agents
    it also has the score of its mode.
    """
    if row["kind"] == "evaluation":
        if not isinstance(config.exploration, NoisyWeights | NoisyRollouts):
            return {_SCORE: row["score"]}
        found = {f"evaluation/score_noise_{row['noise']}": row["score"]}
        scored = row["noise"] == config.exploration.evaluation
        return found | ({_SCORE: row["score"]} if scored else {})
    found = {tag: row[key] for key, tag in _TAGS.items() if row.get(key) is not None}
    found |= {f"sigma/{layer}": sigma for layer, sigma in row["sigma"].items()}
    return found | ({} if steps_per_second is None else {_SPEED: steps_per_second})


def logged_numbers(
    folder: RunFolder, config: Config | ActorCriticConfig
) -> Iterator[tuple[int, dict[str, float]]]:
    """The frame and the tagged numbers of each row of training and evaluation in a run's logs."""
    timed = read_metrics(folder.timing_path)
    speeds = {row["frames"]: row["steps_per_second"] for row in timed if row["kind"] == "train"}
    for row in read_metrics(folder.metrics_path):
        if row["kind"] in ("train", "evaluation"):
            speed = speeds.get(row["frames"]) if row["kind"] == "train" else None
            yield row["frames"], tagged(row, config, speed)


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
        for at, numbers in logged_numbers(self._folder, self._config):
            if at == frames:
                self._add(numbers, at)

    def logged(self, row: dict[str, Any], steps_per_second: float) -> None:
        """Write a row of training metrics."""
        self._add(tagged(row, self._config, steps_per_second), row["frames"])

    def evaluated(self, row: dict[str, Any]) -> None:
        """Write the score of an evaluation; for noisy agents also the score of each mode."""
        self._add(tagged(row, self._config), row["frames"])

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

    def _add(self, numbers: dict[str, float], frames: int) -> None:
        """Write and flush: a run killed after its next checkpoint does not write them again."""
        assert self._writer is not None, "started must be called first"
        for tag, value in numbers.items():
            self._writer.add_scalar(tag, value, frames)
        self._writer.flush()

    def close(self) -> None:
        """Close the event file."""
        if self._writer is not None:
            self._writer.close()
