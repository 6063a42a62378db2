"""Kept results made by hand, with the times and bytes at which levels were held."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from async_hfl.core.maths.milestones import Reached
from async_hfl.experiments.results.kept_run import KeptRun
from async_hfl.experiments.results.measured import KeptCurve, Level, Measured

Held = Mapping[float, tuple[float, float] | None]
"""Level -> seconds and bytes; None if it was not held."""


def measured(
    held: Held,
    end: tuple[float, float],
    *,
    final: float | None = 0.9,
    direction: Literal["at_least", "at_most"] = "at_least",
    **more: Any,
) -> Measured:
    """Return the result of a run that lasted `end` seconds and sent as many bytes."""

    def state(found: tuple[float, float] | None) -> Reached | None:
        return None if found is None else Reached(*found, 0.0, 0.0)

    last = state(end)
    assert last is not None
    usual: dict[str, Any] = {
        "metric": "accuracy",
        "direction": direction,
        "levels": [Level(level, state(found), None) for level, found in held.items()],
        "end": last,
        "final": final,
        "bound_share": 0.5,
        "warmup_s": 0.0,
        "energy_j": None,
        "worst_class": None,
        "worst_device": None,
        "class_floor": None,
        "lost_gain": 0.0,
        "left_out": None,
        "kinds": {},
        "decisions": {},
        "curve": KeptCurve([], [], []),
    }
    return Measured(**(usual | more))


def row(name: str, seed: int, result: Measured, **more: Any) -> KeptRun:
    """Return the row of a run; the settings digest is by default that of the name and the seed."""
    usual: dict[str, Any] = {
        "digest": f"{name} {seed}",
        "task": "digits",
        "method": name,
        "network": "uniform",
        "preset": "tight",
        "seed": seed,
        "group": name,
        "family": name,
        "panel": "digits",
        "role": "compared",
        "base": "",
        "target": 0.9,
        "device_epochs": 5,
        "settings": {},
        "tuned": None,
        "result": result,
        "versions": {},
        "made": "2026-11-19T12:00:00+00:00",
    }
    return KeptRun(**(usual | more))
