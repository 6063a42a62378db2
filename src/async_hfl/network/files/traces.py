"""Recorded networks: every transfer, every training and every outage, as a CSV file with the columns

    at        seconds since the run began
    what      download, upload            a model between gateway and device
              to_cloud, to_gateway        a model between gateway and cloud
              small_download, ...         the same directions, for messages without a model
              training                    one local training
              device_down, device_up      a gateway timed the device out, or heard from it again
              gateway_down, gateway_up    the cloud lost a gateway, or accepted it again
    device, gateway                       their numbers, if they take part
    bytes     size of the message
    seconds   duration

The journals of simulated and of deployed runs hold all of this, so either can be recorded.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from async_hfl.core.errors import DataError
from async_hfl.core.identifiers import CLOUD_TIER, DEVICE_TIER
from async_hfl.network.files.cells import Line, csv_table, nearest

COLUMNS = ("at", "what", "device", "gateway", "bytes", "seconds")
DEVICE_TRANSFERS = ("download", "upload")
BACKHAUL_TRANSFERS = ("to_cloud", "to_gateway")
_SMALL = "small_"
TRANSFERS = tuple(size + way for size in ("", _SMALL) for way in (*DEVICE_TRANSFERS, *BACKHAUL_TRANSFERS))
_OUTAGES = {
    "device_given_up": "device_down",
    "device_heard": "device_up",
    "gateway_lost": "gateway_down",
    "gateway_joined": "gateway_up",
}
OUTAGES = tuple(_OUTAGES.values())
KINDS = (*TRANSFERS, "training", *OUTAGES)
RECORDED = ("sent", "job", "lifecycle")
"""Kinds of journal records from which a trace is made."""


class TraceRow(NamedTuple):
    at: float
    what: str
    device: int | None
    gateway: int | None
    bytes: int | None
    seconds: float | None


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Rows in order of time."""

    path: str
    rows: tuple[TraceRow, ...]

    @property
    def outages(self) -> tuple[TraceRow, ...]:
        """Rows about devices and gateways that went down or came back."""
        return tuple(row for row in self.rows if row.what in OUTAGES)


def trace_rows(records: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterator[TraceRow]:
    """Return the rows of journal records (kind, fields). They are unsorted: a job is recorded when it ends."""
    for kind, fields in records:
        if kind == "sent":
            if fields["transfer_s"] > 0:  # otherwise it was not measured
                yield _transfer(fields)
        elif kind == "job" and fields["download_s"] > 0:  # otherwise nothing came back, and its duration is unknown
            gateway = int(fields["job"][0]) if not isinstance(fields["job"], str) else _number(fields["job"])
            began = fields["sent_at"] + fields["download_s"]
            yield TraceRow(began, "training", fields["device"], gateway, None, fields["training_s"])
        elif kind == "lifecycle" and fields["what"] in _OUTAGES:
            what, node = _OUTAGES[fields["what"]], _number(fields["node"])
            if what.startswith("device"):
                by = fields["detail"].removeprefix("by ")
                yield TraceRow(fields["at"], what, node, _number(by) if by else None, None, None)
            else:
                yield TraceRow(fields["at"], what, None, node, None, None)


def _transfer(fields: Mapping[str, Any]) -> TraceRow:
    (sender_tier, sender), (receiver_tier, receiver) = fields["sender"], fields["receiver"]
    size = "" if fields["model"] > 0 else _SMALL
    total = fields["model"] + fields["gradient"] + fields["basis"] + fields["control"]
    device: int | None = None
    if receiver_tier == DEVICE_TIER:
        way, device, gateway = "download", receiver, sender
    elif sender_tier == DEVICE_TIER:
        way, device, gateway = "upload", sender, receiver
    elif receiver_tier == CLOUD_TIER:
        way, gateway = "to_cloud", sender
    else:
        way, gateway = "to_gateway", receiver
    return TraceRow(fields["at"], size + way, device, gateway, total, fields["transfer_s"])


def _number(node: str) -> int:
    """Return the number in a name: 3 for "g3", "d3", "g3.1.27" and "g3: no session"."""
    return int(node[1:].partition(":")[0].partition(".")[0])


def write_trace(file: TextIO, rows: Iterable[TraceRow]) -> dict[str, int]:
    """Write all rows in order of time; return the number of rows of each kind."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    counts: dict[str, int] = {}
    for row in sorted(rows, key=lambda row: row.at):
        writer.writerow(["" if cell is None else repr(cell) if isinstance(cell, float) else cell for cell in row])
        counts[row.what] = counts.get(row.what, 0) + 1
    return counts


def is_trace(header: Iterable[str]) -> bool:
    return {"at", "what", "seconds"} <= set(header)


def read_trace(path: Path, text: str) -> Trace:
    _, lines = csv_table(path, text, COLUMNS)
    return Trace(str(path), tuple(sorted(map(_row, lines), key=lambda row: row.at)))


def _row(line: Line) -> TraceRow:
    what = line.text("what")
    if what not in KINDS:
        raise DataError(f"{line.where}: {what!r} is not a kind of row in a trace{nearest(what, KINDS)}")
    has_device = what.endswith(DEVICE_TRANSFERS) or what == "training" or what.startswith("device")
    needs_gateway = what in TRANSFERS or what.startswith("gateway")
    device = line.integer("device") if has_device else None
    gateway = line.integer("gateway") if needs_gateway or line.text("gateway") else None
    size = line.integer("bytes", 1) if what in TRANSFERS else None
    seconds = line.number("seconds", 1e-9 if what in TRANSFERS else 0.0) if what not in OUTAGES else None
    return TraceRow(line.number("at", 0), what, device, gateway, size, seconds)
