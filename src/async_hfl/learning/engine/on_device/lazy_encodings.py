"""Encodings that were asked for and are not enqueued yet: one program computes all that are alike.

The models of several gateways, the gradients in an upload and the results of a call are encoded one after another, but
the first of them is needed only after that. The numbers do not depend on what else a program encodes.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from threading import local
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar, final

import numpy as np

from async_hfl.core.compression.encodings import EncodingKind
from async_hfl.core.vectors import Vector
from async_hfl.learning.engine.backend import Array, jax, jnp
from async_hfl.learning.engine.on_device.device_codec import Begin, Flags, JaxEncoded, encode, key_argument
from async_hfl.learning.engine.on_device.vector_programs import padded
from async_hfl.learning.engine.trainer import LiveGradients

_MOST = 64
"""The most encodings of one program, of vectors that are not large."""
_MOST_BYTES = 1 << 28
"""Limit on the vectors that one program encodes; it needs several times as much memory."""


class LazyVector(Protocol):
    """A vector whose array may be computed later, as `jax_vectors.JaxVector` is."""

    @property
    def array(self) -> Array: ...
    def begin(self) -> None: ...
    def set_begin(self, begin: Begin) -> None: ...
    def set_array(self, array: Array) -> None: ...


V = TypeVar("V", bound=LazyVector)


class Ops(Protocol[V]):
    """The operations that encodings need, as `jax_vectors.DeviceOps` has them."""

    def compute(self, vectors: Sequence[V]) -> None: ...
    def multiply(self, live: LiveGradients, new: Sequence[V]) -> None: ...
    def zeros(self, size: int) -> V: ...


class Form(NamedTuple):
    """Everything that encodings have in common that are enqueued together."""

    kind: EncodingKind
    trained: int
    size: int
    change: bool
    blend: bool
    """True for lazy blends. They are computed when their encodings begin, and that moment affects how they are rounded.
    It must not depend on the encodings of results, which may begin together with the training."""


@dataclass(frozen=True, slots=True, eq=False)
class Encoding(Generic[V]):
    """One encoding: its arguments, and the objects that are given its results."""

    vector: V
    base: V | None
    memory: V | None
    key: int
    encoded: JaxEncoded
    flags: Flags
    decoded: V
    left: V | None
    live: LiveGradients | None
    """The gradients with which the decoded vector is multiplied, if it is one."""


@dataclass(frozen=True, slots=True)
class Ahead(Generic[V]):
    """An encoding that was computed before it was asked for, and its arguments."""

    base: weakref.ref[Any] | None
    memory: Vector | None
    others: tuple[EncodingKind, int, int]
    encoded: JaxEncoded
    left: V | None

    def answers(self, base: Vector | None, memory: Vector | None, others: tuple[EncodingKind, int, int]) -> bool:
        own = None if self.base is None else self.base()
        return own is base and self.memory is memory and self.others == others


@final
class LazyEncodings(local, Generic[V]):
    """The encodings that wait. Runs that share an engine have a thread each, and encodings of their own."""

    def __init__(self, ops: Ops[V]) -> None:
        self._ops = ops
        self._waiting: dict[Form, list[Encoding[V]]] = {}

    def add(self, form: Form, encoding: Encoding[V]) -> None:
        # Whatever this one depends on begins now, so that none of the same form can depend on another.
        for argument in (encoding.vector, encoding.base, encoding.memory):
            if argument is not None:
                argument.begin()
        waiting = self._waiting.setdefault(form, [])
        waiting.append(encoding)
        begin = partial(self._begin, form, waiting)
        encoding.encoded.set_begin(begin)
        encoding.flags.set_begin(begin)
        encoding.decoded.set_begin(begin)
        if encoding.left is not None:
            encoding.left.set_begin(begin)

    def _begin(self, form: Form, waiting: list[Encoding[V]]) -> None:
        """Enqueue these encodings. The caller may be another thread than the one that added them, which then waits."""
        todo = waiting.copy()
        waiting.clear()
        most = max(1, min(_MOST, _MOST_BYTES // (4 * form.size)))
        for first in range(0, len(todo), most):
            self._enqueue(form, todo[first : first + most])
        for live in dict.fromkeys(one.live for one in todo):
            if live is not None:
                self._ops.multiply(live, [one.decoded for one in todo if one.live is live])

    def _enqueue(self, form: Form, todo: list[Encoding[V]]) -> None:
        places = padded(len(todo), form.size)
        padding = places - len(todo)
        keys = np.zeros((places, 2), np.uint32)
        without = np.ones(places, bool)
        for place, one in enumerate(todo):
            keys[place], without[place] = key_argument(one.key), one.memory is None
        self._ops.compute([one.vector for one in todo])
        vectors = [one.vector.array for one in todo]
        bases = [one.base.array for one in todo if one.base is not None]
        memories = [(one.memory or self._ops.zeros(form.trained)).array for one in todo if form.change]
        whole, decoded, flags, left = _encode_all(
            *(tuple(part + part[:1] * padding) for part in (vectors, bases, memories)),
            without,
            keys,
            kind=form.kind,
            trained=form.trained,
        )
        flags.copy_to_host_async()
        for place, one in enumerate(todo):
            one.encoded.set_array(whole[place])
            one.flags.set_array(flags, place)
            one.decoded.set_array(decoded[place])
            if one.left is not None:
                one.left.set_array(left[place])


Rows: TypeAlias = tuple[Array, ...]


@partial(jax.jit, static_argnames=("kind", "trained"))
def _encode_all(
    vectors: Rows, bases: Rows, memories: Rows, without: Array, keys: Array, *, kind: EncodingKind, trained: int
) -> tuple[Rows, Rows, Array, Rows]:
    """Return the results of `encode` for each vector; without any bases, changes are not meant."""
    one: Any = jax.vmap(partial(encode, kind=kind, trained=trained))
    if not bases:
        whole, decoded, flags, _ = one(jnp.stack(vectors), None, None, keys)
        return tuple(whole), tuple(decoded), flags, ()
    # Adding -0 changes no number, not even -0 or 0.
    memory = jnp.where(without[:, None], jnp.float32(-0.0), jnp.stack(memories))
    whole, decoded, flags, left = one(jnp.stack(vectors), jnp.stack(bases), memory, keys)
    left = jnp.where(without[:, None] & ~flags[:, :1], jnp.float32(0.0), left)
    return tuple(whole), tuple(decoded), flags, tuple(left)
