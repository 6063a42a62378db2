"""Memory that is reused for all vectors that a run encodes.

The intermediate results of one encoding take several times as much memory as the bytes it makes. To allocate that for
every vector may cost more time than the encoding: the allocator returns it to the system, which clears it each time.
"""

from __future__ import annotations

from typing import final

import numpy as np
import numpy.typing as npt


@final
class Scratch:
    """Buffers by name. The content of each is undefined until it is written, and lost when it is requested again."""

    __slots__ = ("_buffers",)

    def __init__(self) -> None:
        self._buffers: dict[str, npt.NDArray[np.uint32]] = {}

    def words(self, name: str, count: int) -> npt.NDArray[np.uint32]:
        """Return this many numbers of 32 bits."""
        found = self._buffers.get(name)
        if found is None or len(found) < count:
            found = self._buffers[name] = np.empty(count, np.uint32)
        return found[:count]

    def floats(self, name: str, count: int) -> npt.NDArray[np.float32]:
        return self.words(name, count).view(np.float32)
