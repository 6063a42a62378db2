"""The map of a run and the changes of its association over time."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from async_hfl.assembly.runs.shown_network import network_of_run
from async_hfl.core.errors import UserError
from async_hfl.reports.data.journal_columns import Columns
from async_hfl.reports.data.network_view import network_view
from async_hfl.reports.pages.network_page import network_data

MOST_STEPS = 120
_MOST_LINKS = 20_000
_UNUSED = ("curves", "table", "line", "name")


def map_data(manifest: dict[str, Any], columns: Columns) -> dict[str, Any]:
    """Return the data of the map, or `why` there is none: the files of a user's network may be gone."""
    try:
        shown = network_of_run(manifest, "")
    except (UserError, KeyError, OSError) as error:
        return {"why": f"No map: the network of the run cannot be rebuilt ({error})."}
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
