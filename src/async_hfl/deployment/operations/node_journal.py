"""The journal of a node, read from its state directory or from a file fetched from the running node."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from async_hfl.core.errors import DataError
from async_hfl.deployment.store import schema
from async_hfl.deployment.store.node_identity import CLOCK, IDENTITY
from async_hfl.deployment.store.schema import DATABASE, open_for_reading

EXPORTED = "journal.msgpack"
_TIMES = {"job": (0, 4)}
"""Kind of record -> the order columns that are times; for other kinds only the first column is."""


class Exported(msgspec.Struct):
    """A journal as it is fetched over the network."""

    facts: dict[str, Any]
    lines: list[bytes]


@dataclass(frozen=True, slots=True)
class Line:
    at: float
    """Time on the cloud's clock, as the node knew it."""
    kind: str
    order: list[Any]
    learnt: list[Any] | None


def is_node(state: Path) -> bool:
    return (state / DATABASE).is_file() or (state / EXPORTED).is_file()


def has_log(state: Path) -> bool:
    """Return True if the event log is present as well as the records."""
    return (state / DATABASE).is_file()


def export(state: Path) -> Exported:
    facts = {key: read_fact(state, key) for key in (IDENTITY, CLOCK)}
    return Exported(facts, list(_texts(state)))


def keep_exported(exported: Exported, out: Path) -> Path:
    name = str((exported.facts.get(IDENTITY) or {}).get("name", ""))
    if not name or "/" in name or name.startswith("."):
        raise DataError(f"a journal of a node with an invalid name: {name!r}")
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / EXPORTED).write_bytes(msgspec.msgpack.encode(exported))
    return folder


def read_fact(state: Path, key: str) -> Any:
    if (exported := _exported(state)) is not None:
        return exported.facts.get(key)
    with closing(open_for_reading(state / DATABASE)) as database:
        return schema.read_fact(database, key)


def read_lines(state: Path, after: int = 0) -> Iterator[Line]:
    """Yield every record but the first `after`, with its times on the cloud's clock, so that the journals of a run can
    be merged."""
    clock: list[tuple[float, float]] = read_fact(state, CLOCK) or []
    place, offset = 0, 0.0
    for text in _texts(state, after):
        kind, order, *more = msgspec.json.decode(text, type=list[Any])
        while place < len(clock) and clock[place][0] <= order[0]:
            offset = clock[place][1] - clock[place][0]
            place += 1
        for column in _TIMES.get(kind, (0,)):
            order[column] += offset
        yield Line(order[0], kind, order, more[0] if more else None)


def _texts(state: Path, after: int = 0) -> Iterator[bytes]:
    if (exported := _exported(state)) is not None:
        yield from exported.lines[after:]
        return
    with closing(open_for_reading(state / DATABASE)) as database:
        query = f"SELECT number, line, {schema.crc_column(database)} FROM journal WHERE number > ? ORDER BY number"
        for number, text, crc in database.execute(query, (after,)):
            schema.check_row(state, f"record {number}", crc, text)
            yield bytes(text)


def _exported(state: Path) -> Exported | None:
    path = state / EXPORTED
    if not path.is_file():
        return None
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=Exported)
    except msgspec.DecodeError as error:
        raise DataError(f"{path}: not a journal ({error}); fetch it again") from error
