"""A run on disk.

manifest.json       what was asked for: settings as resolved, seed, versions
epochs.csv          one row per evaluated cloud epoch
events.jsonl        the event stream (events_file.py)
checkpoint.msgpack  the newest checkpoint; killed at any moment, a run goes on from here
model.safetensors   the newest global model that was checkpointed, the final one in the end
devices.csv         what each device has spent: seconds computing, sending, receiving, and joules
timings.json        what this machine took, decision by decision; no two runs have the same
summary.json        the result; its presence means that the run is complete
"""

from __future__ import annotations

import csv
import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from async_hfl.core.errors import RunDirectoryError

FORMAT = 1
_BUFFER = 8192
EPOCH_COLUMNS = ("at", "epoch", "updates", "metric", "loss", "target_reached", "bytes_total", "bytes_models_up")
_NAMES = (
    "manifest.json",
    "epochs.csv",
    "events.jsonl",
    "checkpoint.msgpack",
    "model.safetensors",
    "devices.csv",
    "timings.json",
    "summary.json",
)
DEVICE_COLUMNS = ("device", "compute_s", "transmit_s", "receive_s", "energy_j")
RUN_FILES = frozenset(_NAMES) | {f"{name.partition('.')[0]}.part" for name in _NAMES}
"""Every name that a run may leave in its directory, files half written included."""
_INTEGERS = {"epoch", "updates", "target_reached", "bytes_total", "bytes_models_up"}


class RunDirectory:
    def __init__(self, path: Path) -> None:
        self.path = path
        (
            self.manifest,
            self.epochs,
            self.events,
            self.checkpoint,
            self.model,
            self.devices,
            self.timings,
            self.summary,
        ) = (path / name for name in _NAMES)

    @staticmethod
    def create(path: Path, manifest: dict[str, Any]) -> RunDirectory:
        run = RunDirectory(path)
        try:
            if path.is_dir() and any(path.iterdir()):
                raise RunDirectoryError(f"{path}: not empty; give another --out, or `async-hfl resume {path}`")
            path.mkdir(parents=True, exist_ok=True)
            _write_json(run.manifest, {"format": FORMAT, **manifest})
        except OSError as error:
            raise RunDirectoryError(f"{path}: cannot be made ({error.strerror}); give another --out") from error
        return run

    @staticmethod
    def open(path: Path) -> RunDirectory:
        run = RunDirectory(path)
        if not run.manifest.is_file():
            raise RunDirectoryError(f"{path}: not a run directory (no manifest.json); `async-hfl run` makes one")
        found = run.read_manifest().get("format")
        if found != FORMAT:
            raise RunDirectoryError(f"{path}: written in format {found}, this version reads {FORMAT}")
        return run

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One writer at a time: two would ruin the run."""
        handle = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError as error:
            raise RunDirectoryError(f"{self.path}: another process is writing this run; wait for it to end") from error
        finally:
            os.close(handle)

    def read_manifest(self) -> dict[str, Any]:
        return _read_json(self.manifest)

    def amend_manifest(self, **facts: Any) -> None:
        """What is known only later."""
        _write_json(self.manifest, {**self.read_manifest(), **facts})

    def read_summary(self) -> dict[str, Any] | None:
        return _read_json(self.summary) if self.summary.is_file() else None

    def write_summary(self, summary: dict[str, Any]) -> None:
        _write_json(self.summary, summary)

    def read_timings(self) -> dict[str, Any] | None:
        return _read_json(self.timings) if self.timings.is_file() else None

    def write_timings(self, timings: dict[str, Any]) -> None:
        _write_json(self.timings, timings)

    def read_devices(self) -> list[dict[str, float]]:
        """Rows of devices.csv; none where it is not there (yet)."""
        if not self.devices.is_file():
            return []
        try:
            with self.devices.open(newline="") as file:
                return [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]
        except (ValueError, TypeError) as error:
            raise RunDirectoryError(f"{self.devices}: not rows of numbers ({error})") from error

    def write_devices(self, rows: Iterable[Sequence[float]]) -> None:
        """Numbers after the device's own, as DEVICE_COLUMNS names them."""
        with self.devices.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(DEVICE_COLUMNS)
            writer.writerows([device, *map(repr, row)] for device, row in enumerate(rows))

    def read_epochs(self) -> Iterator[dict[str, float]]:
        """Rows of epochs.csv; a torn last line is left out."""
        if not self.epochs.is_file():
            return
        with self.epochs.open(newline="") as file:
            for number, row in enumerate(csv.DictReader(line for line in file if line.endswith("\n")), 2):
                try:
                    numbers = {key: int(value) if key in _INTEGERS else float(value) for key, value in row.items()}
                except (ValueError, TypeError) as error:
                    raise RunDirectoryError(f"{self.epochs}, line {number}: not a row of numbers ({error})") from error
                yield numbers


class EpochsWriter:
    """epochs.csv, flushed row by row so that a page or a person can follow a run."""

    def __init__(self, path: Path) -> None:
        begun = path.exists() and path.stat().st_size > 0
        self._file = path.open("a", buffering=_BUFFER, newline="")
        self._writer = csv.writer(self._file, lineterminator="\n")
        if not begun:
            self._writer.writerow(EPOCH_COLUMNS)

    def write(self, row: tuple[Any, ...]) -> None:
        self._writer.writerow([repr(value) if isinstance(value, float) else int(value) for value in row])
        self._file.flush()

    def sync(self) -> int:
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        self._file.close()


def _write_json(path: Path, data: dict[str, Any]) -> None:
    """Strict JSON: what is not a number becomes null, where Python's own writer would put NaN."""
    beside = path.with_suffix(".part")
    with beside.open("wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(data), indent=1) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise RunDirectoryError(f"{path}: cannot be read ({error})") from error
    if not isinstance(data, dict):
        raise RunDirectoryError(f"{path}: not a JSON object")
    return data
