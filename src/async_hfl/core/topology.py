"""Feasible links J and association I, sparse and validated.

Links are stored as parallel arrays sorted by (device, gateway) with the first row of each device (compressed sparse
rows): 100,000 devices with 10 links each take 30 MB instead of a 100,000 x 1,000 matrix.
"""

from __future__ import annotations

import numpy as np

from async_hfl.core.arrays import Bools, Floats, Ints
from async_hfl.core.errors import DataError
from async_hfl.core.serialization import value


@value
class FeasibleLinks:
    """J, with the expected round latency of each link before any measurement."""

    devices: int
    gateways: int
    link_device: Ints
    link_gateway: Ints
    expected_latency: Floats
    """Seconds per round: download + compute + upload."""
    row_start: Ints
    """The links of device i are rows row_start[i] .. row_start[i + 1]."""

    def of(self, device: int) -> slice:
        return slice(int(self.row_start[device]), int(self.row_start[device + 1]))

    def find(self, device: int, gateway: int) -> int:
        """Return the index of a link, -1 if there is none."""
        start, stop = self.row_start[device : device + 2].tolist()
        row = self.link_gateway[start:stop].tolist()  # a handful of gateways: a linear search is fastest
        return start + row.index(gateway) if gateway in row else -1


def feasible_links(devices: int, gateways: int, device: Ints, gateway: Ints, latency: Floats) -> FeasibleLinks:
    """Build and check the links. Every error names the first wrong link."""
    if devices < 1 or gateways < 1:
        raise DataError(f"a network needs at least one device and one gateway, not {devices} and {gateways}")
    if not len(device) == len(gateway) == len(latency):
        raise DataError(f"links: {len(device)} devices, {len(gateway)} gateways and {len(latency)} latencies differ")
    if len(device) == 0:
        raise DataError(f"the network has {devices} devices and {gateways} gateways but no link between them")
    for name, values, limit in (("device", device, devices), ("gateway", gateway, gateways)):
        wrong = np.flatnonzero((values < 0) | (values >= limit))
        if len(wrong):
            raise DataError(f"link {wrong[0]}: {name} {values[wrong[0]]} is not one of 0..{limit - 1}")
    wrong = np.flatnonzero(~(np.isfinite(latency) & (latency > 0)))
    if len(wrong):
        raise DataError(f"link {wrong[0]}: round latency {latency[wrong[0]]} is not a positive number of seconds")
    order = np.lexsort((gateway, device))
    device, gateway, latency = device[order], gateway[order], latency[order]
    twice = np.flatnonzero((np.diff(device) == 0) & (np.diff(gateway) == 0))
    if len(twice):
        raise DataError(f"the link of device {device[twice[0]]} to gateway {gateway[twice[0]]} is given twice")
    row_start = np.searchsorted(device, np.arange(devices + 1)).astype(np.int64)
    return FeasibleLinks(
        devices, gateways, device.astype(np.int64), gateway.astype(np.int64), latency.astype(np.float64), row_start
    )


def no_links() -> FeasibleLinks:
    """Return a network without nodes or links."""
    none = np.zeros(0, np.int64)
    return FeasibleLinks(0, 0, none, none, np.zeros(0), np.zeros(1, np.int64))


def with_link(links: FeasibleLinks, device: int, gateway: int, latency: float) -> tuple[FeasibleLinks, int]:
    """Return the links with one added, and its index. Devices and gateways up to its own numbers are added with it."""
    devices, gateways = max(links.devices, device + 1), max(links.gateways, gateway + 1)
    grown = feasible_links(
        devices,
        gateways,
        np.append(links.link_device, device),
        np.append(links.link_gateway, gateway),
        np.append(links.expected_latency, latency),
    )
    return grown, grown.find(device, gateway)


def nearest_load(links: FeasibleLinks, usable: Bools, latency: Floats, model_bytes: int) -> Floats:
    """Return the bytes per second at each gateway if every device is in flight at its nearest gateway."""
    best = nearest_gateway(links, usable, latency)
    used = usable & (best[links.link_device] == links.link_gateway)
    load: Floats = np.bincount(links.link_gateway[used], model_bytes / latency[used], links.gateways).astype(np.float64)
    return load


def nearest_gateway(links: FeasibleLinks, usable: Bools, latency: Floats) -> Ints:
    """Return the gateway of each device's usable link of least latency (ties: the lower number); -1 without one."""
    best = np.full(links.devices, -1, np.int64)
    rows = np.flatnonzero(usable)
    order = rows[np.lexsort((links.link_gateway[rows], latency[rows], links.link_device[rows]))]
    devices, first = np.unique(links.link_device[order], return_index=True)
    best[devices] = links.link_gateway[order[first]]
    return best


def near_best(link_device: Ints, usable: Bools, latency: Floats, max_ratio: float) -> Bools:
    """Return the usable links whose latency is at most `max_ratio` times that of the device's best usable link."""
    if not np.isfinite(max_ratio):
        return usable.copy()
    best = np.full(int(link_device.max(initial=-1)) + 1, np.inf)
    np.minimum.at(best, link_device[usable], latency[usable])
    kept: Bools = usable & (latency <= max_ratio * best[link_device])
    return kept


def check_association(links: FeasibleLinks, usable: Bools, gateway_of: Ints) -> None:
    """Check that I_ij <= J_ij. The form of `gateway_of` guarantees at most one gateway per device."""
    if gateway_of.shape != (links.devices,):
        raise DataError(f"an association names {gateway_of.shape} gateways for {links.devices} devices")
    allowed = gateway_of == -1
    hit = usable & (gateway_of[links.link_device] == links.link_gateway)
    allowed[links.link_device[hit]] = True
    wrong = np.flatnonzero(~allowed)
    if len(wrong):
        raise DataError(f"device {wrong[0]} is associated with gateway {gateway_of[wrong[0]]}, to which it has no link")
