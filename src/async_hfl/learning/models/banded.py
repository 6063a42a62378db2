"""Convolution of whole rows by a banded matrix, for accelerators; images as (batch, height, width, channels).

A row of outputs is a linear map of the few rows of inputs under it, and the map is the same for every row: a matrix
with the filter's weights along a band and zeros beside it. So a convolution is one large dense product over rows: it
multiplies many zeros, which a matrix unit does for nothing, and the rows under a filter are a third as large as its
patches, which is what takes the time. On a processor it is the other way round (see `convolution`).
"""

from __future__ import annotations

from async_hfl.learning.backend import Array, jax, jnp


def banded_convolution(images: Array, weight: Array) -> Array:
    """Correlation with `weight` (height, width, inputs, outputs), no padding, stride 1."""
    size, _, channels, outputs = weight.shape
    batch, height, width, _ = images.shape
    rows, columns = height - size + 1, width - size + 1
    # (row under the filter, input column, channel, output column, output)
    band = jnp.stack(
        [jnp.pad(weight, ((0, 0), (first, width - size - first), (0, 0), (0, 0))) for first in range(columns)], axis=3
    )
    under = jnp.stack([images[:, first : first + rows] for first in range(size)], axis=2)
    inputs = size * width * channels
    summed = under.reshape(batch * rows, inputs) @ band.reshape(inputs, columns * outputs)
    return summed.reshape(batch, rows, columns, outputs)


@jax.custom_vjp
def biased_max_pool(images: Array, bias: Array) -> Array:
    """max(0, the largest of each 2 x 2 window + bias), biased and rectified after pooling: a quarter of the values."""
    return jnp.maximum(_windows(images).max(axis=(2, 4)) + bias, 0)


def _windows(images: Array) -> Array:
    batch, height, width, channels = images.shape
    return images.reshape(batch, height // 2, 2, width // 2, 2, channels)


def _pool_forward(images: Array, bias: Array) -> tuple[Array, tuple[Array, Array, Array]]:
    largest = _windows(images).max(axis=(2, 4))
    pooled = jnp.maximum(largest + bias, 0)
    return pooled, (images, largest, pooled)


def _pool_backward(saved: tuple[Array, Array, Array], gradient: Array) -> tuple[Array, Array]:
    """Of equal ones the first in reading order has the gradient, as in `convolution.biased_max_pool`."""
    images, largest, pooled = saved
    passes = jnp.where(pooled > 0, gradient, 0)
    here = _windows(images) == largest[:, :, None, :, None]
    top_left, top_right, bottom_left, bottom_right = (here[:, :, row, :, column] for row, column in _PLACES)
    left = jnp.stack([top_left, bottom_left & ~(top_left | top_right)], axis=2)
    right = jnp.stack([top_right & ~top_left, bottom_right & ~(top_left | top_right | bottom_left)], axis=2)
    chosen = jnp.stack([left, right], axis=4)
    spread = jnp.where(chosen, passes[:, :, None, :, None], 0)
    return spread.reshape(images.shape), passes.sum(axis=(0, 1, 2))


_PLACES = ((0, 0), (0, 1), (1, 0), (1, 1))

biased_max_pool.defvjp(_pool_forward, _pool_backward)
