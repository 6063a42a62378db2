"""The events file of a run: one JSON line per record, `[kind, [fields], [learnt fields]]`.

The first line, `["columns", {kind: names}, format]`, names the columns of every kind. Numbers are written in the
shortest form that reads back as the same double, so the SHA-256 of the file is a digest of the run to the bit. The
order digest leaves out the learnt fields. The file contains no wall-clock time.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Callable, Iterator
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from async_hfl.core.errors import RunDirectoryError
from async_hfl.core.protocol.records import RECORD_TYPES, Record
from async_hfl.journal.formats import FORMAT, foreign_format

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
    """Return the columns of every kind: (order columns, learnt columns)."""
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
    """Return the first line of every events file."""
    return msgspec.json.encode(["columns", columns(), FORMAT]) + b"\n"


def record_line(record: Record) -> bytes:
    """Return a record as a line of an events file."""
    shape = _shapes()[type(record)]
    learnt = b"" if shape.learnt is None else b"," + msgspec.json.encode(shape.learnt(record))
    return shape.head + msgspec.json.encode(shape.order(record)) + learnt + b"]\n"


class EventsWriter:
    def __init__(self, path: Path) -> None:
        """Begin a new file, or continue one that `truncate` has cut to a checkpoint."""
        self.path = path
        self._encode = msgspec.json.Encoder().encode
        self._lines: list[bytes] = []
        self._order_lines: list[bytes] = []
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
            self._order_lines.append(_order_part(header, str(path)))

    def write(self, record: Record) -> None:
        shape = self._shapes[type(record)]
        line = shape.head + self._encode(shape.order(record))
        order_line = line + b"]\n"
        self._order_lines.append(order_line)
        if shape.learnt is None:
            self._lines.append(order_line)
        else:
            self._lines.append(line + b"," + self._encode(shape.learnt(record)) + b"]\n")
        if len(self._lines) >= _FLUSH_AT:
            self.flush()

    def write_sent(self, *fields: Any) -> None:
        """Write a SentRecord from its fields in order, without creating the object: most records are of this kind."""
        line = self._encode(("sent", fields)) + b"\n"
        self._lines.append(line)
        self._order_lines.append(line)
        if len(self._lines) >= _FLUSH_AT:
            self.flush()

    def flush(self) -> None:
        if self._lines:
            data = b"".join(self._lines)
            self._digest.update(data)
            self._order_digest.update(b"".join(self._order_lines))
            self._file.write(data)
            self._lines.clear()
            self._order_lines.clear()
        self._file.flush()

    def sync(self) -> int:
        """Flush the file to disk and return its length."""
        self.flush()
        os.fsync(self._file.fileno())
        return self._file.tell()

    def digests(self) -> tuple[str, str]:
        self.flush()
        return self._digest.hexdigest(), self._order_digest.hexdigest()

    def close(self) -> None:
        if not self._file.closed:
            self.flush()
            self._file.close()


def _order_part(line: bytes, where: str) -> bytes:
    """Return the line without its learnt fields, as it is hashed into the order digest."""
    try:
        parts = msgspec.json.decode(line, type=list[msgspec.Raw])
    except msgspec.DecodeError as error:
        raise RunDirectoryError(f"{where}: not a journal line ({error}); the file is damaged") from error
    if len(parts) < 3:
        return line
    return b"[" + bytes(parts[0]) + b"," + bytes(parts[1]) + b"]\n"


def truncate(path: Path, length: int) -> None:
    """Cut a file to the length that it had at a checkpoint."""
    if not path.is_file() or path.stat().st_size < length:
        raise RunDirectoryError(
            f"{path}: shorter than its checkpoint says, so it is damaged; delete the checkpoint to begin the run again"
        )
    with path.open("r+b") as file:
        file.truncate(length)


def read_events(path: Path, *kinds: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (kind, fields) of every record of the given kinds; of all records if none is given.

    An incomplete last line is left out."""
    names: Columns = {}
    heads = tuple(b'["%s",' % kind.encode() for kind in ("columns", *kinds)) if kinds else (b"",)
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            if not line.startswith(heads) and line.startswith(b'["'):
                continue  # of another kind; most lines are of kind "sent", and decoding them takes long
            try:
                kind, row, *more = msgspec.json.decode(line, type=list[Any])
                if kind == "columns":
                    if more != [FORMAT]:
                        raise RunDirectoryError(foreign_format(path, more[0] if more else 1))
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
