"""Incoming transfers on disk, as files of a spool folder.

A part is named by its sender and the SHA-256 of the whole packet. So the transfer of a packet that is offered again,
after a broken connection or a restart of either side, resumes where it stopped.

A sender may fill only so much of the folder, with the parts of open and of broken transfers together. Its own oldest
broken transfers make room for the next; if the disk is short, anybody's do.

Nothing is synced: a part that was damaged by a power failure has the wrong digest, is deleted, and is sent again. A
complete part is renamed and passed on; the store then moves it to its payloads.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import logging
import mmap
import os
import threading
import time
from collections import deque
from pathlib import Path
from shutil import disk_usage
from typing import NamedTuple

from async_hfl.core.errors import PeerError
from async_hfl.core.identifiers import Address

log = logging.getLogger("async_hfl.transport")
_MAPPED_FROM = 2**20
_READ = 2**20
_RESERVE = 256 * 2**20
"""Bytes of the disk that transfers leave free, on a small disk a twentieth."""
_SUFFIX = ".part"
_COMPLETE = ".complete"
_MOST_BROKEN = 64
"""Broken transfers of one sender that are kept: small ones take room in the folder as well."""
_ELSEWHERE = "this transfer continues on another connection"


class SpoolFull(PeerError):
    """There is no room for a transfer now."""


class Superseded(PeerError):
    """The same transfer continues on another connection: its sender has reconnected."""


class SpooledPacket(NamedTuple):
    """A complete packet on disk. Its receiver must move or delete the file."""

    path: Path
    digest: bytes
    """SHA-256, verified."""
    data: memoryview
    """Its bytes. A large packet is memory-mapped, so that it takes only the page cache's memory."""


