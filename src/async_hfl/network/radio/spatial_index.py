"""Exact nearest gateways of every device without a devices x gateways table.

Gateways are sorted into the cells of a square grid, about two per cell. All devices in one cell share a block of cells
around it, and the block grows until it must contain their nearest gateways. The work grows with devices x neighbours. A
k-d tree would add SciPy as a dependency for this one query.
"""

from __future__ import annotations

import math
from typing import final

import numpy as np

from async_hfl.core.arrays import Floats, Ints
from async_hfl.core.errors import InvariantViolation

_GATEWAYS_PER_CELL = 2
_MOST_CELLS_A_SIDE = 4096
"""Upper limit of the grid: gateways in two distant clusters would otherwise need a grid of mostly empty cells."""
_PAIRS_AT_ONCE = 2_000_000


@final
class GatewayGrid:
    """A grid of points in the plane, in metres, for nearest-neighbour queries."""

    def __init__(self, x: Floats, y: Floats) -> None:
        if len(x) == 0 or len(x) != len(y):
            raise InvariantViolation(f"a grid of {len(x)} x and {len(y)} y; as many of each, at least one")
        self._x, self._y = x, y
        self._west, self._south = float(x.min()), float(y.min())
        width, height = float(x.max()) - self._west, float(y.max()) - self._south
        wanted = max(1.0, len(x) / _GATEWAYS_PER_CELL)
        # Points on a line span no area, so cells are sized by the length of the line.
        side = max(math.sqrt(width * height / wanted), max(width, height) / min(wanted, _MOST_CELLS_A_SIDE))
        self._side = side if side > 0 else 1.0
        self._columns = int(width / self._side) + 1
        self._rows = int(height / self._side) + 1
        cell = self._cell_row(y) * self._columns + self._cell_column(x)
        self._order: Ints = np.argsort(cell, kind="stable")
        counts = np.bincount(cell, minlength=self._columns * self._rows)
        self._start: Ints = np.concatenate(([0], np.cumsum(counts)))
        self._count_below = np.zeros((self._rows + 1, self._columns + 1), np.int64)
        """Number of gateways in all cells below and to the left of a cell (a summed-area table)."""
        self._count_below[1:, 1:] = counts.reshape(self._rows, self._columns).cumsum(axis=0).cumsum(axis=1)

    def nearest(self, x: Floats, y: Floats, count: int) -> Ints:
        """Return len(x) x count gateways, nearest first; ties go to the lower number."""
        if not 1 <= count <= len(self._x):
            raise InvariantViolation(f"the {count} nearest of {len(self._x)} gateways")
        found = np.empty((len(x), count), np.int64)
        cell = self._cell_row(y) * self._columns + self._cell_column(x)
        order = np.argsort(cell, kind="stable")
        edges = np.flatnonzero(np.diff(cell[order])) + 1
        for group in np.split(order, edges):
            if len(group):
                row, column = divmod(int(cell[group[0]]), self._columns)
                found[group] = self._of_cell(row, column, x[group], y[group], count)
        return found

    def _of_cell(self, row: int, column: int, x: Floats, y: Floats, count: int) -> Ints:
        """Return the nearest gateways of the devices in one cell.

        Devices outside the grid belong to the cell at its edge and may be further from it than the side of a cell.
        """
        outside = self._outside(row, column, x, y)
        reach = 1
        while self._count_within(row, column, reach) < count:
            reach *= 2
        best, furthest = self._ranked(self._members(row, column, reach), x, y, count)
        # Gateways outside the block are at least reach * side - outside away from every device of this cell.
        if furthest > reach * self._side - outside:
            reach = math.ceil((furthest + outside) / self._side)
            best, _ = self._ranked(self._members(row, column, reach), x, y, count)
        return best

    def _ranked(self, members: Ints, x: Floats, y: Floats, count: int) -> tuple[Ints, float]:
        """Return the nearest `count` of these gateways for each device, and the largest distance among them."""
        rows = max(1, _PAIRS_AT_ONCE // len(members))
        best = np.empty((len(x), count), np.int64)
        furthest = 0.0
        for at in range(0, len(x), rows):
            part = slice(at, at + rows)
            distance = np.hypot(x[part, None] - self._x[members], y[part, None] - self._y[members])
            # A stable sort of columns in ascending gateway order gives ties to the lower number.
            ranked = np.argsort(distance, axis=1, kind="stable")[:, :count]
            furthest = max(furthest, float(np.take_along_axis(distance, ranked[:, -1:], axis=1).max()))
            best[part] = members[ranked]
        return best, furthest

    def _members(self, row: int, column: int, reach: int) -> Ints:
        """Return the gateways in the block of cells up to `reach` cells away, ascending."""
        first, last = max(0, row - reach), min(self._rows - 1, row + reach)
        left, right = max(0, column - reach), min(self._columns - 1, column + reach)
        starts = self._start[np.arange(first, last + 1) * self._columns + left].tolist()
        stops = self._start[np.arange(first, last + 1) * self._columns + right + 1].tolist()
        members: Ints = np.concatenate([self._order[a:b] for a, b in zip(starts, stops, strict=True)])
        return np.sort(members)

    def _count_within(self, row: int, column: int, reach: int) -> int:
        top, bottom = min(self._rows, row + reach + 1), max(0, row - reach)
        right, left = min(self._columns, column + reach + 1), max(0, column - reach)
        below = self._count_below
        return int(below[top, right] - below[bottom, right] - below[top, left] + below[bottom, left])

    def _outside(self, row: int, column: int, x: Floats, y: Floats) -> float:
        """Return the largest distance of these devices outside their cell; 0 if all are inside the grid."""
        west, south = self._west + column * self._side, self._south + row * self._side
        beyond = np.maximum.reduce([west - x, x - west - self._side, south - y, y - south - self._side])
        return max(0.0, float(beyond.max()))

    def _cell_column(self, x: Floats) -> Ints:
        column: Ints = np.clip((x - self._west) / self._side, 0, self._columns - 1).astype(np.int64)
        return column

    def _cell_row(self, y: Floats) -> Ints:
        row: Ints = np.clip((y - self._south) / self._side, 0, self._rows - 1).astype(np.int64)
        return row
