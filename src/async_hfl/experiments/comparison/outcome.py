"""The outcome of one run, as a comparison needs it, read from the run directory.

Two rules say when the target was reached. *held*: the mean of three consecutive evaluations passes it (the default,
robust to noise). *first*: a single evaluation passes it (the paper's rule).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from async_hfl.core.maths.targets import Direction
from async_hfl.journal.run_directory import RunDirectory
from async_hfl.reports.data.curves import Curve, reached, read_curve

Rule = Literal["held", "first"]
Quantity = Literal["at", "bytes_total", "bytes_models_up"]


@dataclass(frozen=True, slots=True)
class Reached:
    """The state of a run at the evaluation at which a target was reached."""

    at: float
    bytes_total: float
    """All bytes, in both directions and both tiers."""
    bytes_models_up: float
    """Bytes of models sent towards the cloud, which is what the paper counts."""


@dataclass(frozen=True, slots=True)
class Outcome:
    run: Path
    seed: int
    held: Reached | None
    first: Reached | None
    virtual_s: float
    """Duration of the run, which bounds the time to a target that was not reached."""
    final_metric: float | None
    device_updates: int
    energy_j: float | None
    """Energy of all devices during the whole run, without idle power."""
    bound_share: float
    """Share of the selections in which the bandwidth limit excluded a candidate."""
    warmup_s: float
    """The part of the times above that is warm-up; 0 if the warm-up is free of charge."""


def read_outcome(directory: RunDirectory, target: float | None = None) -> Outcome:
    """Read a complete run; `target` replaces the run's own target."""
    manifest, summary = directory.read_manifest(), directory.read_summary()
    assert summary is not None
    charged = manifest["settings"]["warmup"]["charge"]
    curve = read_curve(directory, manifest, summary)
    wanted = manifest["settings"]["task"]["target"] if target is None else target
    direction: Direction = manifest.get("metric", {}).get("direction", "at_least")
    energy = summary.get("energy")
    return Outcome(
        run=directory.path,
        seed=manifest["seed"],
        held=reached_at(curve, wanted, direction, window=3),
        first=reached_at(curve, wanted, direction, window=1),
        virtual_s=summary["virtual_s"] - (0.0 if charged else summary["warmup_s"]),
        final_metric=summary["final_metric"],
        device_updates=summary["device_updates"],
        energy_j=None if energy is None else energy["total_j"],
        bound_share=summary["bandwidth_bound_share"],
        warmup_s=summary["warmup_s"] if charged else 0.0,
    )


def reached_at(curve: Curve, target: float, direction: Direction, window: int) -> Reached | None:
    """Return the state at which the mean of `window` consecutive evaluations first passes the target."""
    place = reached(curve, target, direction, window)
    if place is None:
        return None
    return Reached(float(curve.time[place]), int(curve.bytes[place]), int(curve.up[place]))


def at_target(outcomes: Sequence[Outcome], quantity: Quantity = "at", rule: Rule = "held") -> dict[int, float]:
    """Return a quantity at the moment the target was reached, by seed; other seeds are left out."""
    states = {one.seed: getattr(one, rule) for one in outcomes}
    return {seed: getattr(state, quantity) for seed, state in states.items() if state is not None}
