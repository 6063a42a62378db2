"""The durable state of a node: one directory, used by one process at a time, with atomic commits.

    store = NodeStore.open(folder)
    store.adopt(path, digest, data)  # optional: the file in which the arrays of the next event arrived
    store.append(event)              # any number of events, as plain data (from `nodes.reliability.recovery.Disk`)
    store.handled(effects)           # a summary of the effects of the event just appended, for replay
    store.write(record)              # journal records
    store.commit()                   # one sync: all of the above is durable, or none of it
                                     # ... and only now may the effects leave

A commit that fails changes nothing. If the disk is full, an error ends the shell; any other failure ends the process at
once. Records are kept for ever. Events and payloads are kept up to a budget each, and those that recovery needs in any
case: older ones are deleted, and a replay then begins at the oldest snapshot that is kept.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from errno import EDQUOT, ENOSPC
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from async_hfl.core.protocol.records import Record
from async_hfl.core.serialization import Plain
from async_hfl.deployment.store.effects_summary import Summarizer
from async_hfl.deployment.store.encoding import Arrays, Buffer, Encoding, MissingPayload, ReceivedFile
from async_hfl.deployment.store.payloads import Payloads, sync
from async_hfl.deployment.store.schema import (
    BUILDS,
    DATABASE,
    PAYLOADS,
    REPLAY_FROM,
    SPOOL,
    Damaged,
    DiskFull,
    StateDirectoryError,
    check_row,
    checksum,
    end_process,
    open_for_writing,
    read_fact,
    this_build,
)
from async_hfl.journal.events_file import record_line

_RECORDS = "records since the snapshot"
_KEPT_SNAPSHOTS = 10
"""Snapshots kept within each budget, roughly: a replay can begin at one after what is older was deleted."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Bytes to keep for replay and audit, in addition to those that recovery needs."""

    payloads: int = 2_000_000_000
    log: int = 100_000_000


USUAL = Budget()


