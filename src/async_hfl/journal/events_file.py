"""The event stream of a run: one JSON line a record, `[kind, [fields], [learnt fields]]`.

The first line names the columns of every kind, so the file explains itself. Numbers are written in the shortest form
that reads back as the very same double, so the SHA-256 of the file is a digest of the run to the bit; the order digest
leaves the learnt fields out. No wall-clock time ever enters.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from async_hfl.core.errors import RunDirectoryError
from async_hfl.core.protocol.records import RECORD_TYPES, Record

_FLUSH_AT = 256
_BUFFER = 8192
Columns = dict[str, tuple[list[str], list[str]]]


class _Shape(NamedTuple):
    head: bytes
    order: Callable[[Any], tuple[Any, ...]]
    learnt: Callable[[Any], tuple[Any, ...]] | None


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) == 1:
        name = names[0]
        return lambda record: (getattr(record, name),)
    return attrgetter(*names)


def columns() -> Columns:
    """kind -> (order columns, learnt columns)."""
    found: Columns = {}
    for cls in RECORD_TYPES:
        names = [f.name for f in dataclasses.fields(cls)]
        learnt: frozenset[str] = cls.LEARNT  # type: ignore[attr-defined]
        kind: str = cls.KIND  # type: ignore[attr-defined]
        found[kind] = ([n for n in names if n not in learnt], [n for n in names if n in learnt])
    return found


@cache
def _shapes() -> dict[type, _Shape]:
    names = columns()
    return {
        cls: _Shape(
            b'["' + cls.KIND.encode() + b'",',  # type: ignore[attr-defined]
            _getter(names[cls.KIND][0]),  # type: ignore[attr-defined]
            _getter(names[cls.KIND][1]) if names[cls.KIND][1] else None,  # type: ignore[attr-defined]
        )
        for cls in RECORD_TYPES
    }


def header_line() -> bytes:
    """The first line of every events file."""
    return msgspec.json.encode(["columns", columns()]) + b"\n"


def record_line(record: Record) -> bytes:
    """One line of an events file, for who keeps records elsewhere first."""
    shape = _shapes()[type(record)]
    learnt = b"" if shape.learnt is None else b"," + msgspec.json.encode(shape.learnt(record))
    return shape.head + msgspec.json.encode(shape.order(record)) + learnt + b"]\n"


class EventsWriter:
    def __init__(self, path: Path) -> None:
        """Begin a new file, or go on at the end of one that `truncate` cut."""
        self.path = path
        self._encode = msgspec.json.Encoder().encode
        self._lines: list[bytes] = []
        self._order_lines: list[bytes] = []
        self._room = False
        self._digest = hashlib.sha256()
        self._order_digest = hashlib.sha256()
        self._shapes = _shapes()
        if path.exists():
            with path.open("rb") as written:
                for number, line in enumerate(written, 1):
                    self._digest.update(line)
                    self._order_digest.update(_order_part(line, f"{path}, line {number}"))
            self._file = path.open("ab", buffering=_BUFFER)
        else:
            self._file = path.open("wb", buffering=_BUFFER)
            header = header_line()
            self._lines.append(header)
            self._order_lines.append(header)

    def write(self, record: Record) -> None:
        shape = self._shapes[type(record)]
        order = self._encode(shape.order(record))
        if shape.learnt is None:
            self.write_row(shape.head, order)
        else:
            line = shape.head + order
            self._lines.append(line + b"," + self._encode(shape.learnt(record)) + b"]\n")
            self._order_lines.append(line + b"]\n")
            if len(self._lines) >= _FLUSH_AT and not self._room:
                self.flush()

    def write_row(self, head: bytes, order: bytes) -> None:
        line = head + order + b"]\n"
        self._lines.append(line)
        self._order_lines.append(line)
        if len(self._lines) >= _FLUSH_AT and not self._room:
            self.flush()

    def write_sent(self, *fields: Any) -> None:
        """A SentRecord from its fields in order, without making the object: this is the hottest line of a run."""
        line = self._encode(("sent", fields)) + b"\n"
        self._lines.append(line)
        self._order_lines.append(line)
        if len(self._lines) >= _FLUSH_AT and not self._room:
            self.flush()

    def leave_room(self) -> None:
        """For what belongs here and is not known yet; what follows is held in memory until then."""
        self.flush()
        self._room = True

    @contextmanager
    def in_room(self) -> Iterator[None]:
        """What is written within goes where room was left. If that fails, what followed is not written either."""
        assert self._room
        later, later_order = self._lines, self._order_lines
        self._room, self._lines, self._order_lines = False, [], []
        yield
        self._lines += later
        self._order_lines += later_order

    def flush(self) -> None:
        assert not self._room, "what follows the room cannot be written yet"
        if self._lines:
            data = b"".join(self._lines)
            self._digest.update(data)
            self._order_digest.update(b"".join(self._order_lines))
            self._file.write(data)
            self._lines.clear()
            self._order_lines.clear()
        self._file.flush()

    def sync(self) -> int:
        """Make durable what was written; returns the length of the file."""
        self.flush()
        os.fsync(self._file.fileno())
        return self._file.tell()

    def digests(self) -> tuple[str, str]:
        self.flush()
        return self._digest.hexdigest(), self._order_digest.hexdigest()

    def close(self) -> None:
        """Where the writer was cut off, the file has what came before; never a gap."""
        if not self._file.closed:
            if self._room:
                self._room, self._lines, self._order_lines = False, [], []
            self.flush()
            self._file.close()


def _order_part(line: bytes, where: str) -> bytes:
    """The line without its learnt fields, byte for byte as the writer hashed it."""
    try:
        parts = msgspec.json.decode(line, type=list[msgspec.Raw])
    except msgspec.DecodeError as error:
        raise RunDirectoryError(f"{where}: not a journal line ({error}); the file was damaged") from error
    if len(parts) < 3:
        return line
    return b"[" + bytes(parts[0]) + b"," + bytes(parts[1]) + b"]\n"


def truncate(path: Path, length: int) -> None:
    """Forget what was written after a checkpoint."""
    if not path.is_file() or path.stat().st_size < length:
        raise RunDirectoryError(
            f"{path}: shorter than its checkpoint says, so it was damaged; delete the checkpoint to begin the run again"
        )
    with path.open("r+b") as file:
        file.truncate(length)


def read_events(path: Path, *kinds: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(kind, fields) of every record of these kinds (all, if none is named). A torn last line is left out."""
    names: Columns = {}
    heads = tuple(b'["%s",' % kind.encode() for kind in ("columns", *kinds)) if kinds else (b"",)
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            if not line.startswith(heads) and line.startswith(b'["'):
                continue  # of another kind: not worth decoding, most lines are of kind "sent"
            try:
                kind, row, *more = msgspec.json.decode(line, type=list[Any])
                if kind == "columns":
                    names = row
                    continue
                if kinds and kind not in kinds:
                    continue
                order, learnt = names[kind]
                fields = dict(zip(order, row, strict=True))
                if more:
                    fields.update(zip(learnt, more[0], strict=True))
            except (msgspec.MsgspecError, ValueError, TypeError, KeyError) as error:
                raise RunDirectoryError(f"{path}, line {number}: not a journal line ({error})") from error
            yield kind, fields
