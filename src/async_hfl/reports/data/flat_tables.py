"""The records of a run as flat tables with typed columns, for exports and data frames.

Rows are generated one by one, so a run of any size can be exported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, cast

from async_hfl.core.errors import UserError
from async_hfl.core.identifiers import Address
from async_hfl.journal.run_directory import EPOCH_COLUMNS, RunDirectory
from async_hfl.reports.tables.formatting import flat_settings

Type = Literal["int", "float", "text", "bool"]
Columns = tuple[tuple[str, Type], ...]
Row = tuple[Any, ...]
Fields = dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class FlatTable:
    name: str
    columns: Columns
    rows: Callable[[], Iterator[Row]]


def _columns(text: str) -> Columns:
    """Parse "at float, epoch int"."""
    return tuple((name, cast(Type, kind)) for name, kind in map(str.split, text.split(",")))


_ID = "gateway int, incarnation int, number int"
_EPOCH: Columns = tuple(
    (name, "bool" if name == "target_reached" else "float" if name in ("at", "metric", "loss") else "int")
    for name in EPOCH_COLUMNS
)


def _classes(one: Fields) -> Iterator[Row]:
    return ((one["at"], one["epoch"], name, value) for name, value in one["details"].items())


def _job(one: Fields) -> Iterator[Row]:
    keys = ("device", "reason", "sent_at", "download_s", "training_s", "at", "staleness", "weight", "gateway_epoch")
    yield (*one["job"], *(one[key] for key in keys), one["loss"])


def _upload(one: Fields) -> Iterator[Row]:
    keys = ("at", "reason", "base_epoch", "staleness", "weight", "updates", "early")
    yield (*one["upload"], *(one[key] for key in keys))


def _selection(one: Fields) -> Iterator[Row]:
    chosen = one["devices"]
    before, after = ("at", "gateway", "candidates"), ("bound", "lone", "gap")
    yield (*(one[key] for key in before), len(chosen), " ".join(map(str, chosen)), *(one[key] for key in after))


def _association(one: Fields) -> Iterator[Row]:
    yield one["at"], one["version"], one["objective"], one["bound"], len(one["moved"])


def _moves(one: Fields) -> Iterator[Row]:
    return ((one["at"], one["version"], device, gateway) for device, gateway in one["moved"])


def _life(one: Fields) -> Iterator[Row]:
    yield one["at"], one["what"], one["node"], one["detail"]


def _message(one: Fields) -> Iterator[Row]:
    ends = (str(Address(*one[key])) for key in ("sender", "receiver"))
    about = None if one["about"] is None else ".".join(map(str, one["about"]))
    sizes = (one[key] for key in ("transfer_s", "model", "gradient", "basis", "control"))
    yield (one["at"], *ends, one["message"], about, *sizes)


_EVENT_TABLES: tuple[tuple[str, str, Callable[[Fields], Iterator[Row]], str], ...] = (
    ("classes", "epoch", _classes, "at float, epoch int, name text, value float"),
    (
        "jobs",
        "job",
        _job,
        f"{_ID}, device int, reason text, sent_at float, download_s float, training_s float, ended_at float, "
        "staleness int, weight float, gateway_epoch int, loss float",
    ),
    (
        "uploads",
        "upload",
        _upload,
        f"{_ID}, at float, reason text, base_epoch int, staleness int, weight float, updates int, early bool",
    ),
    (
        "selections",
        "selection",
        _selection,
        "at float, gateway int, candidates int, chosen int, devices text, bound bool, lone bool, gap float",
    ),
    ("associations", "association", _association, "at float, version int, objective float, bound float, moved int"),
    ("moves", "association", _moves, "at float, version int, device int, gateway int"),
    ("life", "lifecycle", _life, "at float, what text, node text, detail text"),
    (
        "messages",
        "sent",
        _message,
        "at float, sender text, receiver text, message text, about text, transfer_s float, model int, gradient int, "
        "basis int, control int",
    ),
)
"""Name, kind of record, rows of one record, columns."""
_DEVICE = "device int, compute_s float, transmit_s float, receive_s float, energy_j float, metric float"


def flat_tables(directory: RunDirectory) -> dict[str, FlatTable]:
    def of_events(name: str, kind: str, rows_of: Callable[[Fields], Iterator[Row]], columns: str) -> FlatTable:
        def rows() -> Iterator[Row]:
            for _, fields in directory.read_events(kind):
                yield from rows_of(fields)

        return FlatTable(name, _columns(columns), rows)

    made = (
        FlatTable("epochs", _EPOCH, lambda: _epochs(directory)),
        *(of_events(*one) for one in _EVENT_TABLES),
        FlatTable("devices", _columns(_DEVICE), lambda: _devices(directory)),
        FlatTable("settings", _columns("setting text, value text"), lambda: _settings(directory)),
    )
    return {table.name: table for table in made}


def flat_table(directory: RunDirectory, name: str) -> FlatTable:
    tables = flat_tables(directory)
    if name not in tables:
        raise UserError(f"there is no table {name!r}; the tables are {', '.join(tables)}")
    return tables[name]


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
    for key, value in flat_settings(directory.read_manifest()["settings"]).items():
        yield key, str(value)
