"""The journal of a run as columns, read in one pass over events.jsonl. An interrupted run gives what it has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from async_hfl.core.arrays import Floats, Ints
from async_hfl.core.protocol.records import DEVICE_UPDATE
from async_hfl.journal.run_directory import RunDirectory

JOB_KINDS = ("job", "upload", "selection", "association", "lifecycle", "epoch")


@dataclass(frozen=True, slots=True, eq=False)
class Jobs:
    """One entry per finished job, ordered by the time at which it finished."""

    gateway: Ints
    device: Ints
    reason: tuple[str, ...]
    sent_at: Floats
    download_s: Floats
    training_s: Floats
    upload_s: Floats
    """Seconds that the result was in transit; NaN if none was sent, or if transfers were not read."""
    arrived_at: Floats
    """Arrival of the result at the gateway; NaN in the same cases."""
    ended_at: Floats
    staleness: Ints
    aggregated: np.ndarray[Any, np.dtype[np.bool_]]

    def __len__(self) -> int:
        return len(self.reason)


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    jobs: Jobs
    uploads: tuple[dict[str, Any], ...]
    selections: tuple[dict[str, Any], ...]
    associations: tuple[dict[str, Any], ...]
    lifecycle: tuple[dict[str, Any], ...]
    epochs: tuple[dict[str, Any], ...]
    ends_at: float
    """Time of the last record, in seconds."""

    @property
    def warmup_ended_at(self) -> float | None:
        return next((one["at"] for one in self.lifecycle if one["what"] == "warmup_ended"), None)


def read_columns(directory: RunDirectory, *, transfers: bool = True) -> Columns:
    """Read the journal. Without `transfers` messages are skipped: several times faster, but no upload times."""
    found: dict[str, list[dict[str, Any]]] = {kind: [] for kind in JOB_KINDS}
    sent: dict[tuple[int, int, int], tuple[float, float]] = {}
    ends_at = 0.0
    kinds = (*JOB_KINDS, "sent") if transfers else JOB_KINDS
    for kind, fields in directory.read_events(*kinds):
        if kind == "sent":
            # A result may be sent again after an outage: the last transfer is the one that arrived.
            if fields["message"] == "Update" and fields["about"] is not None:
                sent[tuple(fields["about"])] = (fields["at"], fields["transfer_s"])
        else:
            found[kind].append(fields)
            ends_at = max(ends_at, fields["at"])
    return Columns(
        _jobs(found["job"], sent),
        tuple(found["upload"]),
        tuple(found["selection"]),
        tuple(found["association"]),
        tuple(found["lifecycle"]),
        tuple(found["epoch"]),
        ends_at,
    )


def _jobs(rows: list[dict[str, Any]], sent: dict[tuple[int, int, int], tuple[float, float]]) -> Jobs:
    reason = tuple(row["reason"] for row in rows)
    unknown = (np.nan, np.nan)
    transfer = np.array([sent.get(tuple(row["job"]), unknown) for row in rows], np.float64).reshape(-1, 2)
    return Jobs(
        gateway=_ints(row["job"][0] for row in rows),
        device=_ints(row["device"] for row in rows),
        reason=reason,
        sent_at=_floats(row["sent_at"] for row in rows),
        download_s=_floats(row["download_s"] for row in rows),
        training_s=_floats(row["training_s"] for row in rows),
        upload_s=transfer[:, 1],
        arrived_at=transfer.sum(axis=1),
        ended_at=_floats(row["at"] for row in rows),
        staleness=_ints(row["staleness"] for row in rows),
        aggregated=np.array([one == DEVICE_UPDATE for one in reason], np.bool_),
    )


def _ints(values: Any) -> Ints:
    return np.fromiter(values, np.int64)


def _floats(values: Any) -> Floats:
    return np.fromiter(values, np.float64)
