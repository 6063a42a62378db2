"""Summary of the distribution of a value over devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from async_hfl.core.maths.targets import Direction


def spread(values: Sequence[float | None], direction: Direction = "at_least") -> dict[str, Any]:
    """Return the worst, median and best value, the mean of the worst tenth and the worst device, ignoring missing
    values."""
    known = [(value, device) for device, value in enumerate(values) if value is not None and np.isfinite(value)]
    if not known:
        return {"devices": 0, "worst": None, "worst_device": None, "worst_tenth": None, "median": None, "best": None}
    ranked = sorted(known, key=lambda pair: (pair[0] if direction == "at_least" else -pair[0], pair[1]))
    ordered = [value for value, _ in ranked]
    tenth = ordered[: max(1, len(ordered) // 10)]
    return {
        "devices": len(known),
        "worst": ordered[0],
        "worst_device": ranked[0][1],
        "worst_tenth": float(np.mean(tenth)),
        "median": float(np.median(ordered)),
        "best": ordered[-1],
    }
