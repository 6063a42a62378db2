"""The order in which each job visits its data.

An epoch's order is the ascending order of the keys hash(seed, epoch, position): it depends on the job's seed and on
the number of its samples, never on the other jobs of a call nor on any padding, and it is computed for many jobs at
once.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import final

import numpy as np
import numpy.typing as npt

from async_hfl.core.errors import DataError
from async_hfl.core.randomness import scramble_many
from async_hfl.learning.engine.recipe import Shape
from async_hfl.learning.engine.runtime import usable_cores

RowNumbers = npt.NDArray[np.int32]

_POSITION_BITS = 24
"""The low bits of a key hold the position: keys are then distinct, so any sorting algorithm gives one order."""
_POSITION = np.uint64((1 << _POSITION_BITS) - 1)
_HASH = ~_POSITION
_KEYS = 1 << 14
"""Made at a time: few enough to stay in a core's cache, and in memory that was used before. Threads that share a pass
of 36,000 or 110,000 keys were slower: they wait for each other between any two operations."""


@final
class BatchOrders:
    """Of the jobs of a group, drawn up pass by pass as they are asked for: an accelerator trains on one while the next
    is made.

    Each epoch is a pass; where the shape asks for a gradient the last pass is in stored order: the one the final
    gradient is taken over. Padding repeats the job's first row: masked, but finite whenever the job's data is.
    """

    def __init__(
        self,
        rows: Sequence[RowNumbers],
        seeds: npt.NDArray[np.uint64],
        shape: Shape,
        *,
        places: int | None = None,
        steps: int | None = None,
    ) -> None:
        """`places` for jobs, `steps` a pass for which there is room: as many as there are if not said."""
        self._shape = shape
        self._sizes = np.array([len(own) for own in rows], dtype=np.int64)
        self._largest = int(self._sizes.max())
        if self._largest > int(_POSITION):
            raise DataError(
                f"a device with {self._largest} samples exceeds the {int(_POSITION)} that can be put in order"
            )
        room = shape.steps_per_epoch(self._largest) if steps is None else steps
        self._orders = np.zeros((places or len(rows), shape.passes, room, shape.batch_size), dtype=np.int32)
        self._stored = np.empty((len(rows), room * shape.batch_size), dtype=np.int32)
        self._stored[:] = np.array([own[0] for own in rows], dtype=np.int32)[:, None]
        self._stored[np.arange(self._stored.shape[1]) < self._sizes[:, None]] = np.concatenate(rows)
        self._hashes = scramble_many(seeds)
        self._drawn = 0
        self._drawing: tuple[int, Future[None]] | None = None
        """Up to which pass."""

    def whole(self) -> RowNumbers:
        """By (place, pass, step, place in the batch); 0 in places without a job."""
        self._have(self._shape.passes)
        return self._orders

    def batches(self, passes: npt.NDArray[np.int64], steps: npt.NDArray[np.int64]) -> RowNumbers:
        """Those of these passes and steps, both by (place, any); places without a job have the first job's."""
        begin, end = int(passes.min()), int(passes.max()) + 1
        self._have(end)
        jobs = np.arange(len(self._orders))
        jobs[len(self._sizes) :] = 0
        found: RowNumbers = self._orders[jobs[:, None], passes, steps]
        self.ahead(end + (end - begin))  # as many again: what comes next will hardly ask for more
        return found

    def ahead(self, end: int) -> None:
        """Draw up so many passes, or all there are, beside what the caller does meanwhile; not while that goes on."""
        end = min(end, self._shape.passes)
        if self._drawing is None and self._drawn < end:
            self._drawing = end, _drawers().submit(self._draw, range(self._drawn, end))

    def _have(self, end: int) -> None:
        if self._drawn < end and self._drawing is not None:
            (drawn, drawing), self._drawing = self._drawing, None
            drawing.result()
            self._drawn = drawn
        if self._drawn < end:
            self._draw(range(self._drawn, end))
            self._drawn = end

    def _draw(self, passes: range) -> None:
        jobs = len(self._sizes)
        parts = min(jobs, -(-jobs * len(passes) * self._largest // _KEYS))
        for first, last in pairwise(jobs * part // parts for part in range(parts + 1)):
            self._fill(slice(first, last), passes)

    def _fill(self, jobs: slice, passes: range) -> None:
        stored, largest = self._stored[jobs], self._largest
        flat = self._orders[jobs].reshape(len(stored), self._shape.passes, -1)
        flat[:, passes.start : passes.stop, largest:] = stored[:, None, largest:]
        epochs = range(passes.start, min(passes.stop, self._shape.epochs))
        if epochs.stop < passes.stop:
            flat[:, epochs.stop, :largest] = stored[:, :largest]
        if not epochs:
            return
        positions = np.arange(largest, dtype=np.uint64)
        counters = (np.array(epochs, dtype=np.uint64) << np.uint64(32))[:, None] | positions
        keys = scramble_many(self._hashes[jobs, None, None] ^ counters)
        keys &= _HASH
        keys |= positions
        sizes = self._sizes[jobs]
        if int(sizes.min()) < largest:
            # Positions beyond a job's data sort last, and stay where they are.
            beyond = positions >= sizes[:, None].astype(np.uint64)
            np.bitwise_or(keys, _HASH, out=keys, where=beyond[:, None, :])
        keys.sort(axis=-1)
        keys &= _POSITION
        keys += (np.arange(len(stored), dtype=np.uint64) * np.uint64(stored.shape[1]))[:, None, None]
        flat[:, epochs.start : epochs.stop, :largest] = np.take(stored.reshape(-1), keys.view(np.int64))


@cache
def _drawers() -> ThreadPoolExecutor:
    """Kept: to start threads anew costs as much as they save. One is busy for each group that is being started."""
    return ThreadPoolExecutor(usable_cores(), thread_name_prefix="orders")
