"""Files of kept results, one line of JSON each. A line is appended whole or not at all, whenever the writer is killed.

Of rows with the same labels the last one counts. Several processes may append to a file at the same time.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from async_hfl.core.errors import DataError, UserError
from async_hfl.experiments.results.kept_run import KeptRun

_BLOCK = 1 << 16


def read_rows(files: Iterable[Path]) -> Iterator[KeptRun]:
    """Yield the rows of several files. A last line without an end is what a killed process left: it does not count."""
    for path in files:
        try:
            lines = path.read_bytes().split(b"\n")[:-1]
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({error.strerror}); give a file that --rows wrote") from error
        for number, line in enumerate(lines, 1):
            try:
                yield _DECODER.decode(line)
            except msgspec.MsgspecError as error:
                raise DataError(f"{path}, line {number}: not a kept result ({error}); remove the line") from error


_DECODER = msgspec.json.Decoder(KeptRun)


def append_row(path: Path, row: KeptRun) -> None:
    """Append a row and wait until it is on the disk."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        os.ftruncate(handle, _whole_lines(handle))
        with os.fdopen(os.dup(handle), "ab") as file:
            file.write(msgspec.json.encode(row) + b"\n")
            file.flush()
            os.fsync(file.fileno())
    finally:
        os.close(handle)


def _whole_lines(handle: int) -> int:
    """Return the length of the file up to the end of its last whole line."""
    end = os.fstat(handle).st_size
    while end:
        start = max(0, end - _BLOCK)
        place = os.pread(handle, end - start, start).rfind(b"\n")
        if place >= 0:
            return start + place + 1
        end = start
    return 0
