"""What one run tells a comparison, read from its directory.

When was the target reached? Two rules, both always given: *held*, the mean of three consecutive evaluations passes it
(ours, which noise does not flatter), and *first*, a single one does (the paper's).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from async_hfl.core.maths.targets import Direction, Target
from async_hfl.journal.run_directory import RunDirectory


@dataclass(frozen=True, slots=True)
class Reached:
    """At the evaluation with which a target was reached."""

    at: float
    bytes_total: float
    """All bytes, both ways, both tiers."""
    bytes_models_up: float
    """Models towards the cloud only, as the paper counts."""
    updates: int


@dataclass(frozen=True, slots=True)
class Outcome:
    run: Path
    seed: int
    held: Reached | None
    first: Reached | None
    virtual_s: float
    """Until the run ended: one that never reached its target had at least so long for it."""
    bytes_total: float
    """In the end, likewise."""
    final_metric: float | None
    device_updates: int
    energy_j: float | None
    """Of all devices, beyond waiting; to the end of the run."""
    bound_share: float
    """Selections in which the bandwidth bound."""
    warmup_s: float
    """Of it in the times above; 0 where it is free."""
    wall_s: float


def read_outcome(directory: RunDirectory, target: float | None = None) -> Outcome:
    """`target` None: the run's own."""
    manifest, summary = directory.read_manifest(), directory.read_summary()
    assert summary is not None
    charged = manifest["settings"]["warmup"]["charge"]
    free = {
        "at": 0.0 if charged else summary["warmup_s"],
        "bytes_total": 0 if charged else summary["warmup_bytes"],
        "bytes_models_up": 0 if charged else summary["warmup_models_uplink_bytes"],
    }
    rows = [{**row, **{key: row[key] - off for key, off in free.items()}} for row in directory.read_epochs()]
    wanted = Target("", manifest["settings"]["task"]["target"] if target is None else target, _direction(manifest))
    spent = summary.get("energy")
    return Outcome(
        run=directory.path,
        seed=manifest["seed"],
        held=reached(rows, wanted),
        first=reached(rows, Target("", wanted.threshold, wanted.direction, window=1)),
        virtual_s=summary["virtual_s"] - free["at"],
        bytes_total=summary["bytes_total"] - free["bytes_total"],
        final_metric=summary["final_metric"],
        device_updates=summary["device_updates"],
        energy_j=None if spent is None else spent["total_j"],
        bound_share=summary["bandwidth_bound_share"],
        warmup_s=summary["warmup_s"] if charged else 0.0,
        wall_s=summary["wall_s"],
    )


def reached(rows: Sequence[dict[str, float]], target: Target) -> Reached | None:
    """The first row at which the mean of `target.window` consecutive metrics passes."""
    for end in range(target.window, len(rows) + 1):
        mean = sum(row["metric"] for row in rows[end - target.window : end]) / target.window
        if target.passes(mean):
            row = rows[end - 1]
            return Reached(row["at"], row["bytes_total"], row["bytes_models_up"], int(row["updates"]))
    return None


def _direction(manifest: dict[str, Any]) -> Direction:
    return "at_most" if manifest.get("metric", {}).get("direction") == "at_most" else "at_least"
