"""Export of a run's curves, settings and result to TensorBoard and MLflow.

Timestamps are virtual time, so "relative time" in either tool is time in the simulated network.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from async_hfl.core.errors import UserError
from async_hfl.journal.run_directory import RunDirectory
from async_hfl.reports.data.flat_tables import flat_tables
from async_hfl.reports.export.optional_imports import needed
from async_hfl.reports.tables.formatting import flat_settings
from async_hfl.simulation.recorded_run import Progress

_CURVES = ("metric", "loss", "updates", "bytes_total", "bytes_models_up")
_RESULTS = ("time_to_target_s", "first_crossing_s", "bytes_to_target", "final_metric", "device_updates", "virtual_s")
_ARTIFACTS = ("manifest", "summary", "epochs", "timings", "devices")
_MOST_MLFLOW_PARAM = 6000
_MLFLOW_BATCH = 900


class TensorBoardWriter:
    """Writes the evaluations of a run, during the run or afterwards."""

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        boards = needed("tensorboardX", "tensorboard", "TensorBoard")
        self._began = _began(manifest)
        try:
            self._writer = boards.SummaryWriter(str(folder))
        except OSError as error:
            raise UserError(f"{folder}: cannot be written ({error.strerror}); give another directory") from error
        rows = [f"| {key} | {value} |" for key, value in flat_settings(manifest["settings"]).items()]
        text = "\n".join(["| setting | value |", "|---|---|", *rows])
        self._writer.add_text("settings", text, 0, walltime=self._began)

    def epoch(self, at: float, epoch: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            if math.isfinite(value):
                self._writer.add_scalar(name, value, epoch, walltime=self._began + at)

    def close(self) -> None:
        self._writer.close()


class RunTracker:
    """Sends a run to TensorBoard while it is running, and to MLflow when it has ended."""

    def __init__(self, tensorboard: Path | None, mlflow: str | None) -> None:
        # Checked now: an hour into the simulation is too late to report a missing library.
        if tensorboard is not None:
            needed("tensorboardX", "tensorboard", "TensorBoard")
        if mlflow is not None:
            _mlflow_client(mlflow)
        self._folder, self._uri = tensorboard, mlflow
        self._writer: TensorBoardWriter | None = None

    def started(self, name: str, manifest: dict[str, Any]) -> None:
        if self._folder is not None:
            self._writer = TensorBoardWriter(self._folder / name, manifest)

    def epoch(self, progress: Progress) -> None:
        if self._writer is not None:
            values = {name: float(getattr(progress, name)) for name in _CURVES}
            self._writer.epoch(progress.at, progress.epoch, values)

    def ended(self, directory: RunDirectory | None) -> None:
        """Finish the export; `directory` is None if the run did not complete."""
        if self._writer is not None:
            self._writer.close()
        if self._uri is not None and directory is not None:
            export_mlflow(directory, self._uri)


def export_tensorboard(directory: RunDirectory, out: Path) -> dict[str, int]:
    directory.check_journal()
    writer = TensorBoardWriter(out, directory.read_manifest())
    count = 0
    for row in directory.read_epochs():
        writer.epoch(row["at"], int(row["epoch"]), {name: float(row[name]) for name in _CURVES})
        count += 1
    classes = 0
    for at, epoch, name, value in flat_tables(directory)["classes"].rows():
        writer.epoch(at, epoch, {f"classes/{name}": value})
        classes += 1
    writer.close()
    return {"epochs": count, "classes": classes}


def export_mlflow(directory: RunDirectory, uri: str, experiment: str = "async-hfl") -> dict[str, Any]:
    """Create a run in MLflow with parameters, metrics by epoch and the small files of the run directory."""
    directory.check_journal()
    mlflow, client = _mlflow_client(uri)
    entities = needed("mlflow.entities", "mlflow", "MLflow")
    manifest, summary = directory.read_manifest(), directory.read_summary()
    try:
        known = client.get_experiment_by_name(experiment)
        place = client.create_experiment(experiment) if known is None else known.experiment_id
        began = _began(manifest)
        made = client.create_run(place, start_time=int(1000 * began), run_name=directory.path.resolve().name)
        number = made.info.run_id
        names = {key: manifest[key] for key in ("task", "method", "network", "preset", "seed")}
        for key, value in {**names, **flat_settings(manifest["settings"])}.items():
            client.log_param(number, key, str(value)[:_MOST_MLFLOW_PARAM])
        count, batch = 0, []
        for name, value, at, epoch in _measures(directory, summary):
            batch.append(entities.Metric(name, value, int(1000 * (began + at)), epoch))
            count += 1
            if len(batch) == _MLFLOW_BATCH:
                client.log_batch(number, metrics=batch)
                batch = []
        client.log_batch(number, metrics=batch)
        for name in _ARTIFACTS:
            file: Path = getattr(directory, name)
            if file.is_file():
                client.log_artifact(number, str(file))
        client.set_terminated(number, "FINISHED" if summary is not None else "KILLED")
    except mlflow.exceptions.MlflowException as error:
        raise UserError(f"MLflow at {uri} reports: {error}") from error
    return {"mlflow_run": number, "metrics": count}


def _mlflow_client(uri: str) -> tuple[Any, Any]:
    if "://" not in uri:
        raise UserError(f"MLflow at {uri!r}: give a tracking URI, such as http://localhost:5000 or sqlite:///{uri}.db")
    mlflow = needed("mlflow", "mlflow", "MLflow")
    try:
        return mlflow, mlflow.MlflowClient(tracking_uri=uri)
    except mlflow.exceptions.MlflowException as error:
        raise UserError(f"MLflow at {uri} reports: {error}") from error


def _measures(directory: RunDirectory, summary: dict[str, Any] | None) -> Iterator[tuple[str, float, float, int]]:
    at, epoch = 0.0, 0
    for row in directory.read_epochs():
        at, epoch = row["at"], int(row["epoch"])
        for name in _CURVES:
            if math.isfinite(row[name]):
                yield name, float(row[name]), at, epoch
    for name in _RESULTS:
        value = (summary or {}).get(name)
        if value is not None:
            yield name, float(value), at, epoch


def _began(manifest: dict[str, Any]) -> float:
    return datetime.datetime.fromisoformat(manifest["created"]).timestamp()
