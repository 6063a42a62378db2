"""Payloads: array contents stored once under their SHA-256, small ones in the database, large ones as files.

A file is written under a temporary name, synced and renamed, and its folder is synced. Only then is the database
transaction committed that refers to it, so every committed reference has its content. A file without a row is left over
from a crash, and is deleted at the next start.

A large packet from the network is a file already, with a verified digest. It becomes a payload by a rename, and its
arrays become references into it, so the bytes are hashed and written once.

A payload is checked against its digest whenever it is read.

Eviction needs no reference counts: `last` is the number of the last event (or snapshot) that refers to a payload.
Recovery needs only the newest snapshot and the events after it. So payloads whose `last` is below the snapshot's number
may be evicted, the oldest first.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
from pathlib import Path
from typing import NamedTuple

from async_hfl.deployment.store.encoding import Array, MissingPayload, ReceivedFile, Reference, content
from async_hfl.deployment.store.schema import Damaged

INSIDE_BYTES = 128 * 1024
"""Smaller payloads are stored as rows, since a file needs two syncs of its own."""


class Victim(NamedTuple):
    digest: bytes
    size: int
    last: int


class Payloads:
    def __init__(self, database: sqlite3.Connection, folder: Path, *, writing: bool) -> None:
        self._database = database
        self._folder = folder
        self.received: ReceivedFile | None = None
        """The file with the arrays of the event that is being encoded."""
        self._new_files: dict[bytes, Path] = {}
        """Files under their temporary names."""
        self._new_bodies: dict[bytes, bytes] = {}
        self._sizes: dict[bytes, int] = {}
        """Sizes of the payloads that the next commit adds."""
        self.touched: dict[bytes, int] = {}
        """The new `last` of each payload, written with the next commit."""
        self._known: set[bytes] = {bytes(row[0]) for row in database.execute("SELECT digest FROM payloads")}
        self.bytes: int = database.execute("SELECT coalesce(sum(size), 0) FROM payloads").fetchone()[0]
        self._read: tuple[bytes, memoryview] | None = None
        """The payload that was read and checked last: an event often refers to several arrays of one packet."""
        self.added = 0
        """Bytes added since this process started."""
        if writing:
            folder.mkdir(exist_ok=True)
            self._remove_leftovers()

    def __len__(self) -> int:
        return len(self._known)

    def keep(self, reference: Reference, array: Array) -> Reference:
        """Store the content of an array, unless it is stored; return the reference to use."""
        digest = reference.digest
        if digest in self._known or digest in self._sizes:
            return reference
        received = self.received if self.received is not None and self.received.digest == digest else None
        if received is None and reference.offset:  # the file that it arrived in was evicted
            return self.keep(Reference(hashlib.sha256(content(array)).digest(), 0, array.nbytes), array)
        data = content(array) if received is None else received.data
        self._sizes[digest] = len(data)
        if len(data) < INSIDE_BYTES:
            self._new_bodies[digest] = bytes(data)
            return reference
        temporary = self._folder / f"{digest.hex()}.part"
        if received is None:
            temporary.write_bytes(data)
        else:
            shutil.move(received.path, temporary)  # a rename, unless the file systems differ
        self._new_files[digest] = temporary
        return reference

    def load(self, reference: Reference) -> memoryview:
        """Return a range of a payload. Raises MissingPayload or Damaged."""
        digest, offset, length = reference
        if self._read is None or self._read[0] != digest:
            data = self._content(digest)
            if hashlib.sha256(data).digest() != digest:
                raise Damaged(self._folder.parent, f"payload {digest.hex()} does not match its digest")
            self._read = (digest, data)
        data = self._read[1]
        if len(data) < offset + length:
            raise MissingPayload(digest)
        return data[offset : offset + length]

    def _content(self, digest: bytes) -> memoryview:
        row = self._database.execute("SELECT body FROM bodies WHERE digest = ?", (digest,)).fetchone()
        if row is not None:
            return memoryview(row[0])
        try:
            return memoryview(self._path(digest).read_bytes())
        except FileNotFoundError:
            raise MissingPayload(digest) from None

    def enter(self) -> None:
        """Make the new files durable, then insert their rows in the caller's transaction."""
        for digest, temporary in self._new_files.items():
            sync(temporary)
            temporary.rename(self._path(digest))
        if self._new_files:
            sync(self._folder)
        self._database.executemany(
            "INSERT INTO payloads (digest, size, last) VALUES (?, ?, 0)", list(self._sizes.items())
        )
        self._database.executemany("INSERT INTO bodies (digest, body) VALUES (?, ?)", list(self._new_bodies.items()))
        self._database.executemany(
            "UPDATE payloads SET last = ? WHERE digest = ?", [(last, digest) for digest, last in self.touched.items()]
        )

    def entered(self) -> None:
        """Take note that the transaction is committed."""
        self._known.update(self._sizes)
        size = sum(self._sizes.values())
        self.bytes += size
        self.added += size
        for pending in (self._new_files, self._new_bodies, self._sizes, self.touched):
            pending.clear()

    def forget(self) -> None:
        """Undo everything since the last commit."""
        for digest, temporary in self._new_files.items():
            temporary.unlink(missing_ok=True)
            self._path(digest).unlink(missing_ok=True)
        for pending in (self._new_files, self._new_bodies, self._sizes, self.touched):
            pending.clear()

    def choose_victims(self, budget: int, below: int) -> list[Victim]:
        """Return the payloads to evict so that the rest fits the budget, oldest first."""
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
        """Delete the rows inside the caller's transaction."""
        digests = [(victim.digest,) for victim in victims]
        for table in ("payloads", "bodies"):
            self._database.executemany(f"DELETE FROM {table} WHERE digest = ?", digests)

    def removed(self, victims: list[Victim]) -> None:
        """Delete the files, after the deletion of the rows is committed."""
        for victim in victims:
            self._path(victim.digest).unlink(missing_ok=True)
            self._known.discard(victim.digest)
            self.bytes -= victim.size

    def _path(self, digest: bytes) -> Path:
        return self._folder / digest.hex()

    def _remove_leftovers(self) -> None:
        for path in self._folder.iterdir():
            if path.suffix == ".part" or bytes.fromhex(path.name) not in self._known:
                path.unlink()


def sync(path: Path) -> None:
    """Make a file or folder durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
