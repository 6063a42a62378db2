"""A node's state directory, opened read-only for replay and reports. The node may be running."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from async_hfl.core.serialization import Plain
from async_hfl.deployment.store.effects_summary import EffectsSummary
from async_hfl.deployment.store.encoding import Arrays, Encoding
from async_hfl.deployment.store.payloads import Payloads
from async_hfl.deployment.store.schema import (
    DATABASE,
    PAYLOADS,
    check_row,
    crc_column,
    format_of,
    open_for_reading,
    read_fact,
)


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    number: int
    body: bytes
    effects: EffectsSummary | None
    """None if the process ended before the effects were logged."""


_WITHOUT_ARRAYS: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(ext_hook=lambda code, data: None)


class StoredNode:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._database = open_for_reading(path / DATABASE)
        payloads = Payloads(self._database, path / PAYLOADS, writing=False)
        self.arrays = Arrays()
        self._encoding = Encoding(self.arrays, load=payloads.load)

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> StoredNode:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def get(self, key: str) -> Any:
        return read_fact(self._database, key)

    def snapshots(self) -> list[int]:
        """Return the number of events before each snapshot that is kept."""
        return [number for (number,) in self._database.execute("SELECT number FROM snapshots ORDER BY number")]

    def snapshot(self, number: int) -> Plain:
        """Return a snapshot. Raises MissingPayload if a model in it was evicted."""
        query = f"SELECT body, {crc_column(self._database)} FROM snapshots WHERE number = ?"
        body, crc = self._database.execute(query, (number,)).fetchone()
        check_row(self.path, f"snapshot {number}", crc, body)
        return self._encoding.decode(body)

    @property
    def format(self) -> int:
        return format_of(self._database)

    @property
    def begins_after(self) -> int:
        """Number of the last event that was deleted from the log; 0 if the log is complete."""
        first = self._database.execute("SELECT min(number) FROM log").fetchone()[0]
        return min(self.snapshots(), default=0) if first is None else int(first) - 1

    def events(self, after: int = 0) -> Iterator[LoggedEvent]:
        crc_of = crc_column(self._database)
        rows = self._database.execute(
            f"SELECT number, event, effects, {crc_of} FROM log WHERE number > ? ORDER BY number", (after,)
        )
        for number, body, effects, crc in rows:
            check_row(self.path, f"event {number}", crc, body, effects)
            summary = None if effects is None else msgspec.msgpack.decode(effects, type=EffectsSummary)
            yield LoggedEvent(number, body, summary)

    def decode(self, body: bytes) -> Plain:
        return self._encoding.decode(body)

    def decode_without_arrays(self, body: bytes) -> Plain:
        """Decode with None in place of every array, so that no model is loaded."""
        return _WITHOUT_ARRAYS.decode(body)
