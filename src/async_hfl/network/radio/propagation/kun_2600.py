"""Whole cells at 2.6 GHz, measured by Kun, Wang, Zhang and others (2008): no term for frequency or height."""

from __future__ import annotations

import numpy as np

from async_hfl.core.arrays import Floats


def kun_2600(distance_m: Floats) -> Floats:
    """L = 36 + 26 log10(d / m)."""
    loss: Floats = 36.0 + 26.0 * np.log10(distance_m)
    return loss
