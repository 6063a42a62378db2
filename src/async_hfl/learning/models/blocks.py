"""Convolution and pooling by blocks, for accelerators; images as (batch, height, width, channels).

A block of outputs, side x side of them, is a linear map of the square of inputs under it, and the map is the same for
every block: a matrix of the filter's weights, shifted from output to output, with zeros beside them. So a convolution
is one dense product. It multiplies some zeros, which a matrix unit does for nothing; the squares are far smaller than
a patch for each output would be, and the matrix far smaller than that of a whole row of outputs: moving them is what
takes the time. On a processor it is the other way round (see `convolution`).

A block is made of the windows of the pool that follows, whose four places stand beside each other.
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
    """Correlation with `weight` (height, width, inputs, outputs), no padding, stride 1: by (image, row and column of
    the block, row and column of the window in it, place in the window, output)."""
    size, outputs = weight.shape[0], weight.shape[-1]
    batch, height, width, _ = images.shape
    if side % 2 or (size - 1) % side or weight.shape[1] != size or height % side or width % side:
        raise InternalError(f"blocks of {side} x {side} do not fit filters of {size} and images of {height} x {width}")
    squares, matrix = _squares(images, side, (size - 1) // side), _matrix(weight, side)
    summed = squares.reshape(-1, len(matrix)) @ matrix
    return summed.reshape(batch, *squares.shape[1:3], side // 2, side // 2, 4, outputs)


@partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def _squares(images: Array, side: int, more: int) -> Array:
    """By (image, row and column of the block, tile down, row in it, tile across, column in it, channel): the block's
    own tile of the images and so many `more` down and across."""
    batch, height, width, channels = images.shape
    tiles = lax.reshape(images, (batch, height // side, side, width // side, side, channels))
    down, across = (np.arange(length // side - more)[:, None] + np.arange(more + 1) for length in (height, width))
    found = tiles.at[:, down[:, None, :, None], :, across[None, :, None, :]].get(mode="promise_in_bounds")
    return found.transpose(4, 0, 1, 2, 5, 3, 6, 7)


def _squares_forward(images: Array, side: int, more: int) -> tuple[Array, None]:
    return _squares(images, side, more), None


def _squares_backward(side: int, more: int, _: None, gradient: Array) -> tuple[Array]:
    """Every tile's sum over the blocks above it, by shifted additions: a scatter would go element by element."""
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
    """Rows as a square is ordered, columns by (row and column of the window, place in it, output)."""
    outputs = weight.shape[-1]
    shifts = [(first, side - 1 - first) for first in range(side)]
    none = (0, 0)
    down = jnp.stack([jnp.pad(weight, (shift, none, none, none)) for shift in shifts], axis=3)
    both = jnp.stack([jnp.pad(down, (none, shift, none, none, none)) for shift in shifts], axis=4)
    by_window = both.reshape(*both.shape[:3], side // 2, 2, side // 2, 2, outputs)
    return by_window.transpose(0, 1, 2, 3, 5, 4, 6, 7).reshape(-1, side**2 * outputs)


def pooled_images(blocks: Array, bias: Array) -> Array:
    """What `block_convolution` gave, pooled by `biased_max_pool`, as images."""
    batch, rows, columns, down, across, _, channels = blocks.shape
    pooled = biased_max_pool(blocks, bias)
    return pooled.transpose(0, 1, 3, 2, 4, 5).reshape(batch, rows * down, columns * across, channels)


@jax.custom_vjp
def biased_max_pool(places: Array, bias: Array) -> Array:
    """max(0, the largest of the four places before the last axis + bias); of equal ones the first has the gradient.

    Biased and rectified after pooling, which is the same and a quarter of the values.
    """
    return jnp.maximum(places.max(axis=-2) + bias, 0)


def _pool_forward(places: Array, bias: Array) -> tuple[Array, Array]:
    first, second, third, fourth = (places[..., place, :] for place in range(4))
    largest = reduce(jnp.maximum, (first, second, third, fourth))
    pooled = jnp.maximum(largest + bias, 0)
    # One byte for each window instead of its four values again; 4: none, the rectifier is closed.
    chosen = jnp.where(first == largest, 0, jnp.where(second == largest, 1, jnp.where(third == largest, 2, 3)))
    # The compiler would read all places again for each thing that needs one of the two.
    return _made((pooled, jnp.where(pooled > 0, chosen, 4).astype(jnp.int8)))


def _pool_backward(chosen: Array, gradient: Array) -> tuple[Array, Array]:
    gradient = _made(gradient)
    places = jnp.arange(4, dtype=jnp.int8)[:, None]
    spread = jnp.where(chosen[..., None, :] == places, gradient[..., None, :], 0)
    return spread, jnp.where(chosen < 4, gradient, 0).sum(axis=tuple(range(gradient.ndim - 1)))


def _made(arrays: _T) -> _T:
    """The same, computed once and kept: never as a part of what uses them."""
    barrier: Callable[[_T], _T] = lax.optimization_barrier
    return barrier(arrays)


biased_max_pool.defvjp(_pool_forward, _pool_backward)
