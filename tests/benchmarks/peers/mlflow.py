"""MLflow with SQLite: each call is a transaction that is on disk when it returns."""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Callable
from typing import Any

TITLE = "MLflow, SQLite"
WATCH = "return"
DURABLE = "the call has returned: the transaction is committed, with fsync"

run: Any = None


def start(directory: str) -> Callable[..., Any]:
    global run
    import mlflow

    logging.getLogger("mlflow").setLevel(logging.ERROR)
    mlflow.set_tracking_uri(f"sqlite:///{directory}/mlflow.db")
    run = mlflow.start_run()
    return mlflow.log_metrics


def fill(curve: dict[str, list[float]]) -> None:
    """The same rows as from single calls, a thousand in a transaction: ten thousand calls would take minutes."""
    import mlflow
    from mlflow.entities import Metric

    client = mlflow.MlflowClient()
    batch: list[Metric] = []
    for step in range(len(next(iter(curve.values())))):
        now = int(time.time() * 1000)
        batch += [Metric(name, values[step], now, step) for name, values in curve.items()]
        if len(batch) >= 1000:
            client.log_batch(run.info.run_id, metrics=batch)
            batch = []
    client.log_batch(run.info.run_id, metrics=batch)


def finish() -> None:
    import mlflow

    mlflow.end_run()


def count(directory: str) -> int:
    with sqlite3.connect(os.path.join(directory, "mlflow.db")) as connection:
        return int(connection.execute("select count(*) from metrics").fetchone()[0])


def listing(directory: str, runs: int) -> Callable[[], Any]:
    """Rows as MLflow writes them, put into its tables at once: by its interface it would take half an hour."""
    start(directory)
    finish()
    import mlflow

    now = int(time.time() * 1000)
    names = [f"{number:032x}" for number in range(runs)]
    run = "insert into runs (run_uuid, name, source_type, user_id, status, start_time, end_time, lifecycle_stage,"
    run += " artifact_uri, experiment_id) values (?, ?, 'LOCAL', 'bench', 'FINISHED', ?, ?, 'active', '', 0)"
    metric = "insert into latest_metrics (key, value, timestamp, step, is_nan, run_uuid) values (?, 0.5, ?, 100, 0, ?)"
    with sqlite3.connect(os.path.join(directory, "mlflow.db")) as connection:
        connection.executemany(run, [(name, name, now, now) for name in names])
        connection.executemany(metric, [(f"metric_{key}", now, name) for name in names for key in range(10)])
    client = mlflow.MlflowClient()

    def ask() -> None:
        assert len(client.search_runs(["0"], max_results=runs)) == runs

    return ask


def chart(directory: str, points: int) -> Callable[[], Any]:
    start(directory)
    import mlflow

    now = int(time.time() * 1000)
    row = "insert into metrics (key, value, timestamp, step, is_nan, run_uuid) values ('loss', ?, ?, ?, 0, ?)"
    with sqlite3.connect(os.path.join(directory, "mlflow.db")) as connection:
        connection.executemany(row, [(step * 0.5, now + step, step, run.info.run_id) for step in range(points)])
    store = mlflow.tracking._tracking_service.utils._get_store()  # what answers the charts of its web pages

    def ask() -> None:
        assert len(store.get_metric_history_bulk_interval([run.info.run_id], "loss", 1000, None, None)) == 1000

    return ask
