"""The order in which each job visits its data.

An epoch's order is the ascending order of the keys hash(seed, epoch, position): it depends on the job's seed and on
the number of its samples, never on the other jobs of a call nor on any padding, and it is computed for all jobs of a
call at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import numpy.typing as npt

from async_hfl.core.errors import DataError
from async_hfl.core.randomness import scramble_many
from async_hfl.learning.recipe import Shape
from async_hfl.learning.runtime import usable_cores

RowNumbers = npt.NDArray[np.int32]

_POSITION_BITS = 24
"""The low bits of a key hold the position: keys are then distinct, so any sorting algorithm gives one order."""
_POSITION = np.uint64((1 << _POSITION_BITS) - 1)
_HASH = ~_POSITION
_THREADS = min(8, usable_cores())
_WORTH_THREADS = 1 << 15
"""Keys from which sorting on several cores saves more than it costs; numpy leaves Python while it sorts."""


def batch_orders(
    orders: npt.NDArray[np.int32], rows: Sequence[RowNumbers], seeds: npt.NDArray[np.uint64], shape: Shape
) -> None:
    """Write each job's rows by (job, pass, step, place in the batch) into `orders`.

    Each epoch is a pass; where the shape asks for a gradient the last pass is in stored order: the one the final
    gradient is taken over. Padding repeats the job's first row: masked, but finite whenever the job's data is.
    """
    largest = max(len(own) for own in rows)
    if largest > int(_POSITION):
        raise DataError(f"a device with {largest} samples exceeds the {int(_POSITION)} that can be put in order")
    if len(rows) * shape.epochs * largest >= _WORTH_THREADS and len(rows) > 1:
        stops = [len(rows) * part // _THREADS for part in range(_THREADS + 1)]

        def fill(part: int) -> None:
            first, last = stops[part], stops[part + 1]
            _fill(orders[first:last], rows[first:last], seeds[first:last], shape)

        list(_sorters().map(fill, range(_THREADS)))
    else:
        _fill(orders, rows, seeds, shape)


@cache
def _sorters() -> ThreadPoolExecutor:
    """Kept: starting threads anew would cost as much as they save."""
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="orders")


def _fill(
    orders: npt.NDArray[np.int32], rows: Sequence[RowNumbers], seeds: npt.NDArray[np.uint64], shape: Shape
) -> None:
    if not rows:
        return
    sizes = np.array([len(own) for own in rows], dtype=np.int64)
    largest = int(sizes.max())
    flat = orders.reshape(len(rows), shape.passes, -1)
    stored = np.empty((len(rows), flat.shape[-1]), dtype=np.int32)
    for job, own in enumerate(rows):
        stored[job, : len(own)] = own
        stored[job, len(own) :] = own[0]
    flat[:] = stored[:, None, :]
    positions = np.arange(largest, dtype=np.uint64)
    counters = (np.arange(shape.epochs, dtype=np.uint64) << np.uint64(32))[:, None] | positions
    keys = scramble_many(scramble_many(seeds)[:, None, None] ^ counters)
    keys &= _HASH
    keys |= positions
    if int(sizes.min()) < largest:
        # Positions beyond a job's data sort last, and stay where they are.
        beyond = positions >= sizes[:, None].astype(np.uint64)
        np.bitwise_or(keys, _HASH, out=keys, where=beyond[:, None, :])
    keys.sort(axis=-1)
    keys &= _POSITION
    keys += (np.arange(len(rows), dtype=np.uint64) * np.uint64(stored.shape[1]))[:, None, None]
    flat[:, : shape.epochs, :largest] = np.take(stored.reshape(-1), keys.view(np.int64))
