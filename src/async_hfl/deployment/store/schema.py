"""The SQLite database of a state directory: its tables, its format version, and errors of the disk."""

from __future__ import annotations

import os
import platform
import sqlite3
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote

import msgspec
import numpy as np

from async_hfl.core.errors import DataError

FORMAT = 3
"""Incremented whenever older state directories cannot be read correctly any more, as when a stored class is renamed."""
DATABASE = "node.db"
PAYLOADS = "payloads"
SPOOL = "spool"
BUILDS = "made with"
"""Key of the fact that lists the versions and processors of all processes that wrote to the directory."""
EXIT_DISK_FAILED = 74

_TABLES = """
CREATE TABLE facts (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE log (number INTEGER PRIMARY KEY, event BLOB NOT NULL, effects BLOB);
CREATE TABLE snapshots (number INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE journal (number INTEGER PRIMARY KEY, line BLOB NOT NULL);
CREATE TABLE payloads (digest BLOB PRIMARY KEY, size INTEGER NOT NULL, last INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX payloads_last ON payloads (last);
CREATE TABLE bodies (digest BLOB PRIMARY KEY, body BLOB NOT NULL);
"""


class StateDirectoryError(DataError):
    """A state directory is in use, damaged or of another version."""


class DiskFull(StateDirectoryError):
    """The disk is full. Everything committed is complete; nothing uncommitted has had any effect on other nodes."""


def end_process(why: str) -> NoReturn:
    """Exit at once after a failed write or sync.

    The kernel may have discarded the pages, so the contents of the disk are unknown, and any further step could rely on
    data that was not written. The next process reads what is really on the disk.
    """
    sys.stderr.write(
        f"async-hfl: the disk failed ({why}); this node exits at once. Check the disk, then start the node again\n"
    )
    sys.stderr.flush()
    os._exit(EXIT_DISK_FAILED)


def this_build() -> dict[str, str]:
    """Return versions and processor of this process. A replay is exact to the bit only if they are the same."""
    processor = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), processor)
    except OSError:
        pass  # not Linux
    return {
        "async_hfl": version("async-hfl"),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "processor": processor,
    }


def open_for_writing(path: Path) -> sqlite3.Connection:
    # A commit may run on a thread, so that a slow disk does not delay heartbeats. Threads never use it concurrently.
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    if database.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
        raise StateDirectoryError(f"{path.parent}: this file system has no shared memory for SQLite; use a local disk")
    database.execute("PRAGMA synchronous = FULL")
    if database.execute("PRAGMA user_version").fetchone()[0] == 0:
        database.execute("BEGIN")
        for statement in _TABLES.split(";"):
            database.execute(statement)
        database.execute(f"PRAGMA user_version = {FORMAT}")
        database.execute("COMMIT")
    _check_format(database, path)
    return database


def open_for_reading(path: Path) -> sqlite3.Connection:
    """Open the database as it is now, unaffected by later writes. The directory may be read-only."""
    if not path.is_file():
        raise StateDirectoryError(f"{path.parent}: not the state directory of a node (there is no {path.name})")
    try:
        return _open_read_only(path, "mode=ro")
    except sqlite3.OperationalError:
        if path.with_name(f"{path.name}-wal").exists():
            raise
        # No process is writing, and SQLite cannot create the shared-memory files in a read-only directory.
        return _open_read_only(path, "mode=ro&immutable=1")


def read_fact(database: sqlite3.Connection, key: str) -> Any:
    row = database.execute("SELECT value FROM facts WHERE key = ?", (key,)).fetchone()
    return None if row is None else msgspec.msgpack.decode(row[0])


def _open_read_only(path: Path, mode: str) -> sqlite3.Connection:
    database = sqlite3.connect(f"file:{quote(str(path))}?{mode}", uri=True, isolation_level=None)
    try:
        database.execute("BEGIN")
        _check_format(database, path)
    except BaseException:
        database.close()
        raise
    return database


def _check_format(database: sqlite3.Connection, path: Path) -> None:
    """Refuse another format, and name the version of async-hfl that wrote it."""
    found = int(database.execute("PRAGMA user_version").fetchone()[0])
    if found == FORMAT:
        return
    builds = read_fact(database, BUILDS) or []
    writer = f"async-hfl {builds[-1]['async_hfl']}" if builds else "another version of async-hfl"
    database.close()
    raise StateDirectoryError(
        f"{path.parent}: written by {writer} in format {found}; this version reads format {FORMAT}. Use {writer} to "
        "open it, or give a new state directory to join as a new node"
    )
