"""The map of a run and the changes of its association over time."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from async_hfl.assembly.runs.shown_network import ShownNetwork, network_of_run
from async_hfl.core.arrays import Ints
from async_hfl.core.errors import UserError
from async_hfl.reports.data.journal_columns import Columns
from async_hfl.reports.data.network_view import network_view
from async_hfl.reports.figures.colours import gateway_colours
from async_hfl.reports.pages.network_page import network_data
from async_hfl.reports.tables.run_names import is_deployed

MOST_STEPS = 120
_MOST_LINKS = 20_000
_UNUSED = ("curves", "table", "line", "name")


@dataclass(frozen=True, slots=True)
class RunNetwork:
    """The network of a run as far as it is known: the files of a user's network may be gone."""

    shown: ShownNetwork | None
    why: str = ""
    """Why it is not known."""


def network_of(manifest: dict[str, Any]) -> RunNetwork:
    if is_deployed(manifest):
        return RunNetwork(None, "No map: the places of deployed nodes are not known.")
    try:
        return RunNetwork(network_of_run(manifest, ""))
    except (UserError, OSError) as error:
        return RunNetwork(None, f"No map: the network of the run cannot be rebuilt ({error}).")


def node_names(manifest: dict[str, Any], network: RunNetwork, columns: Columns) -> dict[str, dict[int, str]]:
    """Return the names of the nodes that have one, by kind and number: those of sites, or of deployed nodes."""
    places = None if network.shown is None else network.shown.network.positions
    devices = manifest.get("device_names") or (() if places is None else places.device_names)
    gateways = manifest.get("gateway_names") or (() if places is None else places.gateway_names)
    seen = set(columns.jobs.device.tolist())
    return {
        "device": {number: name for number, name in enumerate(devices) if name and number in seen},
        "gateway": {number: name for number, name in enumerate(gateways) if name},
    }


def able_devices(manifest: dict[str, Any], network: RunNetwork) -> Ints:
    """Return the devices that can take part, because they have a link; all of them if the links are not known."""
    if network.shown is None:
        return np.arange(manifest["devices"])
    return np.unique(network.shown.network.links.link_device).astype(np.int64)


def colours_of(manifest: dict[str, Any], network: RunNetwork) -> tuple[str, ...]:
    """Return the colours of the gateways, as on the map if there is one."""
    places = None if network.shown is None else network.shown.network.positions
    nowhere = np.zeros(manifest["gateways"])
    return gateway_colours(*((nowhere, nowhere) if places is None else (places.gateway_x, places.gateway_y)))


def map_data(network: RunNetwork, columns: Columns) -> dict[str, Any]:
    """Return the data of the map, or `why` there is none."""
    shown = network.shown
    if shown is None:
        return {"why": network.why}
    view = network_view(shown.network, shown.model_bytes, shown.seed)
    data = {key: value for key, value in network_data(view).items() if key not in _UNUSED}
    if len(data["link_device"]) > _MOST_LINKS:
        for key in ("link_device", "link_gateway", "link_seconds", "link_class"):
            data[key] = []
    return {**data, "steps": association_steps(view.drawn.tolist(), shown.network.links.devices, columns)}


def association_steps(drawn: list[int], devices: int, columns: Columns) -> list[dict[str, Any]]:
    """Return the changes made by each solution as [index of the drawn device, gateway].

    If there are more than MOST_STEPS solutions, several are combined into one step.
    """
    row = np.full(devices, -1, np.int64)
    row[drawn] = np.arange(len(drawn))
    found = columns.associations
    edges = np.unique(np.linspace(0, len(found), min(len(found), MOST_STEPS) + 1).astype(np.int64)).tolist()
    now = np.full(devices, -1, np.int64)
    steps = []
    for low, high in pairwise(edges):
        before = now.copy()
        moved = 0
        for one in found[low:high]:
            for device, gateway in one["moved"]:
                now[device] = gateway
            moved += len(one["moved"])
        changed = np.flatnonzero((now != before) & (row >= 0))
        steps.append(
            {
                "at": found[high - 1]["at"],
                "solved": high,
                "moved": moved,
                "without": int((now < 0).sum()),
                "load": np.bincount(now[now >= 0]).tolist(),
                "changed": [[int(row[device]), int(now[device])] for device in changed.tolist()],
            }
        )
    return steps
