"""Colours for maps and curves that colour-blind readers can tell apart."""

from __future__ import annotations

import numpy as np

from async_hfl.core.arrays import Floats, Ints

INK, SOFT, GRID = "#22303C", "#5F6B76", "#C9D4DC"
AROUND, LAND = "#E8ECEF", "#FBFAF6"

FEW = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito's palette without yellow, which is too pale for dots, and black."""
MORE = ("#4477AA", "#CC6677", "#117733", "#AA4499", "#DDAA33", "#44AA99", "#882255", "#88CCEE", "#999933", "#6E5BB8")
"""Based on Paul Tol's "muted" palette."""
QUALITY = ("#2166AC", "#67A9CF", "#F4A04A", "#C8402E")
"""Links from fast to slow: blue to red without green."""
_NEIGHBOURS = 6


def gateway_colours(x: Floats, y: Floats) -> tuple[str, ...]:
    """Return a colour for each gateway; if colours are reused, neighbouring gateways still differ."""
    count = len(x)
    for palette in (FEW, MORE):
        if count <= len(palette):
            return palette[:count]
    chosen: Ints = np.full(count, -1, np.int64)
    used = np.zeros(len(MORE), np.int64)
    for gateway in range(count):
        near = np.argsort(np.hypot(x - x[gateway], y - y[gateway]), kind="stable")[1 : _NEIGHBOURS + 1]
        taken = {int(colour) for colour in chosen[near] if colour >= 0}
        free = [colour for colour in range(len(MORE)) if colour not in taken]
        best = min(free, key=lambda colour: (int(used[colour]), colour))
        chosen[gateway] = best
        used[best] += 1
    return tuple(MORE[colour] for colour in chosen)
