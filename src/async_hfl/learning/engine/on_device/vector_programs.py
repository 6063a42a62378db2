"""Programs that blend vectors on an accelerator and compute mean steps."""

from __future__ import annotations

from functools import partial

import numpy as np

from async_hfl.learning.engine.backend import Array, jax, jnp, lax

LARGE = 1 << 22
"""Vector length from which computing unused rows costs more than compiling another program."""


def padded(number: int, size: int) -> int:
    """Return the next of 1, 16, 64, ..., or for large vectors the next of 1, 2, 4, ..."""
    places = 1
    while places < number:
        places = 2 * places if size >= LARGE else max(16, 4 * places)
    return places


@jax.jit
def combine(coefficients: Array, *terms: Array) -> tuple[Array, ...]:
    """Compute all blends at once. A term that is not finite affects only the blends of which it is a part."""
    stacked = jnp.stack(terms)
    finite = jnp.isfinite(stacked).all(axis=1)
    rows = jnp.dot(coefficients, jnp.where(finite[:, None], stacked, 0.0), precision=lax.Precision.HIGHEST)
    spoilt = ((coefficients != 0) & ~finite[None, :]).any(axis=1)
    rows = jnp.where(spoilt[:, None], jnp.nan, rows)
    return tuple(rows[row] for row in range(len(coefficients)))


@partial(jax.jit, static_argnums=0)
def join(size: int, head: Array, tail: Array) -> Array:
    return jnp.concatenate([head[:size], tail[size:]])


@partial(jax.jit, static_argnums=2)
def mean_step(start: Array, end: Array, size: int, divisor: np.float32) -> Array:
    return (start[:size] - end[:size]) / divisor


@partial(jax.jit, static_argnums=2)
def mean_steps(starts: tuple[Array, ...], ends: tuple[Array, ...], size: int, divisors: Array) -> tuple[Array, ...]:
    """Compute several steps; the numbers are those of `mean_step`."""
    before, after = (jnp.stack([row[:size] for row in rows]) for rows in (starts, ends))
    return tuple((before - after) / divisors[:, None])
