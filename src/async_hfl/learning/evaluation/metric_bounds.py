"""Ranges of the built-in metrics, which bound how good a model can be."""

from __future__ import annotations

from math import inf

from async_hfl.core.maths.targets import Direction, Target

_RANGES = {"accuracy": (0.0, 1.0), "mse": (0.0, inf), "squared-error": (0.0, inf), "absolute-error": (0.0, inf)}


def known_target(metric: str, threshold: float, direction: Direction) -> Target:
    """Return the target of a built-in metric. A user's metric of the same name may mean something else."""
    if metric not in _RANGES:
        return Target(metric, threshold, direction)
    low, high = _RANGES[metric]
    return Target(metric, threshold, direction, best=high if direction == "at_least" else low)
