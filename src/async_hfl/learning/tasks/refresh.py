"""Local samples change over time: a sensor sees new things, of the same kinds as before.

Slot k of a device holds, at the device's g-th job, version floor(g * share + phase) of itself. Version 0 is the sample
that the partition dealt; each later one is drawn from all training samples of the same class. So class counts never
change, a share of the slots is renewed with each job, and every slot once in 1/share jobs; the phase, a hash in [0, 1),
staggers them.

Which sample it is depends on (seed, device, slot, version) alone, not on what was drawn before: a job trained late, or
in any company, sees the same samples. Draws are independent, so that now and then a device holds a sample twice (of
300 slots and 6,000 samples of a class, some seven).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np
import numpy.typing as npt

from async_hfl.core.errors import SettingsError
from async_hfl.core.randomness import UInt64s, scramble, scramble_many, stream_seed
from async_hfl.learning.partition import Rows

_HALF = np.uint64(32)


@final
class Refresh:
    """The rows of many jobs at once."""

    def __init__(
        self, owned: Sequence[Rows], targets: npt.NDArray[np.integer[Any]], *, classes: int, share: float, seed: int
    ) -> None:
        """`share` of a device's slots is renewed with each job; 0: never."""
        if not 0 <= share <= 1:
            raise SettingsError(f"task.refresh = {share}: must be a share from 0 to 1")
        if share and not classes:
            raise SettingsError(f"task.refresh = {share}: a task without classes cannot renew its samples; set it to 0")
        self._share = share
        self.sizes = np.array([len(rows) for rows in owned], dtype=np.int64)
        self._rows = np.empty((len(owned), int(self.sizes.max())), dtype=np.int32)
        for device, rows in enumerate(owned):
            self._rows[device, : len(rows)] = rows
            # Padding repeats the first slot: masked, but finite whenever the device's data is.
            self._rows[device, len(rows) :] = rows[0]
        if not share:
            return
        self._labels = targets[self._rows].astype(np.min_scalar_type(classes))
        self._pool = np.argsort(targets, kind="stable").astype(np.int32)
        """All training samples, class after class."""
        self._pool_sizes = np.bincount(targets, minlength=classes).astype(np.uint64)
        self._pool_starts = (np.cumsum(self._pool_sizes) - self._pool_sizes).astype(np.int64)
        self._keys: UInt64s = np.array([_key(seed, device) for device in range(len(owned))], dtype=np.uint64)
        self._slots = np.arange(self._rows.shape[1], dtype=np.uint64)

    @property
    def width(self) -> int:
        """Samples of the largest device."""
        return self._rows.shape[1]

    def rows(self, devices: npt.NDArray[np.int64], generations: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        """(jobs, width): what device `devices[j]` holds at its job number `generations[j]`, slot by slot.

        Places beyond a device's samples repeat its slot 0.
        """
        original = self._rows[devices]
        if not self._share or not generations.any():
            return original
        salts = scramble_many(self._keys[devices][:, None] ^ self._slots)
        versions = _versions(salts, generations[:, None], self._share)
        labels = self._labels[devices]
        draws = scramble_many(salts + versions) >> _HALF
        # The upper half of a 32 x 32 bit product: uniform below the pool's size, without a division.
        places = ((draws * self._pool_sizes[labels]) >> _HALF).astype(np.int64) + self._pool_starts[labels]
        held = np.where(versions > 0, self._pool[places], original)
        beyond = np.arange(self.width) >= self.sizes[devices][:, None]
        np.copyto(held, held[:, :1], where=beyond)
        return held


def refreshed(
    rows: Rows, generation: int, share: float, device: int, seed: int, pools: Sequence[Rows], labels: Sequence[int]
) -> Rows:
    """The same for one device, slot by slot, as the definition says it: what the fast form is tested against.

    `labels` are the classes of `rows`, `pools` all samples by class.
    """
    held = []
    for slot, (row, label) in enumerate(zip(rows.tolist(), labels, strict=True)):
        salt = scramble(_key(seed, device) ^ slot)
        version = int(generation * share + (salt >> 11) * 2.0**-53)
        draw = scramble((salt + version) % 2**64) >> 32
        held.append(row if version == 0 else int(pools[label][(draw * len(pools[label])) >> 32]))
    return np.array(held, dtype=np.int64)


def _key(seed: int, device: int) -> int:
    return stream_seed(seed, "refresh", device)


def _versions(salts: UInt64s, generations: npt.NDArray[np.int64], share: float) -> UInt64s:
    phases = (salts >> np.uint64(11)) * 2.0**-53
    return (generations * share + phases).astype(np.uint64)
