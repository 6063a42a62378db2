"""The folder of a sweep, which holds all its state: complete and interrupted runs, failures and their reasons.

runs/ID/          a run directory
claims/ID         locked by the process that works on the run; the lock is released when the process ends
failures/ID.json  every failed attempt with its reason
discarded/        run directories that are being removed
broken/ID-N/      run directories that could be neither completed nor resumed, or have lost data since
"""

from __future__ import annotations

import datetime
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Self

from async_hfl.core.errors import RunDirectoryError, UserError
from async_hfl.journal.run_directory import RUN_FILES, RunDirectory

State = Literal["done", "damaged", "interrupted", "missing"]
"""damaged: complete, but its journal has lost data since. interrupted: can be resumed."""


class SweepFolder:
    def __init__(self, path: Path) -> None:
        self.path = path

    def make(self) -> Self:
        """Create the folder, unless it exists."""
        try:
            for name in ("runs", "claims", "failures"):
                (self.path / name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunDirectoryError(f"{self.path}: cannot be created ({error.strerror}); give another --out") from error
        return self

    def run(self, run: str) -> Path:
        return self.path / "runs" / run

    def state(self, run: str) -> State:
        directory = RunDirectory(self.run(run))
        if directory.summary.is_file():
            return "done" if directory.damage() is None else "damaged"
        return "interrupted" if directory.manifest.is_file() else "missing"

    def replacing(self, run: str) -> str:
        """Return the message that a damaged run is going to be replaced."""
        return f"{RunDirectory(self.run(run)).damage()}; the run is moved to {self.path / 'broken'} and made again"

    @contextmanager
    def claimed(self, run: str) -> Iterator[bool]:
        """Claim the run for this process; yields False if another process has claimed it."""
        handle = os.open(self.path / "claims" / run, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True
        finally:
            os.close(handle)

    def clear(self, run: str) -> None:
        """Remove the files of a process that was killed before it had written a manifest."""
        path = self.run(run)
        if not path.is_dir():
            return
        others = [entry.name for entry in path.iterdir() if entry.name not in RUN_FILES]
        if others:
            raise RunDirectoryError(f"{path}: contains other files ({', '.join(others[:3])}); give another --out")
        for entry in path.iterdir():
            entry.unlink()

    def set_aside(self, run: str) -> None:
        """Move the run directory out of the way, so that the run starts again."""
        aside = self.path / "broken"
        aside.mkdir(exist_ok=True)
        number = 1
        while (aside / f"{run}-{number}").exists():
            number += 1
        if self.run(run).exists():
            self.run(run).rename(aside / f"{run}-{number}")

    def remove(self, run: str) -> None:
        """Remove the run directory. It is moved away first, so that nobody ever sees a part of it."""
        gone = self.path / "discarded"
        gone.mkdir(exist_ok=True)
        if self.run(run).exists():
            self.run(run).rename(gone / f"{run}-{os.getpid()}")
        shutil.rmtree(gone, ignore_errors=True)

    def failures(self, run: str) -> list[dict[str, Any]]:
        path = self._failures(run)
        try:
            found: list[dict[str, Any]] = json.loads(path.read_bytes()) if path.is_file() else []
        except ValueError as error:
            raise UserError(f"{path}: not JSON ({error}); you can remove this file, it only lists failures") from error
        return found

    def record_failure(self, run: str, reason: str) -> None:
        path = self._failures(run)
        at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        partial = path.with_suffix(f".{os.getpid()}.part")
        partial.write_text(json.dumps([*self.failures(run), {"at": at, "reason": reason}], indent=1) + "\n")
        partial.replace(path)

    def _failures(self, run: str) -> Path:
        return self.path / "failures" / f"{run}.json"
