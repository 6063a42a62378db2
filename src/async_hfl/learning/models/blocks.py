"""Convolution and pooling by blocks, for accelerators; images have the shape (batch, height, width, channels).

A block of side x side outputs is a linear map of the square of inputs under it, and the map is the same for every
block: a matrix of the filter's weights, shifted from output to output, and zeros elsewhere. A convolution is then one
dense product. It multiplies some zeros, which costs a matrix unit nothing. The squares are far smaller than one patch
per output, and the matrix is far smaller than that of a whole row of outputs, so less memory is moved, which is what
takes the time. On a processor patches are faster (see `convolution`).

A block consists of the windows of the following pool, whose four places are adjacent.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import TypeVar

import numpy as np

from async_hfl.core.errors import InternalError
from async_hfl.learning.engine.backend import Array, jax, jnp, lax

_T = TypeVar("_T")


def block_convolution(images: Array, weight: Array, side: int) -> Array:
    """Correlate with `weight` (height, width, inputs, outputs), without padding, stride 1. Axes of the result: image,
    row and column of the block, row and column of the window in it, place in the window, output."""
    size, outputs = weight.shape[0], weight.shape[-1]
    batch, height, width, _ = images.shape
    if side % 2 or (size - 1) % side or weight.shape[1] != size or height % side or width % side:
        raise InternalError(f"blocks of {side} x {side} do not fit filters of {size} and images of {height} x {width}")
    squares, matrix = _squares(images, side, (size - 1) // side), _matrix(weight, side)
    summed = squares.reshape(-1, len(matrix)) @ matrix
    return summed.reshape(batch, *squares.shape[1:3], side // 2, side // 2, 4, outputs)


@partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def _squares(images: Array, side: int, more: int) -> Array:
    """Return the square of inputs of each block: its own tile and `more` tiles down and across. Axes: image, row and
    column of the block, tile down, row in it, tile across, column in it, channel."""
    batch, height, width, channels = images.shape
    tiles = lax.reshape(images, (batch, height // side, side, width // side, side, channels))
    down, across = (np.arange(length // side - more)[:, None] + np.arange(more + 1) for length in (height, width))
    found = tiles.at[:, down[:, None, :, None], :, across[None, :, None, :]].get(mode="promise_in_bounds")
    return found.transpose(4, 0, 1, 2, 5, 3, 6, 7)


def _squares_forward(images: Array, side: int, more: int) -> tuple[Array, None]:
    return _squares(images, side, more), None


def _squares_backward(side: int, more: int, _: None, gradient: Array) -> tuple[Array]:
    """Sum every tile over the blocks that use it, by shifted additions: a scatter would go element by element."""
    across = reduce(jnp.add, [_shifted(gradient[..., tile, :, :], 2, tile, more) for tile in range(more + 1)])
    tiles = reduce(jnp.add, [_shifted(across[:, :, :, tile], 1, tile, more) for tile in range(more + 1)])
    batch, rows, columns, channels = *tiles.shape[:3], tiles.shape[-1]
    return (tiles.transpose(0, 1, 3, 2, 4, 5).reshape(batch, rows * side, columns * side, channels),)


def _shifted(array: Array, axis: int, tile: int, more: int) -> Array:
    edges = [(0, 0)] * array.ndim
    edges[axis] = (tile, more - tile)
    return jnp.pad(array, edges)


_squares.defvjp(_squares_forward, _squares_backward)


def _matrix(weight: Array, side: int) -> Array:
    """Return the matrix: rows ordered as a square, columns by (row and column of the window, place in it, output)."""
    outputs = weight.shape[-1]
    shifts = [(first, side - 1 - first) for first in range(side)]
    none = (0, 0)
    down = jnp.stack([jnp.pad(weight, (shift, none, none, none)) for shift in shifts], axis=3)
    both = jnp.stack([jnp.pad(down, (none, shift, none, none, none)) for shift in shifts], axis=4)
    by_window = both.reshape(*both.shape[:3], side // 2, 2, side // 2, 2, outputs)
    return by_window.transpose(0, 1, 2, 3, 5, 4, 6, 7).reshape(-1, side**2 * outputs)


def pooled_images(blocks: Array, bias: Array) -> Array:
    """Pool the result of `block_convolution` by `biased_max_pool` and return it as images."""
    batch, rows, columns, down, across, _, channels = blocks.shape
    pooled = biased_max_pool(blocks, bias)
    return pooled.transpose(0, 1, 3, 2, 4, 5).reshape(batch, rows * down, columns * across, channels)


@jax.custom_vjp
def biased_max_pool(places: Array, bias: Array) -> Array:
    """Return max(0, the largest of the four places before the last axis + bias); among equal ones the first gets the
    gradient.

    Bias and rectifier are applied after pooling, which gives the same result with a quarter of the values.
    """
    return jnp.maximum(places.max(axis=-2) + bias, 0)


def _pool_forward(places: Array, bias: Array) -> tuple[Array, Array]:
    first, second, third, fourth = (places[..., place, :] for place in range(4))
    largest = reduce(jnp.maximum, (first, second, third, fourth))
    pooled = jnp.maximum(largest + bias, 0)
    # One byte per window instead of its four values; 4 means that the rectifier is closed.
    chosen = jnp.where(first == largest, 0, jnp.where(second == largest, 1, jnp.where(third == largest, 2, 3)))
    # Otherwise the compiler would read all places again for each use of one of the two.
    return _materialised((pooled, jnp.where(pooled > 0, chosen, 4).astype(jnp.int8)))


def _pool_backward(chosen: Array, gradient: Array) -> tuple[Array, Array]:
    gradient = _materialised(gradient)
    places = jnp.arange(4, dtype=jnp.int8)[:, None]
    spread = jnp.where(chosen[..., None, :] == places, gradient[..., None, :], 0)
    return spread, jnp.where(chosen < 4, gradient, 0).sum(axis=tuple(range(gradient.ndim - 1)))


def _materialised(arrays: _T) -> _T:
    """Return the same values, computed once and stored instead of fused into their uses."""
    barrier: Callable[[_T], _T] = lax.optimization_barrier
    return barrier(arrays)


biased_max_pool.defvjp(_pool_forward, _pool_backward)
