"""Vectors of numbers (models, gradients) on the host or on an accelerator.

On an accelerator training is fast, and copying every model to the host would take most of the time of a simulation. A
learner may therefore return vectors that stay on its device. Code outside the learner treats both kinds alike, except
that it calls methods of a `DeviceVector` (`blend`, `products`, `encode`) instead of computing with it in numpy.

Where the numbers themselves are needed (to write, send or project them), `to_host` copies them, and so does
`np.asarray`. The implementation for JAX is in `learning.engine.on_device`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, final

import numpy as np
import numpy.typing as npt

from async_hfl.core.compression.encodings import Encoded, EncodingKind

HostVector: TypeAlias = npt.NDArray[np.float32]
"""One-dimensional, and read-only once it is shared."""


class DeviceVector(ABC):
    """An immutable vector of float32 in the memory of an accelerator."""

    __slots__ = ("__weakref__",)

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    def nbytes(self) -> int:
        return 4 * len(self)

    @abstractmethod
    def to_host(self) -> HostVector:
        """Return the numbers; every call returns the same array."""

    @property
    @abstractmethod
    def finite(self) -> bool:
        """True if no number is NaN or infinite."""

    @abstractmethod
    def to_same_device(self, other: Vector) -> DeviceVector:
        """Return the other vector on the device of this one."""

    @abstractmethod
    def blend(self, others: Sequence[Vector], coefficients: Sequence[float]) -> DeviceVector:
        """Return self + sum c_i (other_i - self)."""

    @abstractmethod
    def with_tail(self, size: int, tail: Vector) -> DeviceVector:
        """Return the first `size` numbers of self, followed by the other numbers of `tail`."""

    @abstractmethod
    def mean_step(self, start: Vector, size: int, divisor: np.float32) -> DeviceVector:
        """Return (start - self) / divisor of the first `size` numbers."""

    @abstractmethod
    def products(self, others: Sequence[Vector]) -> list[float]:
        """Return the inner product with each of the others, independently of the rest."""

    @abstractmethod
    def encode(self, kind: EncodingKind, trained: int, key: int) -> DeviceEncoded:
        """Return the encoded vector, as `core.compression.codec.encode` does."""

    @abstractmethod
    def encode_change(
        self, base: Vector, memory: Vector | None, kind: EncodingKind, trained: int, key: int
    ) -> tuple[DeviceEncoded, Vector | None]:
        """Return self - base + memory, encoded, and the new memory, as `core.compression.codec.encode_change` does.

        The new memory is a vector even if no value is finite and there was none before: then it consists of zeros.
        """

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        found = self.to_host()
        return found.astype(dtype) if dtype is not None and dtype != found.dtype else found.copy() if copy else found


class DeviceEncoded(ABC):
    """An encoded vector, or change of a vector, in the memory of an accelerator."""

    __slots__ = ("__weakref__",)

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """The number of bytes of the light vector."""

    @property
    @abstractmethod
    def finite(self) -> bool:
        """False if a value that was encoded, or kept, was NaN or infinite (or too large for int8 and int4)."""

    @property
    @abstractmethod
    def decoded(self) -> Vector:
        """The decoded vector; for a change, the base plus the decoded change."""

    @abstractmethod
    def to_host(self) -> Encoded:
        """Return the bytes that the codec would have made on the host; every call returns the same array."""


@final
class StoredEncoded(DeviceEncoded):
    """An encoded vector that was stored in a checkpoint, together with its decoded vector.

    Decoding it on the host instead would give the same numbers, but a blend that is computed there rounds differently.
    """

    __slots__ = ("_bytes", "_decoded", "_finite")

    def __init__(self, encoded: Encoded, decoded: Vector, finite: bool) -> None:
        self._bytes = encoded
        self._decoded = decoded
        self._finite = finite

    @property
    def nbytes(self) -> int:
        return self._bytes.nbytes

    @property
    def finite(self) -> bool:
        return self._finite

    @property
    def decoded(self) -> Vector:
        return self._decoded

    def to_host(self) -> Encoded:
        return self._bytes


if TYPE_CHECKING:
    Vector: TypeAlias = HostVector | DeviceVector
else:
    Vector = HostVector  # message decoders read annotations, and a vector from a network is always on the host


def to_host(vector: Vector) -> HostVector:
    """Return the numbers of a vector of either kind."""
    return vector if isinstance(vector, np.ndarray) else vector.to_host()


def blend_on_device(base: Vector, others: Sequence[Vector], coefficients: Sequence[float]) -> DeviceVector:
    """Return base + sum c_i (other_i - base) on the device of the first `DeviceVector` among them."""
    first = next(vector for vector in (base, *others) if isinstance(vector, DeviceVector))
    return first.to_same_device(base).blend(others, coefficients)
