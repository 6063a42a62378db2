"""Device profiles: the time of a local training, and the power drawn by computing and by the radio.

Raspberry Pi 4 and 400 were measured for ns3-fl (Ekaireb et al., WNS3 2022): time and power of local training are
linear in the work, with coefficients that depend on the model. With E epochs over S samples of a model of `macs`
multiply-accumulate operations, the work is

    W = macs (100 + 6 E) S / 1.5e9        (1.5 GHz is the clock of both boards)

seconds = A W + B and watts = C W + D. The measurements had S = 600 and a few epochs; far from there the linear fits are
not reliable, and a minimum keeps CIFAR-10's negative B from giving negative times.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np

from async_hfl.core.arrays import Floats
from async_hfl.core.errors import DataError, SettingsError
from async_hfl.core.randomness import stream
from async_hfl.network.files.cells import csv_table, read_text

Board = Literal["rpi4", "rpi400"]
Measured = Literal["mnist", "fashionmnist", "cifar10"]

_CLOCK_HZ = 1.5e9
_LEAST_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Power:
    """Watts drawn while computing, sending, receiving and waiting."""

    compute_w: float
    transmit_w: float
    receive_w: float
    idle_w: float = 0.0

    def __post_init__(self) -> None:
        for name in ("compute_w", "transmit_w", "receive_w", "idle_w"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0.0):
                raise SettingsError(f"device profile: {name} = {value} is not a number of watts, 0 or more")


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """One kind of device: its time and power for one local training."""

    name: str
    compute_seconds: float
    power: Power

    def __post_init__(self) -> None:
        if not (math.isfinite(self.compute_seconds) and self.compute_seconds > 0.0):
            raise SettingsError(
                f"device profile {self.name}: compute_seconds = {self.compute_seconds} is not a positive number"
            )


@dataclass(frozen=True, slots=True)
class WorkModel:
    """Linear fits to the measurements of one board training one model."""

    macs: float
    seconds_per_work: float
    """A."""
    seconds: float
    """B."""
    watts_per_work: float
    """C."""
    watts: float
    """D."""
    transmit_w: float


RECEIVE_SHARE = 0.9
"""Power while receiving relative to sending. It was not measured. Most of it is drawn by the board."""
IDLE_W = {"rpi4": 2.7, "rpi400": 2.6}
"""Watts of an idle board with Wi-Fi on, as stated by makers and reviewers; not from ns3-fl."""

_RPI: dict[tuple[Board, Measured], WorkModel] = {
    ("rpi4", "mnist"): WorkModel(229.3e6, 8.09e-4, 9.45, -1.32e-4, 6.49, 3.9422),
    ("rpi400", "mnist"): WorkModel(229.3e6, 3.32e-4, 16.6, -1.55e-4, 6.41, 3.8896),
    ("rpi4", "fashionmnist"): WorkModel(285.6896e6, 1.08e-3, 11.4, -1.04e-4, 6.40, 4.766),
    ("rpi400", "fashionmnist"): WorkModel(285.6896e6, 8.13e-4, 15.7, -1.27e-4, 6.40, 4.532),
    ("rpi4", "cifar10"): WorkModel(61.572e6, 0.0108, -4.43, -4.42e-4, 6.18, 4.397),
    ("rpi400", "cifar10"): WorkModel(61.572e6, 8.47e-3, 3.32, -5.65e-4, 6.31, 4.211),
}


def raspberry_pi(
    board: Board, measured: Measured = "mnist", epochs: int = 5, samples: int = 600, macs: float | None = None
) -> DeviceProfile:
    """Return the profile of a board that trains a model like the `measured` one. `macs` gives the size of another
    model."""
    if board not in get_args(Board) or measured not in get_args(Measured):
        raise SettingsError(
            f"device profile {board!r} for {measured!r}: choose from {', '.join(get_args(Board))} "
            f"for {', '.join(get_args(Measured))}"
        )
    if epochs < 1 or samples < 1 or (macs is not None and not (math.isfinite(macs) and macs > 0)):
        raise SettingsError(
            f"device profile {board}: {epochs} epochs over {samples} samples of a model of {macs} operations; "
            "all must be above 0"
        )
    line = _RPI[board, measured]
    work = (line.macs if macs is None else macs) * (100 + 6 * epochs) * samples / _CLOCK_HZ
    watts = line.watts_per_work * work + line.watts
    # The fitted power decreases with the work, but a computing board draws no less than a sending one.
    power = Power(max(watts, line.transmit_w), line.transmit_w, RECEIVE_SHARE * line.transmit_w, IDLE_W[board])
    seconds = max(line.seconds_per_work * work + line.seconds, _LEAST_SECONDS)
    return DeviceProfile(f"{board}-{measured}", seconds, power)


class CpuClass(NamedTuple):
    slower: float
    """Time relative to a Raspberry Pi 4."""
    share: float
    """Share of the devices of a mixed fleet."""
    power: Power


CPU_CLASSES: dict[str, CpuClass] = {
    "laptop": CpuClass(0.12, 0.10, Power(28.0, 12.0, 11.0, 8.0)),
    "phone": CpuClass(0.6, 0.20, Power(4.0, 1.3, 1.1, 0.4)),
    "rpi400": CpuClass(0.9, 0.25, Power(6.0, 4.2, 3.8, 2.6)),
    "rpi4": CpuClass(1.0, 0.25, Power(6.2, 4.4, 3.9, 2.7)),
    "rpi3": CpuClass(2.6, 0.15, Power(5.0, 3.0, 2.7, 1.9)),
    "rpi-zero": CpuClass(14.0, 0.05, Power(1.8, 1.4, 1.2, 0.7)),
}
"""A mixed fleet around the measured Raspberry Pi. Times, shares and powers are round estimates, not measurements. A few
classes are fast, most are alike, and a few are very slow, which gives rounds their long tail.
"""
MIXED_SIGMA = 0.5
"""Spread within one class (age, cooling, memory card, other load): each device has a log-normal factor of mean 1. The
paper's authors draw theirs with sigma 2 to 3, which spans five orders of magnitude.
"""


def cpu_class(name: str, reference_seconds: float) -> DeviceProfile:
    """Return the profile of a class, given the time that a Raspberry Pi 4 would take."""
    if name not in CPU_CLASSES:
        raise SettingsError(f"CPU class {name!r}: choose from {', '.join(CPU_CLASSES)}")
    slower, _, power = CPU_CLASSES[name]
    return DeviceProfile(name, slower * reference_seconds, power)


@dataclass(frozen=True, slots=True, eq=False)
class Fleet:
    """The profiles of all devices, one column per property."""

    compute_seconds: Floats
    compute_w: Floats
    transmit_w: Floats
    receive_w: Floats
    idle_w: Floats

    @classmethod
    def of(cls, profiles: Sequence[DeviceProfile], kinds: Sequence[int]) -> Fleet:
        """Build a fleet in which device i has the profile `profiles[kinds[i]]`."""
        power = [profile.power for profile in profiles]
        columns = (
            [profile.compute_seconds for profile in profiles],
            [watts.compute_w for watts in power],
            [watts.transmit_w for watts in power],
            [watts.receive_w for watts in power],
            [watts.idle_w for watts in power],
        )
        rows = np.asarray(kinds, np.int64)
        return cls(*(np.asarray(column, np.float64)[rows] for column in columns))

    def slowed(self, factor: Floats) -> Fleet:
        """Return the same devices with their compute times multiplied by `factor`."""
        return replace(self, compute_seconds=self.compute_seconds * factor)

    def energy_joules(self, compute_s: Floats, transmit_s: Floats, receive_s: Floats) -> Floats:
        """Return the energy that each device has used for its work, without idling."""
        joules: Floats = self.compute_w * compute_s + self.transmit_w * transmit_s + self.receive_w * receive_s
        return joules


def authors_compute_seconds(devices: int, seed: int, mean: float = 4.0, sigma: float = 3.0) -> Floats:
    """Draw min(lognormal(4, 3) + 30, 15000) seconds per device, as the paper's authors did."""
    drawn = stream(seed, "network", "compute").lognormal(mean, sigma, devices)
    seconds: Floats = np.minimum(drawn + 30.0, 15_000.0)
    return seconds


FILE_COLUMNS = ("name", "compute_s", "compute_w", "transmit_w", "receive_w", "idle_w")


def read_profiles(path: Path) -> list[DeviceProfile]:
    """Read a CSV with one row per profile: name, compute_s and, if known, the watts (0 for a missing column).

    Lines that begin with # are comments. An unknown column is an error, since it is probably misspelt.
    """
    header, lines = csv_table(path, read_text(path, "network.fleet names a CSV file of profiles"), FILE_COLUMNS[:2])
    unknown = [name for name in header if name not in FILE_COLUMNS]
    if unknown:
        raise DataError(f"{path}: unknown column {unknown[0]!r}; known are {', '.join(FILE_COLUMNS)}")
    if not lines:
        raise DataError(f"{path}: names columns but no profile")
    profiles = []
    for line in lines:
        seconds, *watts = (line.number(name) if name in header else 0.0 for name in FILE_COLUMNS[1:])
        try:
            profiles.append(DeviceProfile(line.text("name"), seconds, Power(*watts)))
        except SettingsError as error:
            raise DataError(f"{line.where}: {error}") from error
    return profiles
