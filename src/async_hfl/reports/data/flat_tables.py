"""Everything a run wrote down, as flat tables with typed columns: what is exported, and what data frames hold.

Rows are made one by one, so a run of any size can be exported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from async_hfl.core.errors import UserError
from async_hfl.core.identifiers import Address
from async_hfl.journal.events_file import read_events
from async_hfl.journal.run_directory import EPOCH_COLUMNS, RunDirectory
from async_hfl.reports.tables.settings_table import flat

Type = Literal["int", "float", "text", "bool"]
Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True, eq=False)
class FlatTable:
    name: str
    columns: tuple[tuple[str, Type], ...]
    rows: Callable[[], Iterator[Row]]


_ID: tuple[tuple[str, Type], ...] = (("gateway", "int"), ("incarnation", "int"), ("number", "int"))
_EPOCH: tuple[tuple[str, Type], ...] = tuple(
    (name, "bool" if name == "target_reached" else "float" if name in ("at", "metric", "loss") else "int")
    for name in EPOCH_COLUMNS
)


def flat_tables(directory: RunDirectory) -> dict[str, FlatTable]:
    events = _Events(directory)
    made = (
        FlatTable("epochs", _EPOCH, lambda: _epochs(directory)),
        FlatTable("classes", (("at", "float"), ("epoch", "int"), ("name", "text"), ("value", "float")), events.classes),
        FlatTable(
            "jobs",
            (
                *_ID,
                ("device", "int"),
                ("reason", "text"),
                ("sent_at", "float"),
                ("download_s", "float"),
                ("training_s", "float"),
                ("ended_at", "float"),
                ("staleness", "int"),
                ("weight", "float"),
                ("gateway_epoch", "int"),
                ("loss", "float"),
            ),
            events.jobs,
        ),
        FlatTable(
            "uploads",
            (
                *_ID,
                ("at", "float"),
                ("reason", "text"),
                ("base_epoch", "int"),
                ("staleness", "int"),
                ("weight", "float"),
                ("updates", "int"),
                ("early", "bool"),
            ),
            events.uploads,
        ),
        FlatTable(
            "selections",
            (
                ("at", "float"),
                ("gateway", "int"),
                ("candidates", "int"),
                ("chosen", "int"),
                ("devices", "text"),
                ("bound", "bool"),
                ("lone", "bool"),
                ("gap", "float"),
            ),
            events.selections,
        ),
        FlatTable(
            "associations",
            (
                ("at", "float"),
                ("version", "int"),
                ("objective", "float"),
                ("bound", "float"),
                ("moved", "int"),
            ),
            events.associations,
        ),
        FlatTable("moves", (("at", "float"), ("version", "int"), ("device", "int"), ("gateway", "int")), events.moves),
        FlatTable("life", (("at", "float"), ("what", "text"), ("node", "text"), ("detail", "text")), events.life),
        FlatTable(
            "messages",
            (
                ("at", "float"),
                ("sender", "text"),
                ("receiver", "text"),
                ("message", "text"),
                ("about", "text"),
                ("transfer_s", "float"),
                ("model", "int"),
                ("gradient", "int"),
                ("basis", "int"),
                ("control", "int"),
            ),
            events.messages,
        ),
        FlatTable(
            "devices",
            (
                ("device", "int"),
                ("compute_s", "float"),
                ("transmit_s", "float"),
                ("receive_s", "float"),
                ("energy_j", "float"),
                ("metric", "float"),
            ),
            lambda: _devices(directory),
        ),
        FlatTable("settings", (("setting", "text"), ("value", "text")), lambda: _settings(directory)),
    )
    return {table.name: table for table in made}


def flat_table(directory: RunDirectory, name: str) -> FlatTable:
    tables = flat_tables(directory)
    if name not in tables:
        raise UserError(f"there is no table {name!r}; there is {', '.join(tables)}")
    return tables[name]


class _Events:
    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory

    def _of(self, kind: str) -> Iterator[dict[str, Any]]:
        if self._directory.events.is_file():
            for _, fields in read_events(self._directory.events, kind):
                yield fields

    def classes(self) -> Iterator[Row]:
        for one in self._of("epoch"):
            for name, value in one["details"].items():
                yield one["at"], one["epoch"], name, value

    def jobs(self) -> Iterator[Row]:
        for one in self._of("job"):
            yield (
                *one["job"],
                one["device"],
                one["reason"],
                one["sent_at"],
                one["download_s"],
                one["training_s"],
                one["at"],
                one["staleness"],
                one["weight"],
                one["gateway_epoch"],
                one["loss"],
            )

    def uploads(self) -> Iterator[Row]:
        for one in self._of("upload"):
            rest = (one[key] for key in ("at", "reason", "base_epoch", "staleness", "weight", "updates", "early"))
            yield (*one["upload"], *rest)

    def selections(self) -> Iterator[Row]:
        for one in self._of("selection"):
            chosen = one["devices"]
            devices = " ".join(map(str, chosen))
            yield (
                one["at"],
                one["gateway"],
                one["candidates"],
                len(chosen),
                devices,
                one["bound"],
                one["lone"],
                one["gap"],
            )

    def associations(self) -> Iterator[Row]:
        for one in self._of("association"):
            yield one["at"], one["version"], one["objective"], one["bound"], len(one["moved"])

    def moves(self) -> Iterator[Row]:
        for one in self._of("association"):
            for device, gateway in one["moved"]:
                yield one["at"], one["version"], device, gateway

    def life(self) -> Iterator[Row]:
        for one in self._of("lifecycle"):
            yield one["at"], one["what"], one["node"], one["detail"]

    def messages(self) -> Iterator[Row]:
        for one in self._of("sent"):
            about = one["about"]
            yield (
                one["at"],
                str(Address(*one["sender"])),
                str(Address(*one["receiver"])),
                one["message"],
                None if about is None else ".".join(map(str, about)),
                *(one[key] for key in ("transfer_s", "model", "gradient", "basis", "control")),
            )


def _epochs(directory: RunDirectory) -> Iterator[Row]:
    for row in directory.read_epochs():
        yield tuple(bool(row[name]) if name == "target_reached" else row[name] for name in EPOCH_COLUMNS)


def _devices(directory: RunDirectory) -> Iterator[Row]:
    summary = directory.read_summary()
    scores = ((summary or {}).get("by_device") or {}).get("values") or []
    spent = directory.read_devices()
    for device in range(max(len(spent), len(scores))):
        row = spent[device] if device < len(spent) else {}
        times = (row.get(key) for key in ("compute_s", "transmit_s", "receive_s", "energy_j"))
        yield device, *times, scores[device] if device < len(scores) else None


def _settings(directory: RunDirectory) -> Iterator[Row]:
    for key, value in flat(directory.read_manifest()["settings"]).items():
        yield key, str(value)