class Part:
    """The file of one packet, with the bytes that have arrived so far."""

    _taken = itertools.count()

    def __init__(self, path: Path, length: int, digest: bytes) -> None:
        self.path = path
        self.length = length
        self.held = 0
        """Bytes on disk and hashed."""
        self.arrived = 0
        self._waiting: deque[bytes] = deque()
        self._digest = digest
        self._hash = hashlib.sha256()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.active = True
        self._lock = threading.Lock()

    @property
    def has_leftovers(self) -> bool:
        return self.held == 0 and os.fstat(self._file).st_size > 0

    def rehash(self) -> None:
        """Hash the bytes that an earlier transfer left on disk."""
        with self._lock:
            if not self.active:
                return
            size = min(os.fstat(self._file).st_size, self.length)
            while self.held < size and (data := os.pread(self._file, min(_READ, size - self.held), self.held)):
                self._hash.update(data)
                self.held += len(data)
            os.ftruncate(self._file, self.held)
            self.arrived = self.held

    @property
    def waiting(self) -> int:
        """Number of bytes that have arrived but are not on disk yet."""
        return self.arrived - self.held

    def add(self, data: bytes) -> None:
        """Queue bytes without blocking; `drain` and `close` write them."""
        if not self.active:
            raise Superseded(_ELSEWHERE)
        if self.arrived + len(data) > self.length:
            raise PeerError(f"more bytes than the {self.length} in the offer")
        self._waiting.append(data)
        self.arrived += len(data)

    def drain(self) -> None:
        """Write the queued bytes. May be called from a thread."""
        with self._lock:
            if not self.active:
                raise Superseded(_ELSEWHERE)
            self._drain()

    def _drain(self) -> None:
        while self._waiting:
            data = self._waiting[0]
            view, at = memoryview(data), self.held
            while view:
                try:
                    written = os.pwrite(self._file, view, at)
                except OSError as error:
                    if error.errno in (errno.ENOSPC, errno.EDQUOT):
                        raise SpoolFull(f"no room left for transfers in {self.path.parent}") from error
                    raise
                view, at = view[written:], at + written
            self._hash.update(data)
            self.held += len(data)
            self._waiting.popleft()

    @property
    def whole(self) -> bool:
        return self.held == self.length

    def matches(self) -> bool:
        return self._hash.digest() == self._digest

    def take(self) -> SpooledPacket:
        """Close the part and rename its file, since the peer may offer the same packet again; return the packet."""
        with self._lock:
            if not self.active:  # the file descriptor may belong to another file by now
                raise Superseded(_ELSEWHERE)
            if self.length >= _MAPPED_FROM:
                data = memoryview(mmap.mmap(self._file, self.length, access=mmap.ACCESS_READ))
            else:
                data = memoryview(os.pread(self._file, self.length, 0))
        self.close()
        path = self.path.with_suffix(f".{next(self._taken)}{_COMPLETE}")
        self.path.rename(path)
        return SpooledPacket(path, self._digest, data)

    def discard(self) -> None:
        self.close()
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file; the bytes that have arrived are kept for a later transfer."""
        with self._lock:
            if not self.active:
                return
            try:
                self._drain()
            except (PeerError, OSError) as error:
                log.info("the last bytes of a broken transfer are not kept: %s", error)
            self.active = False
            os.close(self._file)


class Spool:
    def __init__(self, folder: Path, most_bytes: int, keep_s: float) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._most = most_bytes
        self._keep_s = keep_s
        self._open: dict[str, Part] = {}
        self._left: dict[str, tuple[float, int]] = {}
        """Parts without an open transfer, by file name: time of the last write, and size."""
        for path in folder.glob(f"*{_COMPLETE}"):
            path.unlink()  # left by a crash before it was acknowledged: the peer sends it again
        for path in folder.glob(f"*{_SUFFIX}"):
            self._note_left(path)

    def open(self, sender: Address, length: int, digest: bytes, quota: int | None = None) -> Part:
        """Open a part, new or left over; an open transfer of the same part ends. Call `rehash` before use. `quota`: the
        most bytes of all parts of this sender."""
        prefix = f"{sender}-"
        name = f"{prefix}{digest.hex()}{_SUFFIX}"
        if (old := self._open.pop(name, None)) is not None:
            old.close()
        self._left.pop(name, None)
        try:
            if quota is not None:
                self._forget_broken(prefix)
                self._make_room(length, quota, prefix)
            self._make_room(length, self._most)
            self._spare_disk(length)
        except SpoolFull:
            self._note_left(self._folder / name)  # its bytes still count, and make way like those of others
            raise
        part = Part(self._folder / name, length, digest)
        self._open[name] = part
        return part

    def release(self, part: Part) -> None:
        part.close()
        if self._open.get(part.path.name) is part:
            del self._open[part.path.name]
            self._note_left(part.path)

    def _note_left(self, path: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            status = path.stat()
            if status.st_size == 0:
                path.unlink()
                return
            self._left[path.name] = (status.st_mtime, status.st_size)

    def _make_room(self, length: int, most: int, prefix: str = "") -> None:
        """Make room within this limit of all parts whose names begin so."""
        promised = sum(part.length for name, part in self._open.items() if name.startswith(prefix))
        if promised + length > most:
            raise SpoolFull(f"{promised} bytes are in flight already; at most {most} are accepted at once")
        left = {name: found for name, found in self._left.items() if name.startswith(prefix)}
        total = sum(size for _, size in left.values())
        # Wall-clock time is compared only with time stamps of this machine; a clock set back keeps a part longer.
        too_old = time.time() - self._keep_s
        for name, (stamp, size) in sorted(left.items(), key=lambda item: item[1]):
            if stamp >= too_old and promised + length + total <= most:
                return
            self._drop(name)
            total -= size

    def _forget_broken(self, prefix: str) -> None:
        """Delete the oldest broken transfers of a sender that has too many."""
        left = sorted((found, name) for name, found in self._left.items() if name.startswith(prefix))
        for _, name in left[: max(0, len(left) - _MOST_BROKEN)]:
            self._drop(name)

    def _spare_disk(self, length: int) -> None:
        """Keep a reserve of the disk free for the store: drop broken transfers, and refuse new ones."""
        total, _, free = disk_usage(self._folder)
        needed = length + sum(part.length - part.held for part in self._open.values()) + min(_RESERVE, total // 20)
        for name, (_, size) in sorted(self._left.items(), key=lambda item: item[1]):
            if free >= needed:
                return
            self._drop(name)
            free += size
        if free < needed:
            raise SpoolFull(f"the disk of {self._folder} is short: {free} bytes are free, and {needed} are needed")

    def _drop(self, name: str) -> None:
        (self._folder / name).unlink(missing_ok=True)
        del self._left[name]
