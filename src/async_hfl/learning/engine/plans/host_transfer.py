"""Transfer of many models to an accelerator and back, at the speed of the bus rather than of one core.

To the device, rows are copied into a buffer that is reused (allocating memory costs more than filling it) and sent in
parts, each by its own thread. Results come back through pinned memory, which the device writes and numpy reads without
a copy. Measured on an H200 with 317 MB of models: 21 GB/s instead of 3 to the device, 50 GB/s instead of 1.6 back.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, final

import numpy as np
import numpy.typing as npt

from async_hfl.core.weights import Weights
from async_hfl.learning.engine.backend import Array, jax

_PARTS = 8
_WORTH_PARTS = 16 << 20
"""Bytes below which one thread is as fast."""
_BUFFERS = 2
"""One is filled while the other is being sent."""


@final
class HostTransfer:
    """The transfer of stacks of models to one device and back."""

    def __init__(self, device: Any, size: int) -> None:
        self._device = device
        self._size = size
        self._buffers: dict[int, list[npt.NDArray[np.float32]]] = {}
        self._sent: dict[int, list[tuple[Array, ...]]] = {}
        self._turn = 0
        self._threads = ThreadPoolExecutor(_PARTS, thread_name_prefix="transfer")
        kinds = {memory.kind for memory in device.addressable_memories()}
        self._pinned = (
            jax.sharding.SingleDeviceSharding(device, memory_kind="pinned_host")
            if device.platform != "cpu" and "pinned_host" in kinds
            else None
        )

    def like(self, places: int) -> tuple[npt.NDArray[np.float32], ...]:
        """Return arrays of the shapes that `to_device` returns."""
        return tuple(np.empty((stop - start, self._size), np.float32) for start, stop in self._bounds(places))

    def to_device(self, rows: Sequence[Weights]) -> tuple[Array, ...]:
        """Return the rows on the device, in consecutive parts."""
        places = len(rows)
        if places not in self._buffers:
            self._buffers[places] = [np.empty((places, self._size), np.float32) for _ in range(_BUFFERS)]
            self._sent[places] = [() for _ in range(_BUFFERS)]
        self._turn = (self._turn + 1) % _BUFFERS
        buffer, turn = self._buffers[places][self._turn], self._turn
        for part in self._sent[places][turn]:
            part.block_until_ready()  # the buffer may be overwritten

        def send(bounds: tuple[int, int]) -> Array:
            start, stop = bounds
            for place in range(start, stop):
                buffer[place] = rows[place]
            # A host device would otherwise take a view of the buffer.
            sent: Array = jax.device_put(buffer[start:stop], self._device, may_alias=False)
            return sent

        bounds = self._bounds(places)
        parts = tuple(self._threads.map(send, bounds)) if len(bounds) > 1 else (send(bounds[0]),)
        self._sent[places][turn] = parts
        return parts

    def to_host(self, output: tuple[Array, ...]) -> tuple[Array, ...]:
        """Start copying the arrays to memory that numpy can read."""
        if self._pinned is None:
            return output
        copied: tuple[Array, ...] = jax.device_put(output, self._pinned)
        return copied

    def _bounds(self, places: int) -> list[tuple[int, int]]:
        parts = min(_PARTS, places) if 4 * self._size * places >= _WORTH_PARTS else 1
        return [(part * places // parts, (part + 1) * places // parts) for part in range(parts)]
