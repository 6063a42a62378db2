"""Who owns which samples: the training set dealt over the devices, unevenly on purpose.

"Two classes a device" is the pathological non-iid partition of McMahan et al. (AISTATS 2017, section 3). Class slots
are dealt round-robin from shuffled decks, so that every class has nearly the same number of owners, and no class is
without one.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from async_hfl.core.errors import DataError
from async_hfl.core.randomness import stream

Rows: TypeAlias = npt.NDArray[np.int64]


def deal_by_class(
    targets: npt.NDArray[np.integer[Any]], devices: int, seed: int, *, classes: int, classes_per_device: int = 2
) -> tuple[Rows, ...]:
    """The rows of each device, in ascending order: every row has one owner, every class at least one.

    A class's samples are spread evenly over its owners, so devices hold nearly equally many.
    """
    _check(devices, classes, classes_per_device)
    random = stream(seed, "partition")
    owners = _owners(devices, classes, classes_per_device, random)
    shares: list[list[Rows]] = [[] for _ in range(devices)]
    for label in range(classes):
        rows = random.permutation(np.flatnonzero(targets == label))
        for device, share in zip(owners[label], np.array_split(rows, len(owners[label])), strict=True):
            shares[device].append(share)
    dealt = tuple(np.sort(np.concatenate(parts)) for parts in shares)
    empty = sum(1 for rows in dealt if len(rows) == 0)
    if empty:
        raise DataError(
            f"{empty} of {devices} devices got no sample: {len(targets)} training samples are too few for so many "
            f"devices; use fewer devices"
        )
    return dealt


def _check(devices: int, classes: int, classes_per_device: int) -> None:
    if devices < 1:
        raise DataError(f"the training set cannot be dealt over {devices} devices; use at least 1")
    if not 1 <= classes_per_device <= classes:
        raise DataError(f"a device cannot hold {classes_per_device} of {classes} classes")
    if devices * classes_per_device < classes:
        least = -(-classes // classes_per_device)
        raise DataError(
            f"{devices} devices with {classes_per_device} classes each cannot hold all {classes} classes; "
            f"use at least {least} devices"
        )


def _owners(devices: int, classes: int, classes_per_device: int, random: np.random.Generator) -> list[list[int]]:
    """Devices by class. A fresh deck whenever one runs out pairs the classes anew."""
    owners: list[list[int]] = [[] for _ in range(classes)]
    deck: list[int] = []
    for device in range(devices):
        held: list[int] = []
        while len(held) < classes_per_device:
            if not deck:
                shuffled = [int(label) for label in random.permutation(classes)]
                # What this device already holds comes last, so that no device is dealt a class twice.
                deck = [label for label in shuffled if label not in held] + [x for x in shuffled if x in held]
            held.append(deck.pop(0))
        for label in held:
            owners[label].append(device)
    return owners
