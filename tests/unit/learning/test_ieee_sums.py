"""Sums on a device are those of numpy to the bit, also of subnormal numbers."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from async_hfl.core.vectors import HostVector
from async_hfl.learning.engine.backend import jax
from async_hfl.learning.engine.on_device.ieee_sums import add

SIZE = 200
LEAST = 2.0**-149
program = jax.jit(add)
tiny = st.floats(-(2.0**-110), 2.0**-110, width=32)
arrays = hnp.arrays(np.float32, SIZE, elements=st.one_of(tiny, st.floats(width=32)))


def check(one: HostVector, other: HostVector) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        expected = one + other
    found = np.asarray(program(one, other))
    number = ~np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(found), ~number)
    np.testing.assert_array_equal(found.view(np.uint32)[number], expected.view(np.uint32)[number])


@given(arrays, arrays)
@settings(max_examples=200)
def test_any_sums(one: HostVector, other: HostVector) -> None:
    check(one, other)


def test_sums_by_hand() -> None:
    sums = [
        (LEAST, LEAST, 2 * LEAST),
        (2.0**-126, -LEAST, 2.0**-126 - LEAST),
        (1.5 * 2.0**-126, -(2.0**-126), 2.0**-127),
        (2.0**-126 - LEAST, LEAST, 2.0**-126),
        (2.0**-103, -LEAST, 2.0**-103),  # the distance to the next smaller number is 2^-127
        (1.0, LEAST, 1.0),
    ]
    one, other, expected = np.array(sums, np.float32).T.copy()
    np.testing.assert_array_equal(np.asarray(program(one, other)).view(np.uint32), expected.view(np.uint32))


def test_sums_at_every_limit() -> None:
    """Neighbours of the powers of two at which the program decides, and zeros, with both signs."""
    limits = np.array([0, 2.0**-149, 2.0**-126, 2.0**-65, 2.0**-64, 2.0**-63, 2.0**127], np.float32)
    near = np.concatenate([limits, np.nextafter(limits, np.float32(np.inf)), np.nextafter(limits, np.float32(0))])
    pairs = np.array(list(product([*near, *-near], repeat=2)), np.float32)
    check(pairs[:, 0].copy(), pairs[:, 1].copy())


def test_zeros_keep_their_signs() -> None:
    zeros = np.array([[0.0, 0.0], [0.0, -0.0], [-0.0, 0.0], [-0.0, -0.0]], np.float32)
    found = np.asarray(program(zeros[:, 0].copy(), zeros[:, 1].copy()))
    assert np.signbit(found).tolist() == [False, False, False, True]