class NodeStore:
    def __init__(self, path: Path, budget: Budget, lock: int, fail: Callable[[str], NoReturn]) -> None:
        self.path = path
        self._lock = lock
        self._budget = budget
        self._fail = fail
        self._database = open_for_writing(path / DATABASE)
        sync(path)
        self._payloads = Payloads(self._database, path / PAYLOADS, writing=True)
        arrays = Arrays()
        self._encoding = Encoding(arrays, self._payloads.keep, self._payloads.load)
        self._summarizer = Summarizer(arrays)
        self._lines = self._highest("journal")
        self._snapshot = self._highest("snapshots")
        self._number = max(self._highest("log"), self._snapshot)
        self._log_bytes = self._size_of_log("number > 0")
        self._events: list[list[Any]] = []
        self._journal: list[tuple[int, bytes]] = []
        self._facts: dict[str, bytes] = {}
        self._added_at_kept = 0
        self._logged_since_kept = 0
        builds = self.get(BUILDS) or []
        if (build := this_build()) not in builds:
            self.put(BUILDS, [*builds, build])

    @staticmethod
    def open(path: Path, budget: Budget = USUAL, fail: Callable[[str], NoReturn] = end_process) -> NodeStore:
        """Open the directory, and create it if necessary. Raises StateDirectoryError while another process uses it."""
        try:
            path.mkdir(parents=True, exist_ok=True)
            (path / SPOOL).mkdir(exist_ok=True)
            lock = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise StateDirectoryError(
                f"{path}: cannot be used ({error.strerror}); give another state directory"
            ) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return NodeStore(path, budget, lock, fail)
        except BlockingIOError as error:
            os.close(lock)
            raise StateDirectoryError(
                f"{path}: another process is using this state directory; stop it first"
            ) from error
        except sqlite3.Error as error:
            os.close(lock)
            if _is_full(error):
                raise _disk_full(path) from error
            raise StateDirectoryError(f"{path / DATABASE}: cannot be opened ({error})") from error
        except BaseException:
            os.close(lock)
            raise

    # nodes.reliability.recovery.Disk ---------------------------------------------------------------------------------

    def append(self, event: Plain) -> None:
        body = self._encode(event, self._number + 1)
        self._number += 1
        self._events.append([self._number, body, None, checksum(body)])
        if (received := self._payloads.received) is not None:
            received.path.unlink(missing_ok=True)  # still there if the event does not refer to it
            self._payloads.received = self._encoding.arrays.received = None

    def retract(self) -> None:
        self._events.pop()
        self._number -= 1

    def wrote(self, records: int) -> None:
        self.put(_RECORDS, records)

    def replace(self, snapshot: Plain) -> None:
        """Store a snapshot; durable on return, with everything before it."""
        body = self._encode(snapshot, self._number)
        self.put(_RECORDS, 0)
        number, former = self._number, self._snapshot
        statements: list[tuple[str, tuple[Any, ...]]] = []
        # A complete replay begins at the first snapshot, which is kept until its payloads or events are deleted.
        if (
            former in (0, self.get(REPLAY_FROM))
            or self._payloads.added - self._added_at_kept >= self._budget.payloads // _KEPT_SNAPSHOTS
            or self._logged_since_kept >= self._budget.log // _KEPT_SNAPSHOTS
        ):
            self._added_at_kept, self._logged_since_kept = self._payloads.added, 0
        else:
            statements.append(("DELETE FROM snapshots WHERE number = ?", (former,)))
        insert = "INSERT OR REPLACE INTO snapshots (number, body, crc) VALUES (?, ?, ?)"
        statements.append((insert, (number, body, checksum(body))))
        self.commit(statements)
        self._snapshot = number
        self._evict()
        self._compact()

    def read(self) -> tuple[Plain, list[Plain], int]:
        """Return everything committed; forget the rest, as after a crash."""
        self.forget()
        try:
            query = "SELECT body, crc FROM snapshots WHERE number = ?"
            row = self._database.execute(query, (self._snapshot,)).fetchone()
            snapshot = None if row is None else self._checked(f"snapshot {self._snapshot}", row[1], row[0])
            query = "SELECT number, crc, event, effects FROM log WHERE number > ? ORDER BY number"
            rows = self._database.execute(query, (self._snapshot,))
            events = [self._checked(f"event {number}", crc, event, effects) for number, crc, event, effects in rows]
        except (MissingPayload, sqlite3.DatabaseError, msgspec.DecodeError) as damage:
            raise Damaged(self.path, str(damage)) from damage
        return snapshot, events, self.get(_RECORDS) or 0

    # Beyond that interface -------------------------------------------------------------------------------------------

    def adopt(self, path: Path, digest: bytes, data: Buffer) -> None:
        """Turn a received file into a payload without a copy.

        The arrays of the event that is appended next are views of `data`, the bytes of the file; `digest` is their
        verified SHA-256. The file is moved if the event refers to it, and deleted otherwise."""
        self._payloads.received = self._encoding.arrays.received = ReceivedFile(path, digest, data)

    def handled(self, effects: Sequence[object]) -> None:
        """Log a summary of the effects of the event that was appended last."""
        event = self._events[-1]
        event[2] = msgspec.msgpack.encode(self._summarizer.summarize(effects))
        event[3] = checksum(event[1], event[2])

    def write(self, record: Record) -> None:
        self._lines += 1
        self._journal.append((self._lines, record_line(record)))

    def put(self, key: str, value: Any) -> None:
        """Store a fact (plain JSON-like data), durable with the next commit."""
        self._facts[key] = msgspec.msgpack.encode(value)

    def get(self, key: str) -> Any:
        if key in self._facts:
            return msgspec.msgpack.decode(self._facts[key])
        return read_fact(self._database, key)

    def limit(self, budget: Budget) -> None:
        """Set the bytes to keep for replay, which a new node learns with its settings."""
        self._budget = budget

    @property
    def spool(self) -> Path:
        return self.path / SPOOL

    @property
    def uncommitted(self) -> int:
        return len(self._events)

    @property
    def events_since_snapshot(self) -> int:
        return self._number - self._snapshot

    @property
    def payload_bytes(self) -> int:
        return self._payloads.bytes

    def commit(self, more: Sequence[tuple[str, tuple[Any, ...]]] = ()) -> None:
        """Make everything since the last commit durable, and execute `more` statements in the same transaction.

        May run on a thread, as long as nothing else uses the store meanwhile."""
        if not (self._events or self._journal or self._facts):
            return
        database = self._database
        try:
            database.execute("BEGIN IMMEDIATE")
            self._payloads.enter()
            database.executemany("INSERT INTO log (number, event, effects, crc) VALUES (?, ?, ?, ?)", self._events)
            lines = [(number, line, checksum(line)) for number, line in self._journal]
            database.executemany("INSERT INTO journal (number, line, crc) VALUES (?, ?, ?)", lines)
            facts = [(key, value, checksum(value)) for key, value in self._facts.items()]
            database.executemany("INSERT OR REPLACE INTO facts (key, value, crc) VALUES (?, ?, ?)", facts)
            for statement, values in more:
                database.execute(statement, values)
            database.execute("COMMIT")
        except (sqlite3.Error, OSError) as error:
            self._failed(error)
        self._payloads.entered()
        logged = sum(len(body) + len(effects or b"") for _, body, effects, _ in self._events)
        self._log_bytes += logged
        self._logged_since_kept += logged
        for pending in (self._events, self._journal, self._facts):
            pending.clear()

    def forget(self) -> None:
        """Drop everything since the last commit."""
        self._number -= len(self._events)
        self._lines -= len(self._journal)
        for pending in (self._events, self._journal, self._facts):
            pending.clear()
        self._payloads.forget()

    def close(self) -> None:
        self._database.close()
        os.close(self._lock)

    def __enter__(self) -> NodeStore:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # -----------------------------------------------------------------------------------------------------------------

    def _checked(self, row: str, crc: int | None, body: bytes, *more: bytes | None) -> Plain:
        check_row(self.path, row, crc, body, *more)
        return self._encoding.decode(body)

    def _encode(self, data: Plain, number: int) -> bytes:
        """Encode an event or snapshot; the payloads that it refers to are needed up to its number."""
        try:
            encoded = self._encoding.encode(data)
        except OSError as error:
            self._failed(error)
        self._payloads.touched.update(dict.fromkeys(encoded.references, number))
        return encoded.body

    def _evict(self) -> None:
        victims = self._payloads.choose_victims(self._budget.payloads, self._snapshot)
        if not victims:
            return
        try:
            self._database.execute("BEGIN IMMEDIATE")
            self._payloads.remove_rows(victims)
            # A replay cannot begin at an old snapshot whose payloads are evicted.
            self._database.execute("DELETE FROM snapshots WHERE number <= ?", (victims[-1].last,))
            self._database.execute("COMMIT")
        except (sqlite3.Error, OSError) as error:
            self._failed(error)
        self._payloads.removed(victims)

    def _compact(self) -> None:
        """Delete the oldest events, up to a snapshot, if the log exceeds its budget."""
        if self._log_bytes <= self._budget.log:
            return
        rows = self._database.execute("SELECT number FROM snapshots ORDER BY number").fetchall()
        for (number,) in rows:
            left = self._size_of_log(f"number > {number}")
            if left <= self._budget.log or number == self._snapshot:
                break
        try:
            self._database.execute("BEGIN IMMEDIATE")
            self._database.execute("DELETE FROM log WHERE number <= ?", (number,))
            self._database.execute("DELETE FROM snapshots WHERE number < ?", (number,))
            self._database.execute("COMMIT")
        except (sqlite3.Error, OSError) as error:
            self._failed(error)
        self._log_bytes = left

    def _size_of_log(self, where: str) -> int:
        query = f"SELECT coalesce(sum(length(event) + coalesce(length(effects), 0)), 0) FROM log WHERE {where}"
        return int(self._database.execute(query).fetchone()[0])

    def _failed(self, error: sqlite3.Error | OSError) -> NoReturn:
        """Roll back and raise DiskFull if the disk is full; end the process after any other failure."""
        if not _is_full(error):
            self._fail(f"{self.path}: {error}")
        if self._database.in_transaction:
            self._database.execute("ROLLBACK")
        self.forget()
        raise _disk_full(self.path) from error

    def _highest(self, table: str) -> int:
        return int(self._database.execute(f"SELECT coalesce(max(number), 0) FROM {table}").fetchone()[0])


def _is_full(error: sqlite3.Error | OSError) -> bool:
    if isinstance(error, OSError):
        return error.errno in (ENOSPC, EDQUOT)
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL


def _disk_full(path: Path) -> DiskFull:
    return DiskFull(
        f"{path}: the disk is full. Nothing that was acknowledged is lost: make room and start the node again with the "
        "same directory"
    )
