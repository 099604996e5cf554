"""Observers that write a run into the logs of other tools; each needs an extra of this package."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedns.core.errors import ConfigError
from fedns.core.history import History, Observer, Record


def _numbers(record: Record) -> Iterator[tuple[str, float]]:
    """The numbers of a round by name, without those that are unknown."""
    for name, value in record.as_dict().items():
        if name not in ("round", "note") and isinstance(value, int | float) and math.isfinite(value):
            yield name, float(value)


class TensorBoardObserver(Observer):
    """Writes every round's numbers for TensorBoard (`pip install 'fedns[tensorboard]'`).

    - folder: of the event files; `tensorboard --logdir` shows it.
    """

    def __init__(self, folder: str | Path) -> None:
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise ConfigError("TensorBoardObserver needs tensorboardX: pip install 'fedns[tensorboard]'") from None
        self._writer: Any = SummaryWriter(str(folder))

    def on_round(self, record: Record, state: Any) -> None:
        for name, value in _numbers(record):
            self._writer.add_scalar(name, value, record.round)

    def on_end(self, history: History) -> None:
        self._writer.add_text("ending", history.stop_reason)
        self._writer.close()


class MlflowObserver(Observer):
    """Logs every round's numbers to MLflow (`pip install 'fedns[mlflow]'`), in the run that is active there, or a new one.

    - parameters: settings to log with them.
    """

    def __init__(self, **parameters: Any) -> None:
        try:
            import mlflow
        except ImportError:
            raise ConfigError("MlflowObserver needs mlflow: pip install 'fedns[mlflow]'") from None
        self._mlflow: Any = mlflow
        self._begun = mlflow.active_run() is None
        self.run_id: str = (mlflow.active_run() or mlflow.start_run()).info.run_id
        mlflow.log_params(parameters)

    def on_round(self, record: Record, state: Any) -> None:
        self._mlflow.log_metrics(dict(_numbers(record)), step=record.round, run_id=self.run_id)

    def on_end(self, history: History) -> None:
        self._mlflow.set_tag("ending", history.stop_reason)
        self._mlflow.log_param("method", history.method)
        if self._begun:
            self._mlflow.end_run()
