"""A few classes per device: the pathological non-iid partition of McMahan et al. (AISTATS 2017, section 3).

`by_class` deals the classes in turn from shuffled lists, so every class has an owner and all have nearly equally many.
`pathological` lets each device choose by itself, as Li et al. (ICDE 2022) and Flower do: a class that no device chooses
stays unused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

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
    even_parts,
    labels_of,
)

ClassAssignment = Literal["random", "deterministic", "first-deterministic"]


def by_class(
    dataset: Dataset,
    devices: int,
    seed: int,
    *,
    num_classes_per_partition: int = 2,
    samples_per_device: SamplesPerDevice = "all",
) -> tuple[Rows, ...]:
    """Give every class nearly the same number of owners.

    "all": a class's samples are divided evenly over its owners, so devices hold nearly equal numbers and every row has
    one owner. A number: each device draws that many samples, evenly over its classes.
    """
    check_devices(devices)
    targets = labels_of(dataset, "by_class")
    present = np.unique(targets).tolist()
    _check_classes(num_classes_per_partition, len(present))
    if devices * num_classes_per_partition < len(present):
        least, most = -(-len(present) // num_classes_per_partition), -(-len(present) // devices)
        raise DataError(
            f"{devices} devices with {num_classes_per_partition} classes each cannot hold all {len(present)} classes; "
            f"use at least {least} devices, or {most} classes each (task.classes_per_device)"
        )
    random = stream(seed, "partition")
    held = _dealt_in_turn(devices, len(present), num_classes_per_partition, random)
    chosen = [[present[place] for place in places] for places in held]
    return _share_out(targets, chosen, samples_per_device, random)


def pathological(
    dataset: Dataset,
    devices: int,
    seed: int,
    *,
    num_classes_per_partition: int = 2,
    class_assignment_mode: ClassAssignment = "random",
    samples_per_device: SamplesPerDevice = "all",
) -> tuple[Rows, ...]:
    """Give each device exactly this many classes.

    `random`: each device draws its own. `deterministic`: device i has classes i, i + 1, ... (modulo their number).
    `first-deterministic`: the first is i, the others are drawn.
    """
    check_devices(devices)
    targets = labels_of(dataset, "pathological")
    present = np.unique(targets)
    _check_classes(num_classes_per_partition, len(present))
    random = stream(seed, "partition", "pathological")
    chosen = []
    for device in range(devices):
        if class_assignment_mode == "deterministic":
            places = (device + np.arange(num_classes_per_partition)) % len(present)
        elif class_assignment_mode == "first-deterministic":
            first = device % len(present)
            others = np.delete(np.arange(len(present)), first)
            drawn = random.choice(others, num_classes_per_partition - 1, replace=False)
            places = np.concatenate([[first], drawn])
        elif class_assignment_mode == "random":
            places = random.choice(len(present), num_classes_per_partition, replace=False)
        else:
            raise DataError(
                f"class_assignment_mode = {class_assignment_mode!r}: there is random, deterministic and "
                "first-deterministic"
            )
        chosen.append(present[places.astype(np.intp)].tolist())
    return _share_out(targets, chosen, samples_per_device, random)


def _check_classes(classes_per_device: int, classes: int) -> None:
    if not 1 <= classes_per_device <= classes:
        raise DataError(f"a device cannot hold {classes_per_device} of {classes} classes")


def _dealt_in_turn(devices: int, classes: int, classes_per_device: int, random: np.random.Generator) -> list[list[int]]:
    """Return the classes of each device. A new shuffle whenever the list runs out combines the classes differently."""
    dealt: list[list[int]] = []
    deck: list[int] = []
    for _ in range(devices):
        held: list[int] = []
        while len(held) < classes_per_device:
            if not deck:
                # Classes that this device already has come last, so that no device gets a class twice.
                deck = sorted(random.permutation(classes).tolist(), key=held.__contains__)
            held.append(deck.pop(0))
        dealt.append(held)
    return dealt


def _share_out(
    targets: npt.NDArray[np.integer[Any]],
    chosen: Sequence[Sequence[int]],
    samples_per_device: SamplesPerDevice,
    random: np.random.Generator,
) -> tuple[Rows, ...]:
    """Deal the samples of each class to the devices that chose it."""
    wanted = check_samples_per_device(samples_per_device)
    shares: list[list[Rows]] = [[] for _ in chosen]
    labels = sorted({label for held in chosen for label in held})
    if wanted is None:
        for label in labels:
            owners = [device for device, held in enumerate(chosen) if label in held]
            rows = random.permutation(np.flatnonzero(targets == label))
            for device, share in zip(owners, np.array_split(rows, len(owners)), strict=True):
                shares[device].append(share)
    else:
        decks = {label: Deck(np.flatnonzero(targets == label), random) for label in labels}
        for device, held in enumerate(chosen):
            for label, count in zip(held, even_parts(wanted, len(held)), strict=True):
                shares[device].append(decks[label].draw(count, f"class {label}"))
    return device_rows(shares, len(targets))
