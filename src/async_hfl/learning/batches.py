"""The order in which each job visits its data.

An epoch's order is the ascending order of the keys hash(seed, epoch, position): it depends on the job's seed and on
the number of its samples, never on the other jobs of a call nor on any padding, and it is computed for all jobs of a
call at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from async_hfl.core.randomness import scramble_many
from async_hfl.learning.partition import Rows

_POSITION_BITS = 24
"""The low bits of a key hold the position: keys are then distinct, so any sorting algorithm gives one order."""
_POSITION = np.uint64((1 << _POSITION_BITS) - 1)
_HASH = ~_POSITION


class BatchPlanner:
    """Rows of the training set by (job, epoch, step, place in the batch)."""

    def __init__(self, owned: Sequence[Rows], *, epochs: int, batch_size: int, in_stored_order: bool) -> None:
        """`in_stored_order` appends one more pass, unshuffled: the one the final gradient is taken over."""
        self.sizes = np.array([len(rows) for rows in owned], dtype=np.int64)
        largest = int(self.sizes.max())
        if largest > int(_POSITION):
            raise ValueError(f"a device with {largest} samples exceeds the {int(_POSITION)} a batch order can hold")
        self.steps = -(-largest // batch_size)
        self._epochs = epochs
        self._passes = epochs + in_stored_order
        self._batch_size = batch_size
        self._largest = largest
        # Padding repeats the device's own first sample: masked, but finite whenever the device's data is.
        self._rows = np.empty((len(owned), self.steps * batch_size), dtype=np.int32)
        for device, rows in enumerate(owned):
            self._rows[device, : len(rows)] = rows
            self._rows[device, len(rows) :] = rows[0]
        positions = np.arange(largest, dtype=np.uint64)
        passes = np.arange(epochs, dtype=np.uint64) << np.uint64(32)
        self._positions = positions
        self._counters = passes[:, None] | positions

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of one job's orders."""
        return self._passes, self.steps, self._batch_size

    def fill(
        self, orders: npt.NDArray[np.int32], devices: npt.NDArray[np.int64], seeds: npt.NDArray[np.uint64]
    ) -> None:
        """Write the orders of these jobs, whose first axis is the job."""
        flat = orders.reshape(len(devices), self._passes, -1)
        rows = self._rows[devices]
        flat[:] = rows[:, None, :]
        keys = scramble_many(scramble_many(seeds)[:, None, None] ^ self._counters)
        keys = (keys & _HASH) | self._positions
        # Positions beyond a device's data sort last, and stay where they are.
        beyond = self._positions >= self.sizes[devices, None].astype(np.uint64)
        np.bitwise_or(keys, _HASH, out=keys, where=beyond[:, None, :])
        keys.sort(axis=-1)
        places = (keys & _POSITION).astype(np.intp)
        jobs = np.arange(len(devices))[:, None, None]
        flat[:, : self._epochs, : self._largest] = rows[jobs, places]
