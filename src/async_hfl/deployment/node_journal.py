"""The journal of a node as its disk has it, whether or not the node runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from async_hfl.deployment.identity_card import CLOCK
from async_hfl.deployment.store.schema import DATABASE, open_for_reading

_TIMES = {"job": (0, 4)}
"""Which of a record's order columns are times; the first of every kind is."""


@dataclass(frozen=True, slots=True)
class Line:
    at: float
    """On the cloud's clock, as far as the node knew it."""
    kind: str
    order: list[Any]
    learnt: list[Any] | None


def is_node(state: Path) -> bool:
    return (state / DATABASE).is_file()


def read_fact(state: Path, key: str) -> Any:
    database = open_for_reading(state / DATABASE)
    try:
        row = database.execute("SELECT value FROM facts WHERE key = ?", (key,)).fetchone()
        return None if row is None else msgspec.msgpack.decode(row[0])
    finally:
        database.close()


def read_lines(state: Path) -> Iterator[Line]:
    """Every record with its times on the cloud's clock: two journals of a run can be laid side by side."""
    database = open_for_reading(state / DATABASE)
    try:
        row = database.execute("SELECT value FROM facts WHERE key = ?", (CLOCK,)).fetchone()
        clock: list[tuple[float, float]] = [] if row is None else msgspec.msgpack.decode(row[0])
        place, offset = 0, 0.0
        for (text,) in database.execute("SELECT line FROM journal ORDER BY number"):
            kind, order, *more = msgspec.json.decode(text, type=list[Any])
            while place < len(clock) and clock[place][0] <= order[0]:
                offset = clock[place][1] - clock[place][0]
                place += 1
            for column in _TIMES.get(kind, (0,)):
                order[column] += offset
            yield Line(order[0], kind, order, more[0] if more else None)
    finally:
        database.close()
