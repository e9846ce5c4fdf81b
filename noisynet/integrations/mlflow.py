"""Runs on pages of MLflow."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

from noisynet.integrations.tracker import Tracker

_TAG: Final = "noisynet.page"  # MLflow chooses the ids of its runs itself


class MlflowTracker(Tracker):
    """Sends the metrics of training to MLflow.

    MLflow's own environment variables apply, such as `MLFLOW_TRACKING_URI`.
    """

    library = "mlflow"
    _client: Any = None
    _run_id = ""
    _last: dict[str, int]

    def _open(self, page: str, settings: dict[str, Any], folder: Path | None) -> int:  # noqa: ARG002
        client = self._client = self._library.MlflowClient()
        known = client.get_experiment_by_name(self.project)
        experiment = (
            client.create_experiment(self.project) if known is None else known.experiment_id
        )
        found = client.search_runs([experiment], f"tags.`{_TAG}` = '{page}'")
        run = found[0] if found else client.create_run(experiment, tags={_TAG: page}, run_name=page)
        self._run_id = run.info.run_id
        client.update_run(self._run_id, status="RUNNING")
        # A parameter cannot be changed, and the budget of a resumed run may be another.
        new = {key: str(value) for key, value in settings.items() if key not in run.data.params}
        parameters = [self._library.entities.Param(key, value) for key, value in new.items()]
        client.log_batch(self._run_id, params=parameters)
        # The metrics of a frame are not stored at once, so that each has a last frame of its own.
        self._last = {
            key: max(metric.step for metric in client.get_metric_history(self._run_id, key))
            for key in run.data.metrics
        }
        return -1

    def _send(self, numbers: dict[str, float], frames: int) -> None:
        now = int(time.time() * 1000)
        metrics = [
            self._library.entities.Metric(key, value, now, frames)
            for key, value in numbers.items()
            if frames > self._last.get(key, -1)
        ]
        self._client.log_batch(self._run_id, metrics=metrics)

    def _close(self) -> None:
        if self._client is not None:
            self._client.set_terminated(self._run_id)
