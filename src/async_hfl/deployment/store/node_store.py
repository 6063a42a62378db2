"""A node's disk: one state directory, one process, and nothing half done.

    store = NodeStore.open(folder)
    store.append(event)            # any number of events, as plain data (this is `nodes.recovery.Disk`)
    store.handled(effects)         # what the event just appended brought about, as a summary to replay against
    store.write(record)            # journal records
    store.commit()                 # one sync: all of the above is durable, or none of it
                                   # ... and only now may the effects leave

A commit that fails leaves everything as it was: a full disk is an error the shell ends with, anything else ends the
process on the spot. Events and records are kept for ever; payloads up to a budget.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from errno import EDQUOT, ENOSPC
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

import msgspec

from async_hfl.core.protocol.records import Record
from async_hfl.core.serialization import Plain, from_plain
from async_hfl.deployment.store.build_info import this_maker
from async_hfl.deployment.store.effects_summary import Summarizer
from async_hfl.deployment.store.encoding import Array, Arrays, Encoding, MissingPayload, Reference
from async_hfl.deployment.store.errors import DiskFull, StateDirectoryError, end_process
from async_hfl.deployment.store.payloads import Payloads, sync_folder
from async_hfl.deployment.store.schema import DATABASE, PAYLOADS, SPOOL, open_for_writing
from async_hfl.journal.events_file import record_line

DEFAULT_BUDGET = 2_000_000_000
_RECORDS = "records since the snapshot"
MAKERS = "made with"
"""Fact: versions and processors of all who wrote here, each once."""
_KEPT_SNAPSHOTS = 10
"""Old snapshots are where a replay can begin when older payloads are gone: about so many over the budget."""


class NodeStore:
    def __init__(self, path: Path, budget: int, lock: int, fail: Callable[[str], NoReturn]) -> None:
        self.path = path
        self._lock = lock
        self._budget = budget
        self._fail = fail
        self._database = open_for_writing(path / DATABASE)
        sync_folder(path)
        self._payloads = Payloads(self._database, path / PAYLOADS, writing=True)
        arrays = Arrays()
        self._encoding = Encoding(arrays, self._payloads.keep, self._payloads.load)
        self._summarizer = Summarizer(arrays)
        self._number = self._highest("log")
        self._lines = self._highest("journal")
        self._snapshot = self._highest("snapshots")
        self._events: list[list[Any]] = []
        self._journal: list[tuple[int, bytes]] = []
        self._facts: dict[str, bytes] = {}
        self._added_at_kept = 0
        makers = self.get(MAKERS) or []
        if (maker := this_maker()) not in makers:
            self.put(MAKERS, [*makers, maker])

    @staticmethod
    def open(path: Path, budget: int = DEFAULT_BUDGET, fail: Callable[[str], NoReturn] = end_process) -> NodeStore:
        """Make the directory if it is not there; refuse it while another process has it."""
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
            raise StateDirectoryError(f"{path}: another process has this state directory; end it first") from error
        except sqlite3.Error as error:
            os.close(lock)
            if _is_full(error):
                raise _disk_full(path) from error
            raise StateDirectoryError(f"{path / DATABASE}: cannot be opened ({error})") from error
        except BaseException:
            os.close(lock)
            raise

    # nodes.recovery.Disk -----------------------------------------------------------------------------------------

    def append(self, event: Plain) -> None:
        encoded = self._guarded(lambda: self._encoding.encode(event))
        self._number += 1
        self._events.append([self._number, encoded.body, None])
        self._payloads.touch(encoded.references, self._number)

    def wrote(self, records: int) -> None:
        self.put(_RECORDS, records)

    def replace(self, snapshot: Plain) -> None:
        """Durable on return, with everything before it."""
        encoded = self._guarded(lambda: self._encoding.encode(snapshot))
        self._payloads.touch(encoded.references, self._number)
        self.put(_RECORDS, 0)
        number, former = self._number, self._snapshot
        # The first is where a whole replay begins: it goes when its payloads do.
        keep_former = former == 0 or self._payloads.added - self._added_at_kept >= self._budget // _KEPT_SNAPSHOTS
        if keep_former:
            self._added_at_kept = self._payloads.added

        def rows() -> None:
            if not keep_former:
                self._database.execute("DELETE FROM snapshots WHERE number = ?", (former,))
            self._database.execute(
                "INSERT OR REPLACE INTO snapshots (number, body) VALUES (?, ?)", (number, encoded.body)
            )

        self._commit(rows)
        self._snapshot = number
        self._evict()

    def read(self) -> tuple[Plain, list[Plain], int]:
        """What is committed; whatever is not is forgotten, as a crash would."""
        self.forget()
        try:
            row = self._database.execute("SELECT body FROM snapshots WHERE number = ?", (self._snapshot,)).fetchone()
            snapshot = None if row is None else self._encoding.decode(row[0])
            rows = self._database.execute("SELECT event FROM log WHERE number > ? ORDER BY number", (self._snapshot,))
            events = [self._encoding.decode(event) for (event,) in rows]
        except (MissingPayload, sqlite3.DatabaseError, msgspec.DecodeError) as damage:
            raise StateDirectoryError(
                f"{self.path}: damaged: {damage}, and recovery needs it; delete the directory to join as a new node"
            ) from damage
        return snapshot, events, self.get(_RECORDS) or 0

    # Beyond it ---------------------------------------------------------------------------------------------------

    def handled(self, effects: Sequence[object]) -> None:
        """What the event appended last brought about."""
        self._events[-1][2] = self._summarizer.summarize(effects).to_bytes()

    def write(self, record: Record) -> None:
        self._lines += 1
        self._journal.append((self._lines, record_line(record)))

    def put(self, key: str, value: Any) -> None:
        """Remember a fact (plain JSON-like data); durable with the next commit."""
        self._facts[key] = msgspec.msgpack.encode(value)

    def get(self, key: str) -> Any:
        if key in self._facts:
            return msgspec.msgpack.decode(self._facts[key])
        row = self._database.execute("SELECT value FROM facts WHERE key = ?", (key,)).fetchone()
        return None if row is None else msgspec.msgpack.decode(row[0])

    def adopt(self, path: Path, digest: bytes, arrays: Sequence[tuple[Array, int]]) -> None:
        """A spooled file with this SHA-256 becomes a payload, without a copy; the (read-only) arrays made from it, each
        with its offset in the file, will be referred to in it. Call before appending the event that holds them."""
        self._guarded(lambda: self._payloads.adopt(path, digest))
        for array, offset in arrays:
            self._encoding.arrays.learn(array, Reference(digest, offset, array.nbytes))

    def limit(self, budget: int) -> None:
        """What is kept for replay alone, bytes; known only after the node was told its settings."""
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

    def last_event(self) -> Any:
        """The last one committed, or None: its `at` is where the clock goes on."""
        row = self._database.execute("SELECT event FROM log ORDER BY number DESC LIMIT 1").fetchone()
        return None if row is None else from_plain(self._encoding.decode(row[0]))

    def journal_lines(self, after: int = 0) -> Iterator[tuple[int, bytes]]:
        """(number, line) of the records committed, as an events file has them."""
        rows = self._database.execute("SELECT number, line FROM journal WHERE number > ? ORDER BY number", (after,))
        for number, line in rows:
            yield number, bytes(line)

    def commit(self) -> None:
        """Durable on return. May run on a thread, as long as nothing else uses the store meanwhile."""
        if self._events or self._journal or self._facts:
            self._commit(lambda: None)

    def forget(self) -> None:
        """Everything since the last commit."""
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---------------------------------------------------------------------------------------------------------------

    def _commit(self, more: Callable[[], None]) -> None:
        self._guarded(lambda: self._transact(more))
        self._payloads.entered()
        for pending in (self._events, self._journal, self._facts):
            pending.clear()

    def _transact(self, more: Callable[[], None]) -> None:
        database = self._database
        self._payloads.prepare()
        database.execute("BEGIN IMMEDIATE")
        self._payloads.enter()
        database.executemany("INSERT INTO log (number, event, effects) VALUES (?, ?, ?)", self._events)
        database.executemany("INSERT INTO journal (number, line) VALUES (?, ?)", self._journal)
        facts = list(self._facts.items())
        database.executemany("INSERT OR REPLACE INTO facts (key, value) VALUES (?, ?)", facts)
        more()
        database.execute("COMMIT")

    def _evict(self) -> None:
        victims = self._payloads.choose_victims(self._budget, self._snapshot)
        if not victims:
            return

        def rows() -> None:
            self._database.execute("BEGIN IMMEDIATE")
            self._payloads.remove_rows(victims)
            # An old snapshot whose payloads go can no longer begin a replay.
            self._database.execute("DELETE FROM snapshots WHERE number <= ?", (victims[-1].last,))
            self._database.execute("COMMIT")

        self._guarded(rows)
        self._payloads.removed(victims)

    def _guarded(self, act: Callable[[], Any]) -> Any:
        """Do something with the disk. Full: undo and say so. Failed in any other way: the end."""
        try:
            return act()
        except (sqlite3.Error, OSError) as error:
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
        f"{path}: the disk is full. Nothing that was acknowledged is lost; make room and start the node again with the "
        f"same directory"
    )
