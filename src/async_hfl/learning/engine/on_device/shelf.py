"""Gradients side by side on an accelerator, and their products with each other.

Asking an accelerator for a number takes as long as many of its computations. So as soon as gradients are ordered, their
products with all that lie on the shelf are ordered with them, and come back with the results. An order costs the host
the more the more arrays it names: so the shelf is a few large arrays, written in place, and who comes is multiplied
with whole blocks of it, whoever lies there and whether anybody needs him any more.

Of two vectors the one that came later knows their product: where the other lay then it lies now, if it still lives.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from heapq import heappop, heappush
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias, final

import numpy as np
import numpy.typing as npt

from async_hfl.core.errors import InternalError
from async_hfl.learning.engine.backend import Array, jax, jnp, lax

if TYPE_CHECKING:
    from async_hfl.learning.engine.on_device.device_vector import JaxVector

ROWS, BLOCK = 16, 64
"""Vectors that are multiplied with so many others at once: always so many, so that a product is the same number in
whatever company. About as many come with a call of a run."""
_AT_ONCE = 8
"""Blocks that one order names: each number of them is a program of its own."""
_PIECE = 4096
"""Numbers of each that are multiplied and added first; then these sums are added."""

_BARRIER: Callable[[list[Array]], list[Array]] = lax.optimization_barrier

_Numbers: TypeAlias = npt.NDArray[np.float32]


@final
class Products:
    """Of vectors that came together with all on the shelf; ordered, and perhaps not there yet."""

    __slots__ = ("_ordered", "_values")

    def __init__(self, ordered: Array) -> None:
        self._ordered: Array | None = ordered
        self._values: _Numbers = np.zeros((0, 0), np.float32)

    @property
    def values(self) -> _Numbers:
        """A row for each that came, a column for each place."""
        if self._ordered is not None:
            self._values, self._ordered = np.asarray(self._ordered), None
        return self._values


@final
class Place:
    """Of one vector, which alone holds it: when the vector goes, another may have the place."""

    __slots__ = ("_products", "_row", "number", "shelf", "turn")

    def __init__(self, shelf: Shelf, number: int, turn: int, products: Products, row: int) -> None:
        self.shelf = shelf
        self.number = number
        self.turn = turn
        self._products = products
        self._row = row

    def products(self, others: Sequence[Place]) -> _Numbers:
        """With vectors on the same shelf."""
        found = self._told([other.number for other in others])
        for index, other in enumerate(others):
            if other.turn > self.turn:
                found[index] = other._products.values[other._row, self.number]
        return found

    def _told(self, numbers: Any) -> _Numbers:
        """Of who lies in these places, what was known when this vector came; nonsense for who came later."""
        # To a place that was not there yet nobody had come.
        found: _Numbers = self._products.values[self._row].take(numbers, mode="clip")
        return found

    def __del__(self) -> None:
        self.shelf.left.append(self.number)


def products_among(places: Sequence[Place]) -> _Numbers:
    """Of each with each, all on the same shelf."""
    numbers, turns = np.array([place.number for place in places]), np.array([place.turn for place in places])
    found = np.array([place._told(numbers) for place in places])
    return np.where(turns[:, None] >= turns, found, found.T)


@final
class Shelf:
    """For vectors of one length."""

    def __init__(self, size: int, device: Any) -> None:
        self._size = size
        self._pieces = -(-size // _PIECE)
        self._device = device
        self._blocks: list[Array] = []
        self._free: list[int] = []
        """The lowest is taken first."""
        self._turn = 0
        self._changing = Lock()
        self.left: deque[int] = deque()
        """Places that were given up, by whatever thread, since somebody last came."""

    def __len__(self) -> int:
        """How many vectors lie here."""
        return len(self._blocks) * BLOCK - len(self._free) - len(self.left)

    def admit(self, vectors: Sequence[JaxVector]) -> None:
        """Lay them down and order their products with each other and with all that lie here."""
        if any(len(vector) != self._size for vector in vectors):
            raise InternalError(f"vectors of {self._size} numbers are multiplied with others of another length")
        for first in range(0, len(vectors), ROWS):
            some = vectors[first : first + ROWS]
            arrays = [vector.array for vector in some]
            with self._changing:
                self._lay_down(some, (*arrays, *arrays[:1] * (ROWS - len(arrays))))

    def _lay_down(self, vectors: Sequence[JaxVector], arrays: tuple[Array, ...]) -> None:
        numbers = [self._next() for _ in vectors]
        # Those that only fill up the rows have no place.
        places = np.array(numbers + [-1] * (ROWS - len(numbers)), np.int32)
        parts = []
        for first in range(0, len(self._blocks), _AT_ONCE):
            some = slice(first, first + _AT_ONCE)
            self._blocks[some], part = _meet(self._blocks[some], arrays, places - first * BLOCK)
            parts.append(part)
        ordered: Array = parts[0] if len(parts) == 1 else _in_a_row(*parts)
        ordered.copy_to_host_async()
        products = Products(ordered)
        self._turn += 1
        for row, (vector, number) in enumerate(zip(vectors, numbers, strict=True)):
            vector.lie(Place(self, number, self._turn, products, row))

    def _take_back(self) -> None:
        while self.left:
            heappush(self._free, self.left.popleft())

    def _next(self) -> int:
        self._take_back()
        if not self._free:
            first = len(self._blocks) * BLOCK
            self._blocks.append(jnp.zeros((BLOCK, self._pieces, _PIECE), jnp.float32, device=self._device))
            self._free = list(range(first, first + BLOCK))
        return heappop(self._free)

    def array(self, place: Place) -> Array:
        """The vector that lies there."""
        block, row = divmod(place.number, BLOCK)
        with self._changing:
            taken: Array = _taken(self._blocks[block], row, self._size)
        return taken

    def tidy(self) -> None:
        """Where nobody lies any more, keep no memory."""
        with self._changing:
            self._take_back()
            if len(self._free) == len(self._blocks) * BLOCK:
                self._blocks.clear()
                self._free.clear()


@partial(jax.jit, donate_argnums=0)
def _meet(blocks: list[Array], vectors: tuple[Array, ...], places: Array) -> tuple[list[Array], Array]:
    """The blocks with those vectors whose place is in them; the products of all vectors with all places."""
    pieces = blocks[0].shape[1]
    rows = jnp.pad(jnp.stack(vectors), ((0, 0), (0, pieces * _PIECE - vectors[0].shape[0])))
    rows = rows.reshape(len(vectors), pieces, _PIECE)
    parts: list[Array] = []
    for number, block in enumerate(blocks):
        place = places - number * BLOCK
        inside = (place >= 0) & (place < BLOCK)
        block = block.at[jnp.where(inside, place, BLOCK)].set(rows, mode="drop")
        # Each product by itself, lest the compiler make one of several, or of one and what comes before it, which would
        # be of another form.
        rows, block, *parts = _BARRIER([rows, block, *parts])
        parts.append(jnp.einsum("akc,bkc->kab", rows, block, precision=lax.Precision.HIGHEST).sum(axis=0))
        blocks[number] = block
    return blocks, jnp.concatenate(_BARRIER(parts), axis=1)


@jax.jit
def _in_a_row(*parts: Array) -> Array:
    return jnp.concatenate(parts, axis=1)


@partial(jax.jit, static_argnums=2)
def _taken(block: Array, row: int, size: int) -> Array:
    pieces: Array = lax.dynamic_index_in_dim(block, row, keepdims=False)
    return pieces.reshape(-1)[:size]
