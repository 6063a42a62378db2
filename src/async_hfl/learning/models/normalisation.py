"""Normalisation of channels of images with the shape (channels, height, width, batch)."""

from __future__ import annotations

from typing import NamedTuple

from async_hfl.learning.engine.backend import Array, jnp, lax

SMALLEST_VARIANCE = 1e-5
"""Added to a variance, so that a constant channel is not divided by 0."""
MOMENTUM = 0.1
"""Weight of a new batch in the running statistics."""


class Statistics(NamedTuple):
    mean: Array
    variance: Array


def batch_norm(images: Array, mask: Array, running: Statistics) -> tuple[Array, Statistics]:
    """Normalise each channel by its mean and variance over the batch's real samples (Ioffe & Szegedy 2015), for
    training.

    Returns the images and the updated running statistics, whose variance is the unbiased one, as in PyTorch. Padding
    samples affect neither.
    """
    real = mask.astype(images.dtype)
    height, width = images.shape[1:3]
    # At least one, so that a batch of padding (a slot without a job) stays finite.
    count = jnp.maximum(real.sum(), 1) * (height * width)
    mean = (images * real).sum(axis=(1, 2, 3)) / count
    centred = images - _by_channel(mean)
    variance = (centred * centred * real).sum(axis=(1, 2, 3)) / count
    normalised = centred * _by_channel(lax.rsqrt(variance + SMALLEST_VARIANCE))
    unbiased = variance * (count / jnp.maximum(count - 1, 1))
    after = Statistics(
        running.mean + MOMENTUM * lax.stop_gradient(mean - running.mean),
        running.variance + MOMENTUM * lax.stop_gradient(unbiased - running.variance),
    )
    return normalised, after


def running_norm(images: Array, running: Statistics) -> Array:
    """Normalise by the running statistics, for inference."""
    return (images - _by_channel(running.mean)) * _by_channel(lax.rsqrt(running.variance + SMALLEST_VARIANCE))


def group_norm(images: Array, groups: int) -> Array:
    """Normalise each image over groups of neighbouring channels (Wu & He 2018), without running statistics."""
    channels, height, width, batch = images.shape
    grouped = images.reshape(groups, channels // groups * height * width, batch)
    centred = grouped - grouped.mean(axis=1, keepdims=True)
    variance = (centred * centred).mean(axis=1, keepdims=True)
    return (centred * lax.rsqrt(variance + SMALLEST_VARIANCE)).reshape(images.shape)


def scaled(images: Array, scale: Array, shift: Array) -> Array:
    return images * _by_channel(scale) + _by_channel(shift)


def _by_channel(values: Array) -> Array:
    return values[:, None, None, None]
