"""Lookup from (device, gateway) to the index of their link, for every message and a million links.

A dict keyed by the pair costs about 100 bytes per link, and `np.searchsorted` on one row a microsecond. A flat `array`
of the gateways, sorted as in FeasibleLinks, costs 4 bytes per link, and `array.index` searches a row of about ten links
in C.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import final

import numpy as np

from async_hfl.core.arrays import Floats
from async_hfl.core.errors import InvariantViolation
from async_hfl.core.topology import FeasibleLinks


def compact(values: Floats) -> array[float]:
    """Return a column of floats as an `array`: 8 bytes each, read without the cost of numpy scalars."""
    return array("d", np.ascontiguousarray(values, np.float64).tobytes())


@final
@dataclass(frozen=True, slots=True, eq=False)
class LinkLookup:
    gateway: array[int]
    """Gateway of each link, in the order of FeasibleLinks."""
    row_start: array[int]

    @classmethod
    def of(cls, links: FeasibleLinks) -> LinkLookup:
        return cls(
            array("i", links.link_gateway.astype(np.intc).tobytes()),
            array("q", links.row_start.astype(np.int64).tobytes()),
        )

    def find(self, device: int, gateway: int) -> int:
        """Return the index of the link in the columns of FeasibleLinks."""
        try:
            return self.gateway.index(gateway, self.row_start[device], self.row_start[device + 1])
        except (ValueError, IndexError):
            raise InvariantViolation(f"device {device} has no link to gateway {gateway}") from None
