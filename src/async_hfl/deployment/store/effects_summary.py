"""A summary of the effects of one event, in some fifty bytes, with which a replay compares its own effects.

A summary has three parts: a digest of everything, to the bit; a digest of everything except the real numbers (which
messages went to which nodes, in which order); and the real numbers, with the sum and norm in place of each array. If
versions and processor are the same, the first part must agree, otherwise the other two, within a tolerance.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from async_hfl.core.serialization import Plain, to_plain
from async_hfl.deployment.store.encoding import Arrays, Encoding, content

_DIGEST_BYTES = 16


class EffectsSummary(msgspec.Struct, frozen=True, array_like=True):
    count: int
    exact: bytes
    order: bytes
    reals: bytes
    """Little-endian float64."""

    def agrees(self, other: EffectsSummary, tolerance: float) -> bool:
        """Compare to the bit if the tolerance is 0; else the order exactly, and real numbers within the tolerance."""
        if tolerance == 0.0:
            return self.exact == other.exact
        if self.order != other.order or len(self.reals) != len(other.reals):
            return False
        mine, its = np.frombuffer(self.reals, "<f8"), np.frombuffer(other.reals, "<f8")
        size = np.maximum(np.abs(mine), np.abs(its))
        with np.errstate(invalid="ignore"):
            near = np.abs(mine - its) <= np.maximum(tolerance * size, tolerance)
        return bool(np.all((mine == its) | (near & np.isfinite(size)) | (np.isnan(mine) & np.isnan(its))))


class Summarizer:
    def __init__(self, arrays: Arrays) -> None:
        self._encoding = Encoding(arrays)

    def summarize(self, effects: Sequence[object]) -> EffectsSummary:
        data = [to_plain(effect) for effect in effects]
        exact = hashlib.blake2b(self._encoding.encode(data).body, digest_size=_DIGEST_BYTES).digest()
        reals: list[float] = []
        order = hashlib.blake2b(msgspec.msgpack.encode(_without_reals(data, reals)), digest_size=_DIGEST_BYTES)
        return EffectsSummary(len(effects), exact, order.digest(), np.asarray(reals, dtype="<f8").tobytes())


def _without_reals(data: Plain, reals: list[float]) -> Any:
    """Return the data without its real numbers, which are appended to `reals`."""
    if isinstance(data, float):
        reals.append(data)
        return None
    if isinstance(data, list):
        return [_without_reals(item, reals) for item in data]
    if isinstance(data, dict):
        return {key: _without_reals(item, reals) for key, item in data.items()}
    if not isinstance(data, np.ndarray):
        return data
    if data.dtype.kind != "f":
        return [data.dtype.str, list(data.shape), bytes(content(data))]
    flat = data.reshape(-1)
    with np.errstate(over="ignore", invalid="ignore"):  # the norm of a model that a peer has made huge is infinite
        reals.append(float(flat.sum(dtype=np.float64)))
        reals.append(float(np.linalg.norm(flat)))
    return [data.dtype.str, list(data.shape)]
