"""The directory of a run and the files in it.

manifest.json       the resolved settings, the seed and the versions of packages
epochs.csv          one row per evaluated cloud epoch
events.jsonl        the event stream (events_file.py)
checkpoint.msgpack  the last checkpoint, from which a run that was killed is resumed
model.safetensors   the global model of the last checkpoint, and finally of the end of the run
devices.csv         seconds of computing, sending and receiving, and energy, of each device
timings.json        wall-clock times of the decisions on this machine; differs from run to run
summary.json        the result; it exists only if the run is complete
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
from async_hfl.core.maths.milestones import Reached, Track
from async_hfl.journal.events_file import read_events
from async_hfl.journal.file_record import REMEDY, difference_of_content, difference_of_length, record_of
from async_hfl.journal.formats import FORMAT, foreign_format

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
"""All file names that a run may leave in its directory, unfinished files included."""
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
        self._verified: dict[Path, tuple[int, int]] = {}
        """Length and time of change of the files whose digest was found to be right."""

    @staticmethod
    def create(path: Path, manifest: dict[str, Any]) -> RunDirectory:
        run = RunDirectory(path)
        try:
            if path.is_dir() and any(path.iterdir()):
                raise RunDirectoryError(f"{path}: not empty; give another --out, or `async-hfl resume {path}`")
            path.mkdir(parents=True, exist_ok=True)
            _write_json(run.manifest, {"format": FORMAT, **manifest})
        except OSError as error:
            raise RunDirectoryError(f"{path}: cannot be created ({error.strerror}); give another --out") from error
        return run

    @staticmethod
    def open(path: Path) -> RunDirectory:
        run = RunDirectory(path)
        if not run.manifest.is_file():
            raise RunDirectoryError(f"{path}: not a run directory (no manifest.json); `async-hfl run` makes one")
        found = run.read_manifest().get("format")
        if found != FORMAT:
            raise RunDirectoryError(foreign_format(path, found))
        return run

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the directory: two processes that write to it would destroy the run."""
        handle = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError as error:
            raise RunDirectoryError(f"{self.path}: another process is writing to this run; wait for its end") from error
        finally:
            os.close(handle)

    def read_manifest(self) -> dict[str, Any]:
        return _read_json(self.manifest)

    def amend_manifest(self, **facts: Any) -> None:
        """Add facts that became known after the run began."""
        _write_json(self.manifest, {**self.read_manifest(), **facts})

    def read_summary(self) -> dict[str, Any] | None:
        return _read_json(self.summary) if self.summary.is_file() else None

    def write_summary(self, summary: dict[str, Any]) -> None:
        _write_json(self.summary, summary)

    def journal_records(self, events_digest: str) -> dict[str, dict[str, Any]]:
        """Return length and SHA-256 of the journal's files, for the summary; the files must be complete."""
        return {self.events.name: record_of(self.events, events_digest), self.epochs.name: record_of(self.epochs)}

    def damage(self) -> str | None:
        """Return what the journal of a complete run has lost, going by the lengths of its files alone; None if nothing.

        The journal of a run that is not complete may end anywhere."""
        for path, recorded in self._recorded():
            if lost := difference_of_length(path, recorded):
                return lost
        return None

    def check_lengths(self) -> None:
        """Raise RunDirectoryError if a file of a complete run's journal has lost data, judging by its length alone."""
        if lost := self.damage():
            raise RunDirectoryError(f"{lost}; {REMEDY}")

    def check_journal(self) -> None:
        """Raise RunDirectoryError if the run is complete and its journal is not what it was at the end of the run."""
        for path, _ in self._recorded():
            self._check(path)

    def read_events(self, *kinds: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield (kind, fields) as `events_file.read_events` does; nothing if a run has no events file yet.

        The file of a complete run is checked first."""
        self._check(self.events)
        return read_events(self.events, *kinds) if self.events.is_file() else iter(())

    def _recorded(self) -> list[tuple[Path, dict[str, Any]]]:
        """Return the files that the summary records; none if the run is not complete or older than these records."""
        summary = self.read_summary() or {}
        return [(self.path / name, recorded) for name, recorded in summary.get("journal", {}).items()]

    def _check(self, path: Path) -> None:
        recorded = dict(self._recorded()).get(path)
        if recorded is None:
            return
        if lost := difference_of_length(path, recorded):
            raise RunDirectoryError(f"{lost}; {REMEDY}")
        found = path.stat()
        version = (found.st_size, found.st_mtime_ns)
        if self._verified.get(path) == version:
            return
        if changed := difference_of_content(path, recorded):
            raise RunDirectoryError(f"{changed}; {REMEDY}")
        self._verified[path] = version

    def read_timings(self) -> dict[str, Any] | None:
        return _read_json(self.timings) if self.timings.is_file() else None

    def write_timings(self, timings: dict[str, Any]) -> None:
        _write_json(self.timings, timings)

    def read_devices(self) -> list[dict[str, float]]:
        """Return the rows of devices.csv; none if the file does not exist (yet)."""
        if not self.devices.is_file():
            return []
        try:
            with self.devices.open(newline="") as file:
                return [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]
        except (ValueError, TypeError) as error:
            raise RunDirectoryError(f"{self.devices}: not rows of numbers ({error})") from error

    def write_devices(self, rows: Iterable[Sequence[float]]) -> None:
        """Write one row per device: the columns of DEVICE_COLUMNS after the device's number."""
        with self.devices.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(DEVICE_COLUMNS)
            writer.writerows([device, *map(repr, row)] for device, row in enumerate(rows))

    def read_epochs(self) -> Iterator[dict[str, float]]:
        """Yield the rows of epochs.csv; an incomplete last line is left out. The file of a complete run is checked
        first."""
        self._check(self.epochs)
        return self._epoch_rows()

    def track(self, end: Reached | None = None) -> Track:
        """Return the evaluations of the run, and its state at the end; `end` None: at the last evaluation."""
        rows = list(self.read_epochs())
        states = [Reached(row["at"], row["bytes_total"], row["bytes_models_up"], row["updates"]) for row in rows]
        last = states[-1] if states else Reached(0.0, 0, 0, 0)
        return Track(states, [row["metric"] for row in rows], end or last)

    def _epoch_rows(self) -> Iterator[dict[str, float]]:
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
    """Writes epochs.csv and flushes it after every row, so that a run can be followed."""

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
    """Write strict JSON: NaN becomes null, where Python's json module would write NaN."""
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
