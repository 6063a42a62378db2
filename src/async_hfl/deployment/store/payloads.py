"""Payloads: contents stored once under their SHA-256, small ones inside the database, large ones as files.

Order on the disk: a file is written beside its place, synced, renamed, its folder synced, and only then is the database
transaction committed that speaks of it. So a committed reference always has its content; a file that no row speaks of
is what a crash left, and goes at the next start.

What may be thrown away needs no counting: `last` is the number of the last event (or snapshot) speaking of a payload.
Recovery needs the snapshot and the events after it, and a held update stands in one of the two; so whatever has
`last` below the snapshot's number is history, and the oldest history goes first.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from async_hfl.deployment.store.encoding import Array, MissingPayload, Reference, content

INSIDE_BYTES = 128 * 1024
"""Below, one row costs less than a file with two syncs of its own."""


class Victim(NamedTuple):
    digest: bytes
    size: int
    last: int


class Payloads:
    def __init__(self, database: sqlite3.Connection, folder: Path, *, writing: bool) -> None:
        self._database = database
        self._folder = folder
        self._new_files: dict[bytes, Path] = {}
        """Written and not yet in their place."""
        self._new_bodies: dict[bytes, bytes] = {}
        self._sizes: dict[bytes, int] = {}
        """Of the payloads to be entered with the next commit."""
        self._touched: dict[bytes, int] = {}
        self._known: set[bytes] = {bytes(row[0]) for row in database.execute("SELECT digest FROM payloads")}
        self.bytes: int = database.execute("SELECT coalesce(sum(size), 0) FROM payloads").fetchone()[0]
        self.added = 0
        """Bytes ever added by this process."""
        if writing:
            folder.mkdir(exist_ok=True)
            self._remove_leftovers()

    def __len__(self) -> int:
        return len(self._known)

    def keep(self, reference: Reference, array: Array) -> None:
        digest = reference.digest
        if digest in self._known or digest in self._sizes:
            return
        data = content(array)
        self._sizes[digest] = len(data)
        if len(data) < INSIDE_BYTES:
            self._new_bodies[digest] = bytes(data)
            return
        beside = self._folder / f"{digest.hex()}.part"
        beside.write_bytes(data)
        self._new_files[digest] = beside

    def adopt(self, path: Path, digest: bytes) -> None:
        """Take a file whose SHA-256 is known (it was checked on arrival) as it is: it is moved, not copied. It must be
        on the same file system."""
        if digest in self._known or digest in self._sizes:
            path.unlink()
            return
        self._sizes[digest] = path.stat().st_size
        beside = self._folder / f"{digest.hex()}.part"
        path.rename(beside)
        self._new_files[digest] = beside

    def touch(self, digests: Iterable[bytes], number: int) -> None:
        for digest in digests:
            self._touched[digest] = number

    def load(self, reference: Reference) -> memoryview:
        digest, offset, length = reference
        row = self._database.execute("SELECT body FROM bodies WHERE digest = ?", (digest,)).fetchone()
        if row is not None:
            data = memoryview(row[0])
        else:
            try:
                data = memoryview(self._path(digest).read_bytes())
            except FileNotFoundError:
                raise MissingPayload(digest) from None
        if len(data) < offset + length:
            raise MissingPayload(digest)
        return data[offset : offset + length]

    def prepare(self) -> None:
        """Everything that the coming commit will speak of is in its place and durable."""
        for digest, beside in self._new_files.items():
            handle = os.open(beside, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
            beside.rename(self._path(digest))
        if self._new_files:
            sync_folder(self._folder)

    def enter(self) -> None:
        """The rows, inside the caller's transaction."""
        self._database.executemany(
            "INSERT INTO payloads (digest, size, last) VALUES (?, ?, 0)", list(self._sizes.items())
        )
        self._database.executemany("INSERT INTO bodies (digest, body) VALUES (?, ?)", list(self._new_bodies.items()))
        self._database.executemany(
            "UPDATE payloads SET last = ? WHERE digest = ?", [(last, digest) for digest, last in self._touched.items()]
        )

    def entered(self) -> None:
        """The transaction is committed."""
        self._known.update(self._sizes)
        size = sum(self._sizes.values())
        self.bytes += size
        self.added += size
        self._clear()

    def forget(self) -> None:
        """What was not committed is as if it had never been."""
        for digest, beside in self._new_files.items():
            beside.unlink(missing_ok=True)
            self._path(digest).unlink(missing_ok=True)
        self._clear()

    def choose_victims(self, budget: int, below: int) -> list[Victim]:
        """History to be thrown away so that the rest fits, oldest first."""
        excess = self.bytes - budget
        victims: list[Victim] = []
        if excess <= 0:
            return victims
        rows = self._database.execute("SELECT digest, size, last FROM payloads WHERE last < ? ORDER BY last", (below,))
        for digest, size, last in rows:
            if excess <= 0:
                break
            victims.append(Victim(bytes(digest), size, last))
            excess -= size
        return victims

    def remove_rows(self, victims: list[Victim]) -> None:
        """Inside the caller's transaction."""
        digests = [(victim.digest,) for victim in victims]
        for table in ("payloads", "bodies"):
            self._database.executemany(f"DELETE FROM {table} WHERE digest = ?", digests)

    def removed(self, victims: list[Victim]) -> None:
        """The rows are gone for good: now the files."""
        for victim in victims:
            self._path(victim.digest).unlink(missing_ok=True)
            self._known.discard(victim.digest)
            self.bytes -= victim.size

    def _clear(self) -> None:
        for pending in (self._new_files, self._new_bodies, self._sizes, self._touched):
            pending.clear()

    def _path(self, digest: bytes) -> Path:
        return self._folder / digest.hex()

    def _remove_leftovers(self) -> None:
        for path in self._folder.iterdir():
            if path.suffix == ".part" or bytes.fromhex(path.name) not in self._known:
                path.unlink()


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
