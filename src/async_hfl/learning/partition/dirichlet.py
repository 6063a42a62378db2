"""Class proportions drawn from a Dirichlet distribution: alpha ranges from iid to one class per device.

Two different forms are in use. If every sample is dealt once, each CLASS is divided over the devices in proportions ~
Dirichlet(alpha) (Yurochkin et al., ICML 2019; Flower), and sizes differ too. With a fixed number of samples per device,
each DEVICE has class proportions ~ Dirichlet(alpha) (Hsu et al., arXiv:1909.06335), and sizes are equal.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from async_hfl.core.errors import DataError
from async_hfl.core.randomness import stream
from async_hfl.learning.datasets.samples import Dataset
from async_hfl.learning.partition.dealing import (
    Deck,
    Rows,
    SamplesPerDevice,
    check_devices,
    check_samples_per_device,
    device_rows,
    labels_of,
)

_ATTEMPTS = 100


def dirichlet(
    dataset: Dataset,
    devices: int,
    seed: int,
    *,
    alpha: float | Sequence[float] = 0.5,
    min_partition_size: int = 10,
    self_balancing: bool = False,
    samples_per_device: SamplesPerDevice = "all",
) -> tuple[Rows, ...]:
    """Draw proportions until every device has `min_partition_size` samples.

    `alpha` may be a list with one value per device. `self_balancing` gives nothing more to a device that already has
    more than an even share.
    """
    check_devices(devices)
    targets = labels_of(dataset, "dirichlet")
    random = stream(seed, "partition", "dirichlet")
    pools = [np.flatnonzero(targets == label) for label in np.unique(targets)]
    wanted = check_samples_per_device(samples_per_device)
    if wanted is not None:
        concentration = _concentration(alpha, len(pools), "class")
        return _by_device(pools, devices, wanted, concentration, random)
    concentration = _concentration(alpha, devices, "device")
    counts = _drawn_counts(pools, concentration, max(1, min_partition_size), self_balancing, random)
    shares: list[list[Rows]] = [[] for _ in range(devices)]
    for pool, row in zip(pools, counts, strict=True):
        for device, part in enumerate(np.split(random.permutation(pool), np.cumsum(row)[:-1])):
            shares[device].append(part)
    return device_rows(shares, len(targets))


def _concentration(alpha: float | Sequence[float], length: int, what: str) -> npt.NDArray[np.float64]:
    given = np.asarray(alpha, dtype=np.float64)
    if given.ndim == 0:
        given = np.full(length, given)
    if given.shape != (length,):
        raise DataError(f"alpha: give one number, or {length} of them, one for each {what}; got {given.size}")
    if not (np.isfinite(given).all() and (given > 0).all()):
        raise DataError(f"alpha = {alpha}: must be above 0 and finite")
    return given


def _drawn_counts(
    pools: Sequence[Rows],
    concentration: npt.NDArray[np.float64],
    least: int,
    self_balancing: bool,
    random: np.random.Generator,
) -> npt.NDArray[np.int64]:
    """Return the number of samples by (class, device). Only the numbers are redrawn; samples are shuffled once they
    fit."""
    devices, samples = len(concentration), sum(map(len, pools))
    if least * devices > samples:
        raise DataError(
            f"{devices} devices with at least {least} samples each want more than the {samples} there are: "
            "use fewer devices or a smaller min_partition_size (task.min_samples_per_device)"
        )
    for _ in range(_ATTEMPTS):
        counts = np.zeros((len(pools), devices), dtype=np.int64)
        for label, pool in enumerate(pools):
            shares = random.dirichlet(concentration)
            if self_balancing:
                open_ = counts.sum(axis=0) <= samples / devices
                shares = shares * open_
                # All devices with room may have drawn almost nothing: then they share evenly.
                shares = shares / shares.sum() if shares.sum() > 0 else open_ / open_.sum()
            stops = np.floor(np.cumsum(shares) * len(pool)).astype(np.int64)
            stops[-1] = len(pool)  # a sum of shares may round to just below one
            counts[label] = np.diff(np.minimum(stops, len(pool)), prepend=0)
        if counts.sum(axis=0).min() >= least:
            return counts
    raise DataError(
        f"in {_ATTEMPTS} draws some of the {devices} devices always had fewer than {least} samples: use a larger alpha "
        "(task.dirichlet_alpha), a smaller min_partition_size (task.min_samples_per_device) or fewer devices"
    )


def _by_device(
    pools: Sequence[Rows],
    devices: int,
    wanted: int,
    concentration: npt.NDArray[np.float64],
    random: np.random.Generator,
) -> tuple[Rows, ...]:
    sizes = np.array([len(pool) for pool in pools])
    if wanted > sizes.sum():
        raise DataError(f"a device wants {wanted} samples and there are {sizes.sum()}: use fewer samples per device")
    decks = [Deck(pool, random) for pool in pools]
    shares = []
    for _ in range(devices):
        counts = np.minimum(random.multinomial(wanted, random.dirichlet(concentration)), sizes)
        # A small class may have fewer samples than were drawn of it: the largest classes with room replace them.
        while (missing := wanted - int(counts.sum())) > 0:
            roomiest = int(np.argmax(sizes - counts))
            counts[roomiest] += min(missing, int((sizes - counts)[roomiest]))
        shares.append([deck.draw(int(n), "its class") for deck, n in zip(decks, counts, strict=True) if n])
    return device_rows(shares, int(sizes.sum()))
