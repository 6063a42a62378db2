"""The tables of a state directory, and how the database is opened."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from urllib.parse import quote

from async_hfl.deployment.store.errors import StateDirectoryError

FORMAT = 1
DATABASE = "node.db"
PAYLOADS = "payloads"
SPOOL = "spool"

_TABLES = """
CREATE TABLE facts (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE log (number INTEGER PRIMARY KEY, event BLOB NOT NULL, effects BLOB);
CREATE TABLE snapshots (number INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE journal (number INTEGER PRIMARY KEY, line BLOB NOT NULL);
CREATE TABLE payloads (digest BLOB PRIMARY KEY, size INTEGER NOT NULL, last INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX payloads_last ON payloads (last);
CREATE TABLE bodies (digest BLOB PRIMARY KEY, body BLOB NOT NULL);
"""


def open_for_writing(path: Path) -> sqlite3.Connection:
    # The shell may commit on a thread so that a slow disk does not stop its heartbeats; it never uses two at once.
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    if database.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
        raise StateDirectoryError(f"{path.parent}: this file system has no shared memory for SQLite; use a local disk")
    database.execute("PRAGMA synchronous = FULL")
    if _version(database) == 0:
        database.execute("BEGIN")
        for statement in _TABLES.split(";"):
            database.execute(statement)
        database.execute(f"PRAGMA user_version = {FORMAT}")
        database.execute("COMMIT")
    _check(database, path)
    return database


def open_for_reading(path: Path) -> sqlite3.Connection:
    """As it is now, whatever is written meanwhile; also from a directory where we may not write."""
    if not path.is_file():
        raise StateDirectoryError(f"{path.parent}: not a node's state directory (no {path.name})")
    try:
        return _reading(path, "mode=ro")
    except sqlite3.OperationalError:
        if path.with_name(f"{path.name}-wal").exists():
            raise
        # Nobody is writing, and SQLite may not make the files by which it would see that somebody is.
        return _reading(path, "mode=ro&immutable=1")


def _reading(path: Path, mode: str) -> sqlite3.Connection:
    database = sqlite3.connect(f"file:{quote(str(path))}?{mode}", uri=True, isolation_level=None)
    try:
        database.execute("BEGIN")
        _check(database, path)
    except BaseException:
        database.close()
        raise
    return database


def _version(database: sqlite3.Connection) -> int:
    return int(database.execute("PRAGMA user_version").fetchone()[0])


def _check(database: sqlite3.Connection, path: Path) -> None:
    if _version(database) != FORMAT:
        raise StateDirectoryError(f"{path.parent}: written in format {_version(database)}, this version reads {FORMAT}")
