"""What an event brought about, in some fifty bytes: enough to tell on replay whether the same came out again.

Three parts: a digest of everything, to the bit; a digest of all but the real numbers (who was sent what, in which
order); and the real numbers themselves, an array as its sum and its norm. The first decides where versions and
processor are the same, the other two, within a tolerance, where they are not.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from async_hfl.core.serialization import Plain, to_plain
from async_hfl.deployment.store.encoding import Array, Arrays, Encoding, content

_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class EffectsSummary:
    count: int
    exact: bytes
    order: bytes
    reals: tuple[float, ...]

    def to_bytes(self) -> bytes:
        reals = np.asarray(self.reals, dtype="<f8").tobytes()
        return msgspec.msgpack.encode((self.count, self.exact, self.order, reals))

    @staticmethod
    def from_bytes(data: bytes) -> EffectsSummary:
        count, exact, order, reals = msgspec.msgpack.decode(data)
        return EffectsSummary(count, exact, order, tuple(np.frombuffer(reals, dtype="<f8").tolist()))

    def agrees(self, other: EffectsSummary, tolerance: float) -> bool:
        """Tolerance 0: to the bit. Otherwise the same in order, and every real number near enough."""
        if tolerance == 0.0:
            return self.exact == other.exact
        if self.order != other.order or len(self.reals) != len(other.reals):
            return False
        return all(_near(mine, its, tolerance) for mine, its in zip(self.reals, other.reals, strict=True))


class Summarizer:
    def __init__(self, arrays: Arrays) -> None:
        self._encoding = Encoding(arrays)

    def summarize(self, effects: Sequence[object]) -> EffectsSummary:
        data = [to_plain(effect) for effect in effects]
        exact = hashlib.blake2b(self._encoding.encode(data).body, digest_size=_DIGEST_BYTES).digest()
        reals: list[float] = []
        order = msgspec.msgpack.encode(_without_reals(data, reals))
        return EffectsSummary(
            len(effects), exact, hashlib.blake2b(order, digest_size=_DIGEST_BYTES).digest(), tuple(reals)
        )


def _without_reals(data: Plain, reals: list[float]) -> Any:
    if isinstance(data, float):
        reals.append(data)
        return None
    if isinstance(data, list):
        return [_without_reals(item, reals) for item in data]
    if isinstance(data, dict):
        return {key: _without_reals(item, reals) for key, item in data.items()}
    if isinstance(data, np.ndarray):
        return _array_without_reals(data, reals)
    return data


def _array_without_reals(array: Array, reals: list[float]) -> list[Any]:
    if array.dtype.kind != "f":
        return [array.dtype.str, list(array.shape), bytes(content(array))]
    flat = array.reshape(-1)
    reals.append(float(flat.sum(dtype=np.float64)))
    reals.append(float(np.linalg.norm(flat)))
    return [array.dtype.str, list(array.shape)]


def _near(mine: float, its: float, tolerance: float) -> bool:
    if math.isnan(mine) or math.isnan(its):
        return math.isnan(mine) and math.isnan(its)
    return math.isclose(mine, its, rel_tol=tolerance, abs_tol=tolerance)
