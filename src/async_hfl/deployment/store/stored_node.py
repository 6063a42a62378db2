"""A node's state directory, read only: for replay, collecting and looking. The node may be running meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from async_hfl.core.serialization import Plain
from async_hfl.deployment.store.effects_summary import EffectsSummary
from async_hfl.deployment.store.encoding import Arrays, Encoding
from async_hfl.deployment.store.payloads import Payloads
from async_hfl.deployment.store.schema import DATABASE, PAYLOADS, open_for_reading


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    number: int
    body: bytes
    effects: EffectsSummary | None
    """None where the event was logged and its handling was not."""


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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def get(self, key: str) -> Any:
        row = self._database.execute("SELECT value FROM facts WHERE key = ?", (key,)).fetchone()
        return None if row is None else msgspec.msgpack.decode(row[0])

    def snapshots(self) -> list[int]:
        """How many events each of those kept has behind it."""
        return [number for (number,) in self._database.execute("SELECT number FROM snapshots ORDER BY number")]

    def snapshot(self, number: int) -> Plain:
        """Raises MissingPayload where a model in it was evicted."""
        (body,) = self._database.execute("SELECT body FROM snapshots WHERE number = ?", (number,)).fetchone()
        return self._encoding.decode(body)

    def events(self, after: int = 0) -> Iterator[LoggedEvent]:
        rows = self._database.execute(
            "SELECT number, event, effects FROM log WHERE number > ? ORDER BY number", (after,)
        )
        for number, body, effects in rows:
            yield LoggedEvent(number, body, None if effects is None else EffectsSummary.from_bytes(effects))

    def decode(self, body: bytes) -> Plain:
        return self._encoding.decode(body)

    def decode_without_arrays(self, body: bytes) -> Plain:
        """None in place of every array: who only wants to know what happened need not load models."""
        return _WITHOUT_ARRAYS.decode(body)
