"""Convolution by patches and one matrix product, and pooling; images have the shape (channels, height, width, batch).

Each client has its own weights, and library convolutions over the weights of many clients are slow everywhere; matrix
products are not. With the batch last, every operation runs along contiguous memory: a patch copies whole runs, a pool
takes the maximum of two of them, and the matrix product is wide along the vector units.
"""

from __future__ import annotations

from functools import partial, reduce
from typing import NamedTuple

from async_hfl.learning.engine.backend import Array, jax, jnp, lax


def batch_last(images: Array) -> Array:
    """(batch, height, width, channels) -> (channels, height, width, batch)."""
    return jnp.transpose(images, (3, 1, 2, 0))


class _Window(NamedTuple):
    """A sliding window over the images, which fits `rows` times down and `columns` times across."""

    size: int
    stride: int
    height: int
    width: int

    @property
    def rows(self) -> int:
        return (self.height - self.size) // self.stride + 1

    @property
    def columns(self) -> int:
        return (self.width - self.size) // self.stride + 1


def convolution(images: Array, weight: Array, stride: int = 1, padding: int = 0) -> Array:
    """Correlate with `weight` (height, width, inputs, outputs), with zero padding."""
    size, outputs = weight.shape[0], weight.shape[-1]
    if padding:
        images = jnp.pad(images, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    window = _Window(size, stride, *images.shape[1:3])
    # With outputs last in the weight, its gradient is a product with many rows and few columns, which is fast.
    summed = weight.reshape(-1, outputs).T @ _patches(images, window)
    return summed.reshape(outputs, window.rows, window.columns, -1)


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def _patches(images: Array, window: _Window) -> Array:
    """Return a column for every window position and every image; rows by (row, column in the window, channel)."""
    # First across, then down: 2 x size copies instead of size x size.
    across = jnp.stack([_strided(images, 2, first, window.columns, window.stride) for first in range(window.size)])
    both = jnp.stack([_strided(across, 2, first, window.rows, window.stride) for first in range(window.size)])
    return both.reshape(window.size**2 * images.shape[0], -1)


def _patches_forward(images: Array, window: _Window) -> tuple[Array, None]:
    return _patches(images, window), None


def _patches_backward(window: _Window, _: None, gradient: Array) -> tuple[Array]:
    """Sum every pixel over the windows that contain it, by shifted additions: a scatter would go element by element."""
    size, stride = window.size, window.stride
    channels = len(gradient) // size**2
    both = gradient.reshape(size, size, channels, window.rows, window.columns, -1)
    across = reduce(jnp.add, [_spread(both[first], 2, first, window.height, stride) for first in range(size)])
    return (reduce(jnp.add, [_spread(across[first], 2, first, window.width, stride) for first in range(size)]),)


_patches.defvjp(_patches_forward, _patches_backward)


def _strided(array: Array, axis: int, first: int, count: int, stride: int) -> Array:
    return lax.slice_in_dim(array, first, first + (count - 1) * stride + 1, stride, axis)


def _spread(array: Array, axis: int, first: int, length: int, stride: int) -> Array:
    """Apply the transpose of `_strided`: zeros before, between and after."""
    used = first + (array.shape[axis] - 1) * stride + 1
    edges = [(0, 0, 0)] * array.ndim
    edges[axis] = (first, length - used, stride - 1)
    return lax.pad(array, jnp.zeros((), array.dtype), edges)


@jax.custom_vjp
def biased_max_pool(images: Array, bias: Array) -> Array:
    """Return max(0, the largest of each 2 x 2 window + the channel's bias); among equal ones the first gets the
    gradient.

    First is in reading order. Ties are common: on a flat background all four places of a window are equal. Bias and
    rectifier are applied after pooling, which gives the same result with a quarter of the work; if the result is 0, no
    gradient passes.
    """
    return _pool_forward(images, bias)[0]


def _places(images: Array) -> list[Array]:
    """Return the four places of each window, in reading order."""
    channels, height, width, batch = images.shape
    windows = images.reshape(channels, height // 2, 2, width // 2, 2, batch)
    return [windows[:, :, row, :, column] for row in range(2) for column in range(2)]


def _pool_forward(images: Array, bias: Array) -> tuple[Array, tuple[Array, Array, Array]]:
    largest = reduce(jnp.maximum, _places(images))
    pooled = jnp.maximum(largest + bias[:, None, None, None], 0)
    return pooled, (images, largest, pooled)


def _pool_backward(saved: tuple[Array, Array, Array], gradient: Array) -> tuple[Array, Array]:
    images, largest, pooled = saved
    first, second, third, fourth = (place == largest for place in _places(images))
    passes = jnp.where(pooled > 0, gradient, 0)
    chosen = (first, second & ~first, third & ~(first | second), fourth & ~(first | second | third))
    one, two, three, four = (jnp.where(here, passes, 0) for here in chosen)
    rows = [jnp.stack(pair, axis=3) for pair in ((one, two), (three, four))]
    return jnp.stack(rows, axis=2).reshape(images.shape), passes.sum(axis=(1, 2, 3))


biased_max_pool.defvjp(_pool_forward, _pool_backward)
