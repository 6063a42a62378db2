"""Sums of float32 as IEEE 754 defines them, also where a processor takes subnormal numbers as zeros.

XLA programs do that on the CPU, but not on a GPU, and numpy does not. A sum is subnormal, or depends on a number that
is, only if both numbers are small. Such numbers are added after multiplying them by 2^64, and the sum is divided by
it. Both are done to the bits of the numbers, as integers, since products with subnormal numbers would be zeros too.
"""

from __future__ import annotations

import numpy as np

from async_hfl.learning.engine.backend import Array, jnp, lax

SIGN = np.uint32(0x80000000)
MAGNITUDE = 0x7FFFFFFF
_RAISE = 64
_ONE_EXPONENT = 1 << 23
"""Added to the bits of a normal number, it doubles the number."""
_SMALL = 127 - 64 << 23
"""Bits of 2^-64. If either number is larger, a subnormal one makes no difference, and no sum is subnormal."""
_LEAST_NORMAL = 127 - 126 + _RAISE << 23
"""Bits of the least normal number times 2^64."""


def bits_of(numbers: Array) -> Array:
    return lax.bitcast_convert_type(numbers, jnp.uint32)


def floats_of(bits: Array) -> Array:
    return lax.bitcast_convert_type(bits, jnp.float32)


def add(one: Array, other: Array) -> Array:
    """Return one + other."""
    first, second = bits_of(one), bits_of(other)
    small = jnp.maximum(first & MAGNITUDE, second & MAGNITUDE) < _SMALL
    return jnp.where(small, _lowered(_raised(first) + _raised(second)), one + other)


def _raised(bits: Array) -> Array:
    """Return a small number times 2^64."""
    magnitude = bits & MAGNITUDE
    # A subnormal number is 2^-149 times its bits, read as an integer.
    subnormal = magnitude.astype(jnp.float32) * jnp.float32(2.0 ** (_RAISE - 149))
    raised = jnp.where(magnitude < _ONE_EXPONENT, bits_of(subnormal), magnitude + _RAISE * _ONE_EXPONENT)
    return floats_of(raised | (bits & SIGN))


def _lowered(number: Array) -> Array:
    """Return a number divided by 2^64, whose result is exact."""
    bits = bits_of(number)
    magnitude = bits & MAGNITUDE
    subnormal = (floats_of(magnitude) * jnp.float32(2.0 ** (149 - _RAISE))).astype(jnp.uint32)
    lowered = jnp.where(magnitude < _LEAST_NORMAL, subnormal, magnitude - _RAISE * _ONE_EXPONENT)
    return floats_of(lowered | (bits & SIGN))
