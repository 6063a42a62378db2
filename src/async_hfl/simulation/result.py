"""What the summary of a run says, counted while it goes on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from async_hfl.core.plain import plain
from async_hfl.core.records import EpochRecord
from async_hfl.simulation.simulator import Simulator

HAPPENINGS = frozenset({"went_down", "came_back", "died", "slowed"})


@plain
@dataclass(slots=True)
class Tally:
    """What the summary needs, kept while the run goes on."""

    ends: dict[str, int] = field(default_factory=dict)
    happenings: dict[str, int] = field(default_factory=dict)
    """Outages and the like that befell the network, by what it was and to whom."""
    selections: int = 0
    bound: int = 0
    lone: int = 0
    warmup_s: float = 0.0
    warmup_bytes: int = 0
    warmup_models_up: int = 0
    refused_in_a_row: int = 0
    cloud_staleness: int = 0
    """The largest seen among what was mixed: K_c of the convergence theorem."""
    gateway_staleness: int = 0
    """K_g likewise."""
    gap: float | None = None
    """The largest gap that an association was solved to."""
    selection_gap: float | None = None
    """A selection likewise."""
    last: EpochRecord | None = None
    reached: EpochRecord | None = None
    reached_bytes: int = 0
    reached_models_up: int = 0
    checkpoint_epoch: int = 0
    checkpoint_updates: int = 0
    wall_s: float = 0.0


def result_of(simulator: Simulator, tally: Tally) -> dict[str, Any]:
    """The result as the summary file holds it."""
    pool = simulator.pool.counts
    last, reached = tally.last, tally.reached
    cloud = simulator.world.cloud.state
    dropped = sum(tally.ends.get(reason, 0) for reason in ("stale", "refused", "round_closed"))
    return {
        "target_reached": reached is not None,
        "time_to_target_s": None if reached is None else reached.at,
        "first_crossing_s": cloud.progress.first_crossing_at,
        "bytes_to_target": None if reached is None else tally.reached_bytes,
        "models_uplink_bytes_to_target": None if reached is None else tally.reached_models_up,
        "final_metric": None if last is None else last.metric,
        "cloud_epochs": cloud.epoch,
        "device_updates": simulator.updates,
        "updates_dropped": dropped,
        "virtual_s": simulator.finished_at,
        "wall_s": tally.wall_s,
        "job_ends": dict(sorted(tally.ends.items())),
        "life": dict(sorted(tally.happenings.items())),
        "bandwidth_bound_share": tally.bound / max(tally.selections, 1),
        "lone_selections": tally.lone,
        "largest_association_gap": tally.gap,
        "largest_selection_gap": tally.selection_gap,
        "convergence": _convergence(simulator, tally),
        "warmup_s": tally.warmup_s,
        "warmup_bytes": tally.warmup_bytes,
        "warmup_models_uplink_bytes": tally.warmup_models_up,
        "bytes_total": simulator.ledger.total,
        "bytes": simulator.ledger.summary(),
        "training": {
            "calls": pool.calls,
            "trained": pool.trained,
            "wasted": pool.wasted,
            "largest_batch": pool.largest,
        },
    }


def _convergence(simulator: Simulator, tally: Tally) -> dict[str, Any]:
    """What the theorem asks for (constant s): alpha <= K_c^-1.5 and beta <= K_g^-1.5. L is not checked."""
    gateway, cloud = simulator.world.gateways[0].rules, simulator.world.cloud.rules
    most_c, most_g = tally.cloud_staleness, tally.gateway_staleness
    return {
        "K_c": most_c,
        "K_g": most_g,
        "constant_staleness": cloud.staleness.kind == "constant",
        "cloud_weight_within_bound": most_c == 0 or cloud.mixing_weight <= most_c**-1.5,
        "gateway_weight_within_bound": most_g == 0 or gateway.mixing_weight <= most_g**-1.5,
    }
