"""A network as one self-contained HTML file: an interactive map and the distribution of delays.

The page draws the map itself, in Web Mercator for geographic positions, and loads no tiles, so it works offline.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from async_hfl.core.arrays import Floats
from async_hfl.reports.data.curves import significant, tail_distribution
from async_hfl.reports.data.network_view import NetworkView
from async_hfl.reports.figures.colours import QUALITY, gateway_colours
from async_hfl.reports.pages.page import asset, encoded, write_template
from async_hfl.reports.tables.formatting import size

_CHANCES = ((0.0, "min"), (0.5, "median"), (0.9, "90 %"), (0.99, "99 %"), (1.0, "max"))


def write_network_page(view: NetworkView, path: Path) -> None:
    write_template(path, "network.html", {"MAP": asset("map.js"), "DATA": encoded(network_data(view))})


def network_data(view: NetworkView) -> dict[str, Any]:
    device_x, device_y = _coordinates(view, view.device_x, view.device_y)
    gateway_x, gateway_y = _coordinates(view, view.gateway_x, view.gateway_y)
    both = [("this", view.delays), *([("reference", view.reference)] if view.reference is not None else [])]
    parts = [
        (who, delays.name, what, values)
        for who, delays in both
        for what, values in (("whole round", delays.rounds), ("transfers alone", delays.transfers))
    ]
    return {
        "name": view.name,
        "line": view.headline,
        "degrees": view.frame is not None,
        "schematic": view.schematic,
        "model": size(view.model_bytes),
        "drawn": view.drawn.tolist(),
        "device_x": device_x,
        "device_y": device_y,
        "gateway_x": gateway_x,
        "gateway_y": gateway_y,
        "device_height": None if view.device_height is None else _rounded(view.device_height, 1),
        "gateway_height": None if view.gateway_height is None else _rounded(view.gateway_height, 1),
        "device_names": list(view.device_names),
        "gateway_names": list(view.gateway_names),
        "gateway_of": view.gateway_of.tolist(),
        "load": view.load.tolist(),
        "link_device": view.link_device.tolist(),
        "link_gateway": view.link_gateway.tolist(),
        "link_seconds": significant(view.link_seconds, 4),
        "link_class": view.link_class.tolist(),
        "class_edges": significant(view.class_edges, 4),
        "compute": significant(view.compute, 4),
        "colours": list(gateway_colours(view.gateway_x, view.gateway_y)),
        "quality": list(QUALITY),
        "outline": [np.stack((x, y), axis=1).round(4).tolist() for x, y in view.outline],
        "curves": [{"who": who, "name": name, "part": what, **_curve(values)} for who, name, what, values in parts],
        "table": {
            "chances": [text for _, text in _CHANCES],
            "rows": [
                {
                    "network": name,
                    "part": what,
                    "values": np.quantile(values, [chance for chance, _ in _CHANCES]).tolist(),
                }
                for _, name, what, values in parts
            ],
        },
        "notes": list(view.notes),
        "credit": view.credit,
    }


def _coordinates(view: NetworkView, x: Floats, y: Floats) -> tuple[list[float], list[float]]:
    """Return degrees if the network has geographic positions, else metres; rounded to about 0.1 m."""
    if view.frame is None:
        return _rounded(x, 2 if view.schematic else 1), _rounded(y, 2 if view.schematic else 1)
    longitude, latitude = view.frame.to_degrees(x, y)
    return _rounded(longitude, 6), _rounded(latitude, 6)


def _curve(values: Floats) -> dict[str, list[float | None]]:
    seconds, share = tail_distribution(values)
    return {"seconds": significant(seconds, 4), "share": significant(share, 4)}


def _rounded(values: Floats, digits: int) -> list[float]:
    return np.round(values, digits).tolist()  # type: ignore[no-any-return]
