"""Building of a run's fleet from `network.fleet`: the compute time and power of each device."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_args

from async_hfl.assembly.settings.schema import Settings
from async_hfl.core.errors import SettingsError
from async_hfl.core.randomness import stream
from async_hfl.network.fleet import (
    CPU_CLASSES,
    MIXED_SIGMA,
    Board,
    DeviceProfile,
    Fleet,
    Measured,
    authors_compute_seconds,
    cpu_class,
    raspberry_pi,
    read_profiles,
)

FLEETS = ("raspberry-pi", *get_args(Board), "mixed", "lognormal")
_MEASURED_SAMPLES = 600
"""Samples per device in the measurements of the boards; assumed if the task does not fix the number."""


def build_fleet(settings: Settings, devices: int, seed: int) -> Fleet:
    """Draw each device's profile: in a mixed fleet by the shares of the CPU classes, else uniformly."""
    name = settings.network.fleet
    profiles = _profiles(settings)
    draw = stream(seed, "network", "fleet")
    if name == "mixed":
        kinds = draw.choice(len(profiles), devices, p=[kind.share for kind in CPU_CLASSES.values()])
        factors = draw.lognormal(-0.5 * MIXED_SIGMA**2, MIXED_SIGMA, devices)
        return Fleet.of(profiles, kinds.tolist()).slowed(factors)
    fleet = Fleet.of(profiles, draw.integers(0, len(profiles), devices).tolist())
    if name == "lognormal":
        fleet = replace(fleet, compute_seconds=authors_compute_seconds(devices, seed))
    return fleet


def _profiles(settings: Settings) -> list[DeviceProfile]:
    name = settings.network.fleet
    if name.endswith(".csv"):
        return read_profiles(Path(name))
    if name not in FLEETS:
        raise SettingsError(f"network.fleet = {name!r}: there is {', '.join(FLEETS)}, or a CSV file of profiles")
    boards: dict[str, DeviceProfile] = {board: _board(settings, board) for board in get_args(Board)}
    if name == "raspberry-pi":
        return list(boards.values())
    if name == "mixed":
        return [cpu_class(kind, boards["rpi4"].compute_seconds) for kind in CPU_CLASSES]
    return [boards["rpi4" if name == "lognormal" else name]]


def _board(settings: Settings, board: Board) -> DeviceProfile:
    """Return the profile of a board that trains the task, or MNIST if the task was not measured."""
    task = settings.task
    measured: Measured = task.name if task.name in get_args(Measured) else "mnist"  # type: ignore[assignment]
    samples = _MEASURED_SAMPLES if task.samples_per_device == "all" else task.samples_per_device
    return raspberry_pi(board, measured, settings.device.epochs, samples)
