"""The order in which each job visits its data.

The order of an epoch is the ascending order of the keys hash(seed, epoch, position). It depends on the job's seed and
its number of samples, not on the other jobs of a call or on padding, and is computed for many jobs at once.
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
from async_hfl.learning.engine.recipe import StaticHyperparameters
from async_hfl.learning.engine.runtime import usable_cores

RowNumbers = npt.NDArray[np.int32]

_POSITION_BITS = 24
"""The low bits of a key hold the position. Keys are therefore distinct, and any sorting algorithm gives the same
order."""
_POSITION = np.uint64((1 << _POSITION_BITS) - 1)
_HASH = ~_POSITION
_KEYS = 1 << 14
"""Keys computed at a time: few enough for the cache of a core. Dividing a pass of 36,000 or 110,000 keys over threads
was slower, because threads wait for each other between numpy's operations."""


@final
class BatchOrders:
    """The orders of the jobs of a group, drawn pass by pass: an accelerator trains on one while the next is drawn.

    Each epoch is a pass. If the recipe asks for a gradient, one more pass in stored order follows, over which the final
    gradient is computed. Padding repeats the job's first row: masked, but finite whenever the job's data is.
    """

    def __init__(
        self,
        rows: Sequence[RowNumbers],
        seeds: npt.NDArray[np.uint64],
        static: StaticHyperparameters,
        *,
        places: int | None = None,
        steps: int | None = None,
    ) -> None:
        """Allocate `places` jobs and `steps` per pass; by default, as many as these jobs need."""
        self._static = static
        self._sizes = np.array([len(own) for own in rows], dtype=np.int64)
        self._largest = int(self._sizes.max())
        if self._largest > int(_POSITION):
            raise DataError(f"a device has {self._largest} samples, more than the {int(_POSITION)} that can be ordered")
        room = static.steps_per_epoch(self._largest) if steps is None else steps
        self._orders = np.zeros((places or len(rows), static.passes, room, static.batch_size), dtype=np.int32)
        self._stored = np.empty((len(rows), room * static.batch_size), dtype=np.int32)
        self._stored[:] = np.array([own[0] for own in rows], dtype=np.int32)[:, None]
        self._stored[np.arange(self._stored.shape[1]) < self._sizes[:, None]] = np.concatenate(rows)
        self._hashes = scramble_many(seeds)
        self._drawn = 0
        self._drawing: tuple[int, Future[None]] | None = None
        """The end of the passes that a thread is drawing, and its result."""

    def draw(self, end: int | None = None) -> RowNumbers:
        """Draw the passes before `end` (None: all) and return all orders, by place, pass, step and row of the batch.

        Places without a job are 0.
        """
        end = self._static.passes if end is None else end
        if self._drawn < end and self._drawing is not None:
            (drawn, drawing), self._drawing = self._drawing, None
            drawing.result()
            self._drawn = drawn
        if self._drawn < end:
            self._fill(range(self._drawn, end))
            self._drawn = end
        return self._orders

    def batches(self, passes: npt.NDArray[np.int64], steps: npt.NDArray[np.int64]) -> RowNumbers:
        """Return the batches of these passes and steps, both by place; places without a job have the first job's."""
        begin, end = int(passes.min()), int(passes.max()) + 1
        orders, jobs = self.draw(end), np.arange(len(self._orders))
        jobs[len(self._sizes) :] = 0
        found: RowNumbers = orders[jobs[:, None], passes, steps]
        self.prefetch(end + (end - begin))  # as many passes again: the next call seldom needs more
        return found

    def prefetch(self, end: int) -> None:
        """Let a thread draw the passes before `end`, unless it is drawing already."""
        end = min(end, self._static.passes)
        if self._drawing is None and self._drawn < end:
            self._drawing = end, _threads().submit(self._fill, range(self._drawn, end))

    def _fill(self, passes: range) -> None:
        largest, epochs = self._largest, range(passes.start, min(passes.stop, self._static.epochs))
        positions = np.arange(largest, dtype=np.uint64)
        counters = (np.array(epochs, dtype=np.uint64) << np.uint64(32))[:, None] | positions
        count = len(self._sizes)
        parts = min(count, -(-count * len(passes) * largest // _KEYS))
        for first, last in pairwise(count * part // parts for part in range(parts + 1)):
            stored, sizes = self._stored[first:last], self._sizes[first:last]
            flat = self._orders[first:last].reshape(last - first, self._static.passes, -1)
            flat[:, passes.start : passes.stop, largest:] = stored[:, None, largest:]
            if epochs.stop < passes.stop:
                flat[:, epochs.stop, :largest] = stored[:, :largest]
            if not epochs:
                continue
            keys = scramble_many(self._hashes[first:last, None, None] ^ counters)
            keys &= _HASH
            keys |= positions
            if int(sizes.min()) < largest:
                # Positions beyond a job's data sort last, and stay where they are.
                beyond = positions >= sizes[:, None].astype(np.uint64)
                np.bitwise_or(keys, _HASH, out=keys, where=beyond[:, None, :])
            keys.sort(axis=-1)
            keys &= _POSITION
            keys += (np.arange(len(stored), dtype=np.uint64) * np.uint64(stored.shape[1]))[:, None, None]
            flat[:, epochs.start : epochs.stop, :largest] = np.take(stored.reshape(-1), keys.view(np.int64))


@cache
def _threads() -> ThreadPoolExecutor:
    """Return the pool that draws orders; starting threads anew would cost as much as they save."""
    return ThreadPoolExecutor(usable_cores(), thread_name_prefix="orders")
