"""`file`: a network of one's own. What a file holds is told from its contents:

sites (CSV with a column `role`, or GeoJSON)       links by radio              site_file.py
a table of measured delays (device x gateway)      links as measured           delay_file.py
a trace, as `async-hfl network record` writes it   links as they were used     traces.py, trace_network.py
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import numpy as np

from async_hfl.core.arrays import Floats
from async_hfl.core.errors import DataError
from async_hfl.network.description import NetworkDescription
from async_hfl.network.files.cells import csv_lines, is_number, read_text
from async_hfl.network.files.delays import DelayMatrix, delay_matrix
from async_hfl.network.files.sites import OwnSites, sites_from_csv, sites_from_geojson
from async_hfl.network.files.traces import Trace, is_trace, read_trace
from async_hfl.network.positions import Positions
from async_hfl.network.radio.links import Air, LinkRules, best_links
from async_hfl.network.topologies.rated_network import USUAL_WIRE, RatedLinks, Wire, rated_network
from async_hfl.network.topologies.trace_network import devices_of

OwnNetwork: TypeAlias = OwnSites | DelayMatrix | Trace


def read_own_network(path: Path) -> OwnNetwork:
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
        f"{path}: its first line names {', '.join(header[:6])}; that is neither sites (role, longitude, latitude...), "
        "nor delays (device, then a column a gateway), nor a trace (at, what, ...)"
    )


def devices_in(own: OwnNetwork) -> int:
    if isinstance(own, OwnSites):
        return len(own.devices)
    if isinstance(own, DelayMatrix):
        return len(own.seconds)
    return len(devices_of(own))


def check_devices(own: OwnNetwork, devices: int) -> None:
    there = devices_in(own)
    if not 1 <= devices <= there:
        raise DataError(
            f"{own.path}: has {there} devices; {devices} were asked for (--set task.devices={there}, or add sites)"
        )


def network_of_sites(
    own: OwnSites,
    devices: int,
    model_bytes: int,
    seed: int,
    air: Air,
    compute: Callable[[int], Floats],
    rules: LinkRules | None = None,
    wire: Wire = USUAL_WIRE,
) -> NetworkDescription:
    """The first `devices` of the file's devices, all its gateways. A device without a link is there and takes no part;
    that is told."""
    check_devices(own, devices)
    rules = rules or LinkRules()
    there = own.devices.of(slice(devices))
    linked = best_links(there, own.gateways, air, rules, seed)
    lonely = np.setdiff1d(np.arange(devices), linked.device)
    if len(lonely) == devices:
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
    links = RatedLinks(linked.device, linked.gateway, linked.download_rate, linked.upload_rate)
    seconds = compute(devices) if own.compute is None else own.compute[:devices]
    network = rated_network("file", devices, len(own.gateways), links, seconds, model_bytes, wire, positions, own.notes)
    if len(lonely) == 0:
        return network
    others = f" (and {len(lonely) - 1} more)" if len(lonely) > 1 else ""
    told = (
        f"{own.device_names[lonely[0]]}{others} has no link and takes no part: {_nearest(own, int(lonely[0]))}. "
        "A higher antenna (height_m), other radios (radio.*), slower links (network.least_rate), one more gateway help"
    )
    return replace(network, notes=(*own.notes, told), warnings=(told,))


def _nearest(own: OwnSites, device: int) -> str:
    """Which gateway is nearest, in words."""
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
    wire: Wire = USUAL_WIRE,
) -> NetworkDescription:
    """`own` is both ways unless `downloads` is given. Times were measured with `measured_bytes` (None: with the model
    of this run); a bigger model takes longer in proportion."""
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
    return rated_network(
        "file",
        devices,
        upload.shape[1],
        links,
        seconds,
        model_bytes,
        Wire(latency, wire.backhaul_rate, wire.backhaul_latency),
        notes=(note,),
    )


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
