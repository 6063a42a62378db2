"""Staleness discounts s(x): factors for the weight of an update of staleness x.

polynomial (x+1)^-q (the paper's, q = 0.5), constant 1, hinge 1 up to b then 1/(a(x-b)+1), exponential e^(-a x).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

StalenessKind = Literal["polynomial", "constant", "hinge", "exponential"]


@dataclass(frozen=True, slots=True)
class StalenessDiscount:
    """The function s(.) with its constants; called with a staleness >= 0."""

    kind: StalenessKind = "polynomial"
    exponent: float = 0.5
    """q of the polynomial."""
    slope: float = 10.0
    """a of the hinge."""
    offset: float = 4.0
    """b of the hinge."""
    rate: float = 0.1
    """a of the exponential."""

    def __call__(self, staleness: float) -> float:
        if self.kind == "polynomial":
            return float((staleness + 1.0) ** -self.exponent)
        if self.kind == "constant":
            return 1.0
        if self.kind == "hinge":
            return 1.0 if staleness <= self.offset else 1.0 / (self.slope * (staleness - self.offset) + 1.0)
        return math.exp(-self.rate * staleness)
