"""The SQLite database of a state directory: its tables, its format version, and errors of the disk."""

from __future__ import annotations

import os
import platform
import sqlite3
import sys
import zlib
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote

import msgspec
import numpy as np

from async_hfl.core.errors import DataError

FORMAT = 4
"""Incremented whenever a release writes what earlier releases cannot read correctly, as when a stored class is renamed.
"""
OLDEST_FORMAT = 2
"""The oldest format that this version reads. A directory is converted when a node opens it for writing."""
_FIRST_WITH_CHECKSUMS = 4
REPLAY_FROM = "replay from"
"""Key of the fact that names the snapshot before which an earlier release handled the events."""
DATABASE = "node.db"
PAYLOADS = "payloads"
SPOOL = "spool"
BUILDS = "made with"
"""Key of the fact that lists the versions and processors of all processes that wrote to the directory."""
EXIT_DISK_FAILED = 74

_TABLES = """
CREATE TABLE facts (key TEXT PRIMARY KEY, value BLOB NOT NULL, crc INTEGER) WITHOUT ROWID;
CREATE TABLE log (number INTEGER PRIMARY KEY, event BLOB NOT NULL, effects BLOB, crc INTEGER);
CREATE TABLE snapshots (number INTEGER PRIMARY KEY, body BLOB NOT NULL, crc INTEGER);
CREATE TABLE journal (number INTEGER PRIMARY KEY, line BLOB NOT NULL, crc INTEGER);
CREATE TABLE payloads (digest BLOB PRIMARY KEY, size INTEGER NOT NULL, last INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX payloads_last ON payloads (last);
CREATE TABLE bodies (digest BLOB PRIMARY KEY, body BLOB NOT NULL);
"""
_CREATION_BYTES = 256 * 1024
"""More than is written when a database is created, which may be interrupted."""
_CHECKED = ("facts", "log", "snapshots", "journal")
"""Tables whose rows have a CRC-32. Rows of older formats have none; payloads have their SHA-256."""


class StateDirectoryError(DataError):
    """A state directory is in use, damaged or of another version."""


class Damaged(StateDirectoryError):
    """Stored bytes are not those that were written."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(
            f"{path}: damaged: {what}, so the node cannot continue from it. Check the disk; then restore the newest "
            "copy of the directory, or delete it to join as a new node (a cloud: to start a new run)"
        )


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
    wal = path.with_name(f"{path.name}-wal")
    written = wal.stat().st_size if wal.exists() else 0
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    if database.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
        raise StateDirectoryError(f"{path.parent}: this file system has no shared memory for SQLite; use a local disk")
    database.execute("PRAGMA synchronous = FULL")
    if format_of(database) == 0:
        if written > _CREATION_BYTES:  # SQLite ignores the log from the first damaged page on
            database.close()
            raise Damaged(path.parent, f"{wal.name} cannot be read, and {path.name} is empty without it")
        database.execute("BEGIN")
        for statement in _TABLES.split(";"):
            database.execute(statement)
        database.execute(f"PRAGMA user_version = {FORMAT}")
        database.execute("COMMIT")
    _check_format(database, path)
    (problem,) = database.execute("PRAGMA quick_check(1)").fetchone()
    if problem != "ok":
        database.close()
        raise Damaged(path.parent, f"{path.name}: {problem}")
    _convert(database)
    return database


def _convert(database: sqlite3.Connection) -> None:
    """Convert a database of an older format to the current one."""
    found = format_of(database)
    if found == FORMAT:
        return
    database.execute("BEGIN")
    if found < _FIRST_WITH_CHECKSUMS:
        for table in _CHECKED:
            database.execute(f"ALTER TABLE {table} ADD COLUMN crc INTEGER")
    # The effects of another release may differ. A replay begins at the state that this one continues from.
    (newest,) = database.execute("SELECT coalesce(max(number), 0) FROM snapshots").fetchone()
    database.execute("UPDATE log SET effects = NULL, crc = NULL WHERE number > ?", (newest,))
    fact = msgspec.msgpack.encode(newest)
    database.execute(
        "INSERT OR REPLACE INTO facts (key, value, crc) VALUES (?, ?, ?)", (REPLAY_FROM, fact, checksum(fact))
    )
    database.execute(f"PRAGMA user_version = {FORMAT}")
    database.execute("COMMIT")


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


def checksum(*parts: bytes | None) -> int:
    crc = 0
    for part in parts:
        crc = zlib.crc32(part or b"", crc)
    return crc


def crc_column(database: sqlite3.Connection) -> str:
    """Return the SQL expression for a row's checksum."""
    return "crc" if format_of(database) >= _FIRST_WITH_CHECKSUMS else "NULL"


def check_row(folder: Path, row: str, crc: int | None, *parts: bytes | None) -> None:
    """Raise Damaged unless the parts of a row have its checksum. `row` names it."""
    if crc is not None and checksum(*parts) != crc:
        raise Damaged(folder, f"{row} of {DATABASE} does not match its checksum")


def read_fact(database: sqlite3.Connection, key: str) -> Any:
    row = database.execute(f"SELECT value, {crc_column(database)} FROM facts WHERE key = ?", (key,)).fetchone()
    if row is None:
        return None
    if row[1] is not None and checksum(row[0]) != row[1]:
        (_, _, file) = database.execute("PRAGMA database_list").fetchone()
        raise Damaged(Path(file).parent, f"the fact {key!r} of {DATABASE} does not match its checksum")
    return msgspec.msgpack.decode(row[0])


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
    found = format_of(database)
    if OLDEST_FORMAT <= found <= FORMAT:
        return
    builds = read_fact(database, BUILDS) or []
    writer = f"async-hfl {builds[-1]['async_hfl']}" if builds else "another version of async-hfl"
    database.close()
    raise StateDirectoryError(
        f"{path.parent}: written by {writer} in format {found}; this is async-hfl {version('async-hfl')}, which reads "
        f"formats {OLDEST_FORMAT} to {FORMAT}. Use {writer} to open it, or give a new state directory to join as a new "
        "node"
    )


def format_of(database: sqlite3.Connection) -> int:
    return int(database.execute("PRAGMA user_version").fetchone()[0])
