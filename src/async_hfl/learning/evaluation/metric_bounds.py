"""The built-in metrics: the range of their values, and the side of a target on which they shall be."""

from __future__ import annotations

from math import inf

from async_hfl.core.maths.targets import Direction

_BOUNDS = {"accuracy": (0.0, 1.0), "mse": (0.0, inf), "squared-error": (0.0, inf), "absolute-error": (0.0, inf)}


def metric_bounds(metric: str) -> tuple[float, float]:
    """Return the lowest and the highest value of a built-in metric; infinite where nothing is known.

    Do not ask for a user's metric function: it may share a name with a built-in metric and mean something else.
    """
    return _BOUNDS.get(metric, (-inf, inf))


def metric_direction(metric: str) -> Direction:
    """Return the side of a target on which a built-in metric shall be: the others are errors."""
    return "at_least" if metric == "accuracy" else "at_most"
