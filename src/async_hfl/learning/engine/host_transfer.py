"""Moving many models to an accelerator and back, at the speed of the bus rather than of one core copying.

There: rows are copied into a buffer that is kept (fresh memory costs more to get than to fill) and sent in parts, each
by a thread of its own. Back: through memory that the device writes directly and that numpy looks at without a copy.
Measured on an H200, 317 MB of models: there 21 GB/s instead of 3, back 50 GB/s instead of 1.6.
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
"""While one is being sent the next is filled."""


@final
class HostTransfer:
    def __init__(self, device: Any, size: int) -> None:
        self._device = device
        self._size = size
        self._buffers: dict[int, list[npt.NDArray[np.float32]]] = {}
        self._sent: dict[int, list[tuple[Array, ...]]] = {}
        self._turn = 0
        self._threads = ThreadPoolExecutor(_PARTS, thread_name_prefix="staging")
        kinds = {memory.kind for memory in device.addressable_memories()}
        self._pinned = (
            jax.sharding.SingleDeviceSharding(device, memory_kind="pinned_host")
            if device.platform != "cpu" and "pinned_host" in kinds
            else None
        )

    def like(self, places: int) -> tuple[npt.NDArray[np.float32], ...]:
        """Arrays of the form that `place` gives."""
        stops = self._stops(places)
        return tuple(
            np.empty((stop - start, self._size), np.float32) for start, stop in zip([0, *stops], stops, strict=False)
        )

    def place(self, rows: Sequence[Weights]) -> tuple[Array, ...]:
        """The rows on the device, in parts that follow each other."""
        places = len(rows)
        if places not in self._buffers:
            self._buffers[places] = [np.empty((places, self._size), np.float32) for _ in range(_BUFFERS)]
            self._sent[places] = [() for _ in range(_BUFFERS)]
        self._turn = (self._turn + 1) % _BUFFERS
        buffer, turn = self._buffers[places][self._turn], self._turn
        for part in self._sent[places][turn]:
            part.block_until_ready()  # what was sent from it before has left it

        def send(bounds: tuple[int, int]) -> Array:
            start, stop = bounds
            for place in range(start, stop):
                buffer[place] = rows[place]
            # Never a view of the buffer, which a host device would take.
            sent: Array = jax.device_put(buffer[start:stop], self._device, may_alias=False)
            return sent

        stops = self._stops(places)
        bounds = list(zip([0, *stops], stops, strict=False))
        parts = tuple(self._threads.map(send, bounds)) if len(bounds) > 1 else (send(bounds[0]),)
        self._sent[places][turn] = parts
        return parts

    def bring(self, outcome: tuple[Array, ...]) -> tuple[Array, ...]:
        """The same arrays, on their way to where numpy can see them."""
        if self._pinned is None:
            return outcome
        there: tuple[Array, ...] = jax.device_put(outcome, self._pinned)
        return there

    def _stops(self, places: int) -> list[int]:
        parts = min(_PARTS, places) if 4 * self._size * places >= _WORTH_PARTS else 1
        return [(part + 1) * places // parts for part in range(parts)]
