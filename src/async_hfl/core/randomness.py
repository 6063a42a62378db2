"""Named random streams and counter-based hashing.

Every draw comes from a stream named by its purpose (`stream(seed, "association")`), so that changing one method does
not change the random delays of another. Where millions of tiny streams are needed (one shuffle per job), a
counter-based hash is vectorised and gives the same numbers however the work is grouped.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from async_hfl.core.identifiers import JobId

UInt64s = npt.NDArray[np.uint64]

_MASK = (1 << 64) - 1


def stream_seed(seed: int, *name: str | int) -> int:
    """Return a 64-bit seed that depends on the root seed and on every part of the name."""
    text = "\x1f".join(str(part) for part in (seed, *name))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def stream(seed: int, *name: str | int) -> np.random.Generator:
    """Return the generator of a named stream."""
    return np.random.Generator(np.random.PCG64(stream_seed(seed, *name)))


def scramble(value: int) -> int:
    """Return one SplitMix64 step of a Python integer: a cheap, well-mixed 64-bit hash."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def training_seed(seed: int, job: JobId) -> int:
    """Return the seed of one training job. `seed` is the seed of the run's stream "training"."""
    return scramble(seed ^ (job.gateway << 44) ^ (job.incarnation << 32) ^ job.number)


def scramble_many(values: UInt64s) -> UInt64s:
    """Apply `scramble` to each element (unsigned arithmetic wraps, as intended)."""
    # Two new arrays for all steps: working in place is twice as fast once they outgrow the cache.
    mixed: UInt64s = np.asarray(values + np.uint64(0x9E3779B97F4A7C15))
    shifted = np.empty_like(mixed)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        np.right_shift(mixed, np.uint64(shift), out=shifted)
        mixed ^= shifted
        mixed *= np.uint64(factor)
    np.right_shift(mixed, np.uint64(31), out=shifted)
    mixed ^= shifted
    return mixed


def keyed_uniform(seeds: UInt64s, counters: UInt64s) -> npt.NDArray[np.float64]:
    """Return a uniform number in [0, 1) for each (seed, counter), broadcast."""
    bits = scramble_many(scramble_many(seeds) ^ counters) >> np.uint64(11)
    return bits.astype(np.float64) * 2.0**-53
