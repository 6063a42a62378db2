"""Random bits for rounding: a hash of a key and a counter, in arithmetic of 32 bits.

Value i takes 16 bits of the hash of i // 2: the low half if i is even, otherwise the high half. The hash is the
finaliser `lowbias32` of C. Wellons, with the second half of the key xored in between its two rounds. Unsigned integers
of 32 bits are multiplied and shifted alike by numpy and by every compiler, so all of them draw the same bits.

The key itself is scrambled first, since the hash of keys that differ in few bits would be correlated.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from async_hfl.core.randomness import scramble

CHUNK = 1 << 17
"""Most values that are encoded at once. Shorter chunks fit better into the caches, but cost more in calls of numpy."""
COUNTER_FACTOR = 0x9E3779B1
FIRST_FACTOR = 0x7FEB352D
SECOND_FACTOR = 0x846CA68B
_MASK = (1 << 32) - 1


def _multiples() -> npt.NDArray[np.uint32]:
    table = np.arange(CHUNK // 2, dtype=np.uint32)
    table *= np.uint32(COUNTER_FACTOR)
    table.flags.writeable = False
    return table


_MULTIPLES = _multiples()


def split_key(key: int) -> tuple[int, int]:
    """Return the low and the high 32 bits of a scrambled key of 64 bits."""
    scrambled = scramble(key)
    return scrambled & _MASK, scrambled >> 32


def draw(
    key: int, first: int, count: int, bits: npt.NDArray[np.uint32], scratch: npt.NDArray[np.uint32]
) -> npt.NDArray[np.uint16]:
    """Return 16 bits for each of `count` values (at most CHUNK) from number `first`, which is even; they lie in `bits`.

    Both buffers hold at least half as many numbers as there are values.
    """
    pairs = (count + 1) // 2
    bits, scratch = bits[:pairs], scratch[:pairs]
    low, high = split_key(key)
    np.add(_MULTIPLES[:pairs], np.uint32((first // 2 * COUNTER_FACTOR + low) & _MASK), out=bits)
    np.right_shift(bits, 16, out=scratch)
    np.bitwise_xor(bits, scratch, out=bits)
    np.multiply(bits, FIRST_FACTOR, out=bits)
    np.bitwise_xor(bits, high, out=bits)
    np.right_shift(bits, 15, out=scratch)
    np.bitwise_xor(bits, scratch, out=bits)
    np.multiply(bits, SECOND_FACTOR, out=bits)
    np.right_shift(bits, 16, out=scratch)
    np.bitwise_xor(bits, scratch, out=bits)
    return bits.view(np.uint16)[:count]
