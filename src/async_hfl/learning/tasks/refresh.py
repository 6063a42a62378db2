"""Local data that changes over time: each job replaces some samples of a device by others of the same classes.

At the device's g-th job, slot k holds its version floor(g * share + phase). Version 0 is the sample that the partition
assigned; each later version is drawn from all training samples of the same class. Class counts therefore never change.
Each job renews a share of the slots, and every slot is renewed once in 1/share jobs; the phase, a hash in [0, 1),
staggers them.

A sample depends on (seed, device, slot, version) alone, not on earlier draws: a job sees the same samples whenever and
with whichever others it is trained. Draws are independent, so a device sometimes holds a sample twice (with 300 slots
and 6,000 samples of a class, about seven times).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np
import numpy.typing as npt

from async_hfl.core.errors import SettingsError
from async_hfl.core.randomness import UInt64s, scramble_many, stream_seed
from async_hfl.learning.partition.dealing import Rows

_HALF = np.uint64(32)


@final
class Refresh:
    """The changing rows of all devices, computed for many jobs at once."""

    def __init__(
        self, owned: Sequence[Rows], targets: npt.NDArray[np.integer[Any]], *, classes: int, share: float, seed: int
    ) -> None:
        """Each job renews a `share` of its device's slots; 0: none."""
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
        """All training samples, ordered by class."""
        self._pool_sizes = np.bincount(targets, minlength=classes).astype(np.uint64)
        self._pool_starts = (np.cumsum(self._pool_sizes) - self._pool_sizes).astype(np.int64)
        self._keys: UInt64s = np.array(
            [stream_seed(seed, "refresh", device) for device in range(len(owned))], dtype=np.uint64
        )
        self._slots = np.arange(self._rows.shape[1], dtype=np.uint64)

    @property
    def width(self) -> int:
        """Number of samples of the largest device."""
        return self._rows.shape[1]

    def rows(self, devices: npt.NDArray[np.int64], generations: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        """Return, by job and slot, the rows that device `devices[j]` holds at its job number `generations[j]`.

        Slots beyond a device's samples repeat its slot 0.
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


def _versions(salts: UInt64s, generations: npt.NDArray[np.int64], share: float) -> UInt64s:
    phases = (salts >> np.uint64(11)) * 2.0**-53
    return (generations * share + phases).astype(np.uint64)
