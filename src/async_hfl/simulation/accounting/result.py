"""The summary of a run, from counts that are kept during the run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from async_hfl.core.compression.model_codec import ModelCodec
from async_hfl.core.maths.milestones import Reached, Track
from async_hfl.core.maths.targets import Target
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
from async_hfl.simulation.accounting.stability import RECENT, class_floor

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
    checkpoint_epoch: int = 0
    checkpoint_updates: int = 0
    wall_s: float = 0.0
    recent_details: list[dict[str, float]] = field(default_factory=list)
    """Details of the last evaluations, at most RECENT."""
    took_part: set[int] = field(default_factory=set)
    """Devices of which an update was aggregated."""
    participations: dict[int, int] = field(default_factory=dict)
    """The number of these updates by device."""

    @property
    def device_updates(self) -> int:
        return self.ends.get(DEVICE_UPDATE, 0)

    def note(self, record: Record, spent: Callable[[], Spent]) -> None:
        """Count a record; `spent` returns the bytes sent until then."""
        if isinstance(record, JobRecord):
            self.ends[record.reason] = self.ends.get(record.reason, 0) + 1
            if record.reason == DEVICE_UPDATE:
                self.refused_in_a_row = 0
                self.took_part.add(record.device)
                self.participations[record.device] = self.participations.get(record.device, 0) + 1
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

    def note_epoch(self, record: EpochRecord) -> None:
        self.last = record
        self.recent_details = [*self.recent_details, dict(record.details)][-RECENT:]


def divergence(tally: Tally, devices: int) -> str | None:
    """Return a message if all devices diverge, not only some of them."""
    refused = tally.refused_in_a_row
    if refused < max(100, 5 * devices):
        return None
    return (
        f"training diverges: the last {refused} device updates were refused, because they held NaN or infinite "
        "numbers or changed the model far more than is usual; lower the learning rate (device.learning_rate, or that "
        "of your own clients)"
    )


@dataclass(frozen=True, slots=True)
class RunTotals:
    """Facts about a complete run that its records do not give, for its summary."""

    byte_counts: ByteCounts
    track: Track
    target: Target
    ladder: tuple[float, ...]
    """Further values of the metric to look up; empty: the target alone."""
    cloud_epochs: int
    finished_at: float | None
    calls: int
    trained: int
    wasted: int
    largest_batch: int
    codec: ModelCodec


def result_of(run: RunTotals, tally: Tally) -> dict[str, Any]:
    """Return the result as it is written to the summary file."""
    last, found = tally.last, run.track.milestones(run.target)
    held, first = found.held, found.first
    dropped = sum(tally.ends.get(reason, 0) for reason in ("stale", "refused", "round_closed"))
    return {
        "target_reached": held is not None,
        "time_to_target_s": None if held is None else held.at,
        "first_crossing_s": None if first is None else first.at,
        "bytes_to_target": None if held is None else held.bytes_total,
        "models_uplink_bytes_to_target": None if held is None else held.bytes_models_up,
        "ladder": [_step(run, level) for level in run.ladder or (run.target.threshold,)],
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
        "convergence": {"K_c": tally.cloud_staleness, "K_g": tally.gateway_staleness},
        "class_floor": class_floor(tally.recent_details),
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


def _step(run: RunTotals, level: float) -> dict[str, Any]:
    """Return the states at which one target of the ladder was held and first passed; null if it never was."""
    found = run.track.milestones(replace(run.target, threshold=level))
    return {"target": level, "held": _state(found.held), "first": _state(found.first)}


def _state(reached: Reached | None) -> dict[str, float] | None:
    if reached is None:
        return None
    at, total, models_up, updates = reached
    return {"time_s": at, "bytes": total, "models_uplink_bytes": models_up, "updates": updates}
