"""Vectors that stay where they were computed.

On an accelerator a simulated run trains its jobs in no time; fetching every model to mix it on one core would take most
of the run. So a learner may give vectors that lie with it. Whoever decides or aggregates sees no difference but this:
such a vector is not computed with by numpy; it is asked to blend, and for inner products.

Where a vector is needed here after all (to be written, sent over a real network, projected) `here` fetches it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

HereVector: TypeAlias = npt.NDArray[np.float32]
"""Flat and, once it is handed on, read-only."""


class DeviceVector(ABC):
    """Immutable."""

    __slots__ = ("__weakref__",)

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    def nbytes(self) -> int:
        return 4 * len(self)

    @abstractmethod
    def here(self) -> HereVector:
        """The numbers; the same array whenever it is asked for."""

    @property
    @abstractmethod
    def finite(self) -> bool:
        """No NaN, no infinity."""

    @abstractmethod
    def beside(self, other: Vector) -> DeviceVector:
        """That vector, lying where this one does."""

    @abstractmethod
    def blend(self, others: Sequence[Vector], coefficients: Sequence[float]) -> DeviceVector:
        """self + sum c_i (other_i - self)."""

    @abstractmethod
    def mean_step(self, start: Vector, size: int, divisor: np.float32) -> DeviceVector:
        """(start - self) / divisor, of the leading `size` numbers."""

    @abstractmethod
    def products(self, others: Sequence[Vector]) -> list[float]:
        """Inner product with each of them, whatever the company that it is computed in."""

    @abstractmethod
    def products_among(self, vectors: Sequence[Vector]) -> npt.NDArray[np.float64]:
        """Of each with each of these, of which this is one: a matrix."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        found = self.here()
        return found.astype(dtype) if dtype is not None and dtype != found.dtype else found.copy() if copy else found


if TYPE_CHECKING:
    Vector: TypeAlias = HereVector | DeviceVector
else:
    Vector = HereVector  # decoders of messages read annotations: what came over a network is here


def here(vector: Vector) -> HereVector:
    """The numbers, wherever they are."""
    return vector.here() if isinstance(vector, DeviceVector) else vector


def blend_on_device(base: Vector, others: Sequence[Vector], coefficients: Sequence[float]) -> DeviceVector | None:
    """`FarVector.blend` where any of them lies afar; None: all are here, and numpy does it."""
    for vector in (base, *others):
        if isinstance(vector, DeviceVector):
            return vector.beside(base).blend(others, coefficients)
    return None


_send_away: Callable[[HereVector], DeviceVector] | None = None


def let_return(send_away: Callable[[HereVector], DeviceVector] | None) -> None:
    """Called by whoever makes far vectors: how one that was stored in a checkpoint is made again. None: it is not."""
    global _send_away
    _send_away = send_away


def returned(stored: HereVector) -> Vector:
    """A vector that was afar when it was stored: there again, or here where nobody keeps vectors afar."""
    return stored if _send_away is None else _send_away(stored)
