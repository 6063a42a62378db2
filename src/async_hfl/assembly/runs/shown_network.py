"""Networks for display, without a run: by name, from a user's file, or from the manifest of an existing run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from async_hfl.assembly.build.networks import build_network
from async_hfl.assembly.settings.loading import available, compose, settings_from
from async_hfl.assembly.user_code.loading import is_user_code
from async_hfl.assembly.user_code.loading import short_name as short
from async_hfl.core.arrays import Ints
from async_hfl.core.errors import SettingsError
from async_hfl.network.description import NetworkDescription

PAPER_MODEL_BYTES = 600_000
"""The model size in the authors' network simulation, so that delays can be compared with theirs."""
PAPER_DEVICES = 184


@dataclass(frozen=True, slots=True, eq=False)
class ShownNetwork:
    """A network, with the model size and the seed that it was built for."""

    network: NetworkDescription
    model_bytes: int
    seed: int
    short_name: str
    """For file names."""


def network_by_name(
    name: str,
    *,
    devices: int | None = None,
    gateways: int | None = None,
    seed: int | None = None,
    overrides: Sequence[str] = (),
    model_bytes: int = PAPER_MODEL_BYTES,
) -> ShownNetwork:
    """Build a network for display. `name` is one that `async-hfl networks` lists, or a file."""
    if model_bytes < 1:
        raise SettingsError(f"model size {model_bytes}: must be at least 1 byte")
    given = list(overrides)
    short_name = name
    if is_user_code(name):
        short_name = short(name)
    elif name not in available("network") and Path(name).is_file():
        given.append(f"network.path='{name}'")
        name, short_name = "file", Path(name).stem
    if gateways is not None:
        given.append(f"network.gateways={gateways}")
    if devices is None and name != "file" and not any(text.startswith("task.devices=") for text in given):
        devices = PAPER_DEVICES
    if devices is not None:
        given.append(f"task.devices={devices}")
    composed = compose(task="null", network=name, seed=seed, overrides=given)
    chosen = composed.choice.seed
    return ShownNetwork(build_network(composed.settings, model_bytes, chosen), model_bytes, chosen, short_name)


def network_of_run(manifest: Mapping[str, Any], short_name: str) -> ShownNetwork:
    settings, size, seed = settings_from(manifest["settings"]), manifest["model_bytes"], manifest["seed"]
    return ShownNetwork(build_network(settings, size, seed), size, seed, short_name)


def last_association(devices: int, records: Iterable[Mapping[str, Any]]) -> Ints | None:
    """Return the gateway of each device after these association records; None if there are none."""
    gateway_of = np.full(devices, -1, np.int64)
    solved = False
    for record in records:
        solved = True
        for device, gateway in record["moved"]:
            gateway_of[device] = gateway
    return gateway_of if solved else None
