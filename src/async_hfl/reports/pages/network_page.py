"""A network as one HTML file that needs nothing from anywhere: a map to move about in, and the delays beside it.

On Earth the map is in Web Mercator, drawn by the page itself; there are no tiles, so it works on a train.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from async_hfl.core.arrays import Floats
from async_hfl.reports.data.network_view import NetworkView
from async_hfl.reports.figures.delays import longer_than
from async_hfl.reports.figures.map_colours import QUALITY, gateway_colours
from async_hfl.reports.pages.page import encoded, part, write_parts
from async_hfl.reports.tables.units import size

_CHANCES = ((0.0, "least"), (0.5, "median"), (0.9, "90 %"), (0.99, "99 %"), (1.0, "most"))


def write_network_page(view: NetworkView, path: Path) -> None:
    write_parts(path, "network.html", {"MAP": part("map.js"), "DATA": encoded(network_data(view))})


def network_data(view: NetworkView) -> dict[str, Any]:
    notes = list(view.notes)
    if view.schematic:
        notes.insert(0, "a drawing, not a map: this network has no places")
    if view.estimated:
        notes.insert(0, "where the gateways stand is not published: their places are estimated")
    device_x, device_y = _coordinates(view, view.device_x, view.device_y)
    gateway_x, gateway_y = _coordinates(view, view.gateway_x, view.gateway_y)
    both = [("this", view.delays), *([("beside", view.beside)] if view.beside is not None else [])]
    parts = [
        (who, delays.name, what, values)
        for who, delays in both
        for what, values in (("whole round", delays.rounds), ("transfers alone", delays.transfers))
    ]
    return {
        "name": view.name,
        "line": f"{view.devices:,} devices, {len(view.gateway_x):,} gateways, {view.links:,} links; {view.association}",
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
        "link_seconds": _significant(view.link_seconds),
        "link_class": view.link_class.tolist(),
        "class_edges": _significant(np.array(view.class_edges)),
        "compute": _significant(view.compute),
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
        "notes": notes,
        "credit": "; ".join(
            text
            for text in (view.credit, "outline: New York City Department of City Planning" if view.outline else "")
            if text
        ),
    }


def _coordinates(view: NetworkView, x: Floats, y: Floats) -> tuple[list[float], list[float]]:
    """Degrees where there are any, else metres; to a tenth of a metre."""
    if view.frame is None:
        return _rounded(x, 2 if view.schematic else 1), _rounded(y, 2 if view.schematic else 1)
    longitude, latitude = view.frame.to_degrees(x, y)
    return _rounded(longitude, 6), _rounded(latitude, 6)


def _curve(values: Floats) -> dict[str, list[float]]:
    seconds, share = longer_than(values)
    return {"seconds": _significant(seconds), "share": _significant(share)}


def _rounded(values: Floats, digits: int) -> list[float]:
    return np.round(values, digits).tolist()  # type: ignore[no-any-return]


def _significant(values: Floats) -> list[float]:
    return [float(f"{value:.4g}") for value in values.tolist()]
