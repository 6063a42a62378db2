"""Tables that travel with the package (their origin and licence: data/CREDITS.md)."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources

import numpy as np

from async_hfl.core.arrays import Floats
from async_hfl.core.errors import DataError


def table(name: str, shape: tuple[int, int], columns: Sequence[int] | None = None, header: int = 0) -> Floats:
    """A file of numbers, checked against the shape it is known to have: a damaged installation is named as such."""
    file = resources.files("async_hfl.network") / "data" / name
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
        values = np.loadtxt(lines, np.float64, delimiter=",", usecols=columns, skiprows=header, ndmin=2)
    except (OSError, ValueError, IndexError) as fault:
        raise DataError(f"package data {name} cannot be read ({fault}): install the package again") from fault
    if values.shape != shape:
        raise DataError(f"package data {name} has shape {values.shape}, not {shape}: install the package again")
    return values
