"""The summary of a run, from counts that are kept during the run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from async_hfl.core.compression.model_codec import ModelCodec
from async_hfl.core.policies import relative_gap
from async_hfl.core.protocol.records import (
    DEVICE_UPDATE,
    AssociationRecord,
    EpochRecord,
    JobRecord,
    LifecycleRecord,
    Record,
    SelectionRecord,
    UploadRecord,
)
from async_hfl.core.serialization import plain
from async_hfl.simulation.accounting.byte_counts import ByteCounts, Spent

OUTAGE_CHANGES = frozenset({"went_down", "came_back", "died", "slowed"})


@plain
@dataclass(slots=True)
class Tally:
    """Counts over the records of a run."""

    ends: dict[str, int] = field(default_factory=dict)
    outages: dict[str, int] = field(default_factory=dict)
    """Outages and similar changes, by the kind of node and of change."""
    selections: int = 0
    bound: int = 0
    lone: int = 0
    warmup_s: float = 0.0
    warmup_bytes: int = 0
    warmup_models_up: int = 0
    refused_in_a_row: int = 0
    cloud_staleness: int = 0
    """The largest staleness of an upload that was mixed: K_c of the convergence theorem."""
    gateway_staleness: int = 0
    """The largest staleness of an update that was aggregated: K_g."""
    gap: float | None = None
    """The largest optimality gap of an association."""
    selection_gap: float | None = None
    """The largest optimality gap of a selection."""
    last: EpochRecord | None = None
    reached: EpochRecord | None = None
    reached_bytes: int = 0
    reached_models_up: int = 0
    checkpoint_epoch: int = 0
    checkpoint_updates: int = 0
    wall_s: float = 0.0

    @property
    def device_updates(self) -> int:
        return self.ends.get(DEVICE_UPDATE, 0)

    def note(self, record: Record, spent: Callable[[], Spent]) -> None:
        """Count a record; `spent` returns the bytes sent until then."""
        if isinstance(record, JobRecord):
            self.ends[record.reason] = self.ends.get(record.reason, 0) + 1
            if record.reason == DEVICE_UPDATE:
                self.refused_in_a_row = 0
                self.gateway_staleness = max(self.gateway_staleness, record.staleness)
            elif record.reason == "refused":
                self.refused_in_a_row += 1
        elif isinstance(record, SelectionRecord):
            self.selections += 1
            self.bound += record.bound
            self.lone += record.lone
            if record.gap is not None:
                self.selection_gap = max(self.selection_gap or 0.0, record.gap)
        elif isinstance(record, UploadRecord):
            if record.reason == "mixed":
                self.cloud_staleness = max(self.cloud_staleness, record.staleness)
        elif isinstance(record, AssociationRecord):
            if record.bound is not None:
                self.gap = max(self.gap or 0.0, relative_gap(record.objective, record.bound))
        elif isinstance(record, LifecycleRecord) and record.what in OUTAGE_CHANGES:
            who = "link" if "-" in record.node else "device" if record.node.startswith("d") else "gateway"
            name = f"{who}_{record.what}"
            self.outages[name] = self.outages.get(name, 0) + 1
        elif isinstance(record, LifecycleRecord) and record.what == "warmup_ended":
            self.warmup_s = record.at
            self.warmup_bytes, self.warmup_models_up = spent()

    def note_epoch(self, record: EpochRecord, spent: Spent) -> None:
        if record.target_reached and self.reached is None:
            self.reached = record
            self.reached_bytes, self.reached_models_up = spent
        self.last = record


@dataclass(frozen=True, slots=True)
class RunTotals:
    """Facts about a complete run that its records do not give, for its summary."""

    byte_counts: ByteCounts
    first_crossing_at: float | None
    cloud_epochs: int
    finished_at: float | None
    calls: int
    trained: int
    wasted: int
    largest_batch: int
    mixing_weights: tuple[float, float]
    """alpha and beta."""
    constant_staleness: bool
    codec: ModelCodec


def result_of(run: RunTotals, tally: Tally) -> dict[str, Any]:
    """Return the result as it is written to the summary file."""
    last, reached = tally.last, tally.reached
    dropped = sum(tally.ends.get(reason, 0) for reason in ("stale", "refused", "round_closed"))
    return {
        "target_reached": reached is not None,
        "time_to_target_s": None if reached is None else reached.at,
        "first_crossing_s": run.first_crossing_at,
        "bytes_to_target": None if reached is None else tally.reached_bytes,
        "models_uplink_bytes_to_target": None if reached is None else tally.reached_models_up,
        "final_metric": None if last is None else last.metric,
        "cloud_epochs": run.cloud_epochs,
        "device_updates": tally.device_updates,
        "updates_dropped": dropped,
        "virtual_s": run.finished_at,
        "wall_s": tally.wall_s,
        "job_ends": dict(sorted(tally.ends.items())),
        "life": dict(sorted(tally.outages.items())),
        "bandwidth_bound_share": tally.bound / max(tally.selections, 1),
        "lone_selections": tally.lone,
        "largest_association_gap": tally.gap,
        "largest_selection_gap": tally.selection_gap,
        "convergence": _convergence(run, tally),
        "warmup_s": tally.warmup_s,
        "warmup_bytes": tally.warmup_bytes,
        "warmup_models_uplink_bytes": tally.warmup_models_up,
        "bytes_total": run.byte_counts.total,
        "bytes": run.byte_counts.summary(),
        "encodings": {"up": run.codec.sizes("up"), "down": run.codec.sizes("down")},
        "training": {
            "calls": run.calls,
            "trained": run.trained,
            "wasted": run.wasted,
            "largest_batch": run.largest_batch,
        },
    }


def _convergence(run: RunTotals, tally: Tally) -> dict[str, Any]:
    """Check the conditions of the theorem for constant s: alpha <= K_c^-1.5 and beta <= K_g^-1.5. L is not checked."""
    most_c, most_g = tally.cloud_staleness, tally.gateway_staleness
    alpha, beta = run.mixing_weights
    return {
        "K_c": most_c,
        "K_g": most_g,
        "constant_staleness": run.constant_staleness,
        "cloud_weight_within_bound": most_c == 0 or alpha <= most_c**-1.5,
        "gateway_weight_within_bound": most_g == 0 or beta <= most_g**-1.5,
    }
