"""`file`: a network read from the user's file. The kind of file is recognised from its contents:

sites (CSV with a column `role`, or GeoJSON)       links by radio              files/sites.py
a table of measured delays (device x gateway)      links as measured           files/delays.py
a trace, as `async-hfl network record` writes it   links as they were used     files/traces.py, trace_network.py
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import numpy as np

from async_hfl.core.arrays import Floats
from async_hfl.core.errors import DataError, SettingsError
from async_hfl.network.delays.rates import RatedLinks
from async_hfl.network.description import NetworkDescription
from async_hfl.network.files.cells import csv_lines, is_number, read_text
from async_hfl.network.files.delays import DelayMatrix, delay_matrix
from async_hfl.network.files.sites import UserSites, sites_from_csv, sites_from_geojson
from async_hfl.network.files.traces import Trace, is_trace, read_trace
from async_hfl.network.positions import Positions
from async_hfl.network.radio.links import best_links
from async_hfl.network.topologies.rated_network import DEFAULT_WIRE, Wire, rated_network
from async_hfl.network.topologies.request import RADIO_SETTINGS, WIRE_SETTINGS, NetworkEntry, NetworkRequest
from async_hfl.network.topologies.trace_network import devices_of, trace_network

NetworkFile: TypeAlias = UserSites | DelayMatrix | Trace


def read_network_file(path: Path) -> NetworkFile:
    text = read_text(path)
    if path.suffix in (".geojson", ".json") or text.lstrip().startswith("{"):
        return sites_from_geojson(path, text)
    header, _ = csv_lines(path, text)
    if is_trace(header):
        return read_trace(path, text)
    if "role" in header or {"longitude", "latitude", "x_m", "y_m"} & set(header):
        return sites_from_csv(path, text)
    if header[0] == "device" or all(is_number(cell) for cell in header):
        return delay_matrix(path, text)
    raise DataError(
        f"{path}: the columns in its first line, {', '.join(header[:6])}, are neither sites (role, longitude, "
        "latitude...), nor delays (device, then one column per gateway), nor a trace (at, what, ...)"
    )


def devices_in(own: NetworkFile) -> int:
    if isinstance(own, UserSites):
        return len(own.devices)
    if isinstance(own, DelayMatrix):
        return len(own.seconds)
    return len(devices_of(own))


def check_devices(own: NetworkFile, devices: int) -> None:
    there = devices_in(own)
    if not 1 <= devices <= there:
        raise DataError(
            f"{own.path}: has {there} devices; {devices} were asked for (--set task.devices={there}, or add sites)"
        )


def network_of_sites(own: UserSites, request: NetworkRequest) -> NetworkDescription:
    """Build a network from the first devices of the file and all its gateways.

    A device without a link stays in the network but takes no part; a note and a warning say so.
    """
    devices, rules = request.devices, request.link_rules
    check_devices(own, devices)
    there = own.devices.take(slice(devices))
    linked = best_links(there, own.gateways, request.make_air(), rules, request.seed)
    isolated = np.setdiff1d(np.arange(devices), linked.device)
    if len(isolated) == devices:
        raise DataError(
            f"{own.path}: no device has a link to any gateway; {_nearest(own, 0)}. Add a gateway, raise antennas "
            f"(height_m), say what radios and roofs are like (radio.*), or allow slower links "
            f"(network.least_rate={rules.least_rate:g})"
        )
    positions = Positions(
        there.x,
        there.y,
        own.gateways.x,
        own.gateways.y,
        estimated=False,
        frame=own.frame,
        device_height=there.height,
        gateway_height=own.gateways.height,
        device_names=own.device_names[:devices],
        gateway_names=own.gateway_names,
    )
    seconds = request.compute(devices) if own.compute is None else own.compute[:devices]
    gateways, size = len(own.gateways), request.model_bytes
    network = rated_network("file", devices, gateways, linked, seconds, size, request.wire, positions, own.notes)
    if len(isolated) == 0:
        return network
    others = f" (and {len(isolated) - 1} more)" if len(isolated) > 1 else ""
    warning = (
        f"{own.device_names[isolated[0]]}{others} has no link and takes no part: {_nearest(own, int(isolated[0]))}. "
        "Remedies: higher antennas (height_m), other radios (radio.*), slower links (network.least_rate), more gateways"
    )
    return replace(network, notes=(*own.notes, warning), warnings=(warning,))


def _nearest(own: UserSites, device: int) -> str:
    """Return a phrase that names the gateway nearest to a device."""
    apart = np.hypot(own.gateways.x - own.devices.x[device], own.gateways.y - own.devices.y[device])
    near = int(apart.argmin())
    return f"{own.device_lines[device]}: the nearest gateway, {own.gateway_names[near]}, is {apart[near]:,.0f} m away"


def network_of_delays(
    own: DelayMatrix,
    devices: int,
    model_bytes: int,
    compute: Callable[[int], Floats],
    measured_bytes: int | None = None,
    downloads: DelayMatrix | None = None,
    wire: Wire = DEFAULT_WIRE,
) -> NetworkDescription:
    """Build a network from measured delays.

    `own` holds for both directions unless `downloads` is given. The delays were measured with `measured_bytes` (None:
    the size of this run's model); the time of a larger model grows in proportion.
    """
    check_devices(own, devices)
    upload = own.seconds[:devices]
    download = upload if downloads is None else _matching(own, downloads)[:devices]
    device, gateway = np.nonzero(upload > 0)
    down, up = download[device, gateway], upload[device, gateway]
    latency = min(wire.link_latency, float(min(down.min(), up.min())) / 2)
    size = model_bytes if measured_bytes is None else measured_bytes
    links = RatedLinks(device, gateway, size / (down - latency), size / (up - latency))
    seconds = compute(devices) if own.compute is None else own.compute[:devices]
    note = f"delays measured in {own.path}" + ("" if measured_bytes is None else f" with {measured_bytes:,} bytes")
    wire = replace(wire, link_latency=latency)
    return rated_network("file", devices, upload.shape[1], links, seconds, model_bytes, wire, notes=(note,))


def _matching(own: DelayMatrix, downloads: DelayMatrix) -> Floats:
    for what, one, other in (
        ("devices", own.device_names, downloads.device_names),
        ("gateways", own.gateway_names, downloads.gateway_names),
    ):
        if one != other:
            raise DataError(f"{downloads.path}: its {what} are not those of {own.path}, in the same order")
    differ = np.argwhere((own.seconds > 0) != (downloads.seconds > 0))
    if len(differ):
        device, gateway = (int(part) for part in differ[0])
        raise DataError(
            f"{downloads.path}: {own.device_names[device]} and {own.gateway_names[gateway]} have a delay in one of the "
            f"two files only ({own.path}); a link needs both"
        )
    return downloads.seconds


def _build(request: NetworkRequest) -> NetworkDescription:
    settings, devices, model_bytes = request.settings, request.devices, request.model_bytes
    if not settings["path"]:
        raise SettingsError(
            "network `file`: give its path as --network FILE, or as network.path (sites, delays or a trace)"
        )
    own = read_network_file(Path(settings["path"]))
    if isinstance(own, UserSites):
        return network_of_sites(own, request)
    if isinstance(own, Trace):
        check_devices(own, devices)
        return trace_network(own, devices, model_bytes, request.seed, settings["replay"], request.wire)
    downloads = read_network_file(Path(settings["download_path"])) if settings["download_path"] else None
    if downloads is not None and not isinstance(downloads, DelayMatrix):
        raise SettingsError(
            f"network.download_path = {settings['download_path']}: not a table of delays, as {own.path} is"
        )
    measured = None if settings["measured_bytes"] == "auto" else settings["measured_bytes"]
    return network_of_delays(own, devices, model_bytes, request.compute, measured, downloads, request.wire)


def file_kind(path: str) -> str:
    """Return the name in the registry for the kind of network that a file holds."""
    if not path:
        return "file"
    own = read_network_file(Path(path))
    kinds = {UserSites: "file (sites)", DelayMatrix: "file (delays)", Trace: "file (trace)"}
    return kinds[type(own)]


_DELAYS = frozenset({"download_path", "measured_bytes"})
NETWORKS = {
    "file": NetworkEntry(_build, frozenset({"path", "replay"}) | _DELAYS | RADIO_SETTINGS, by_radio=True),
    "file (sites)": NetworkEntry(_build, frozenset({"path"}) | RADIO_SETTINGS, by_radio=True),
    "file (delays)": NetworkEntry(_build, frozenset({"path", "fleet"}) | _DELAYS | WIRE_SETTINGS),
    "file (trace)": NetworkEntry(_build, frozenset({"path", "replay", "backhaul_rate", "backhaul_latency"})),
}
"""`file` by itself stands for a network whose path is not known yet: it may read what any of the three kinds reads."""
