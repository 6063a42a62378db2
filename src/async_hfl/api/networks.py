"""A network as an object that can be looked at: its map, its links as a data frame, its delays."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from rich.text import Text

from async_hfl.api.arguments import Network, named
from async_hfl.api.stored_run import Run
from async_hfl.assembly.settings.overrides import Overrides
from async_hfl.reports.data.network_view import NetworkView
from async_hfl.reports.export.optional_imports import needed
from async_hfl.reports.figures.network import network_figure
from async_hfl.reports.terminal.network_show import draw_both, find_network, network_lines
from async_hfl.reports.terminal.notebook import as_html


@dataclass(frozen=True, slots=True, repr=False)
class ShownNetwork:
    """A network for display. In a notebook it prints its summary; `figure()` is its map."""

    view: NetworkView
    short_name: str
    """For file names."""

    def __repr__(self) -> str:
        view = self.view
        return f"<Network {view.name}: {view.devices} devices, {len(view.gateway_x)} gateways, {view.links} links>"

    def _repr_html_(self) -> str:
        return as_html(*(Text(line) for line in network_lines(self.view)))

    def figure(self) -> Any:
        """Return the map, the links and the delays as a figure of matplotlib (needs async-hfl[plots])."""
        return network_figure(self.view)

    def frame(self, table: Literal["links", "devices", "gateways"] = "links") -> Any:
        """Return links, devices or gateways as a pandas data frame (needs async-hfl[frames]).

        Times are in seconds, coordinates in metres; of a large network only the devices that a map shows are included.
        """
        pandas, view = needed("pandas", "frames", "a data frame"), self.view
        if table == "links":
            columns = {"device": view.drawn[view.link_device], "gateway": view.link_gateway}
            return pandas.DataFrame({**columns, "transfers_s": view.link_seconds})
        if table == "devices":
            names = {"name": list(view.device_names)} if view.device_names else {}
            places = {"x_m": view.device_x, "y_m": view.device_y}
            own = {"gateway": view.gateway_of, "compute_s": view.compute}
            return pandas.DataFrame({"device": view.drawn, **names, **places, **own})
        names = {"name": list(view.gateway_names)} if view.gateway_names else {}
        places = {"x_m": view.gateway_x, "y_m": view.gateway_y}
        return pandas.DataFrame({"gateway": np.arange(len(view.gateway_x)), **names, **places, "devices": view.load})

    def save(self, out: str | Path = ".") -> list[Path]:
        """Write the page, and with matplotlib the picture, to a directory; return the files."""
        page, picture = draw_both(self.view, Path(out), self.short_name)
        return [page] if picture is None else [page, picture]


def show_network(
    name: Network | Path | Run,
    *,
    devices: int | None = None,
    gateways: int | None = None,
    seed: int | None = None,
    overrides: Overrides = (),
    model_bytes: int | None = None,
) -> ShownNetwork:
    """Return a network to look at: the command `async-hfl network show`.

    `name` is one of `networks()`, a file, a function, or a run, whose last association is then shown.

    >>> async_hfl.show_network("uniform", devices=20)
    <Network uniform: 20 devices, 6 gateways, 60 links>
    """
    path = name.path if isinstance(name, Run) else name
    found = str(path) if isinstance(path, Path) else named(network=path).network
    given = named(overrides=overrides).overrides
    view, short_name = find_network(
        found or "",
        devices=devices,
        gateways=gateways,
        seed=seed,
        overrides=given,
        model_bytes=model_bytes,
    )
    return ShownNetwork(view, short_name)
