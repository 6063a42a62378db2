"""Targets of the metrics that we compute ourselves: of those it is known how good a model can be."""

from __future__ import annotations

from math import inf

from async_hfl.core.maths.targets import Direction, Target

_RANGES = {"accuracy": (0.0, 1.0), "mse": (0.0, inf), "squared-error": (0.0, inf), "absolute-error": (0.0, inf)}


def known_target(metric: str, threshold: float, direction: Direction) -> Target:
    """Not for a function of the user's: it may have the same name, and mean something else."""
    if metric not in _RANGES:
        return Target(metric, threshold, direction)
    low, high = _RANGES[metric]
    return Target(metric, threshold, direction, best=high if direction == "at_least" else low)
