"""Which settings a network reads: the rest would be ignored in silence, so setting them is an error.

`file` is three kinds of network, told from the file itself.
"""

from __future__ import annotations

from pathlib import Path

from async_hfl.assembly.settings.environment import NetworkSection
from async_hfl.network.files.delays import DelayMatrix
from async_hfl.network.files.sites import OwnSites
from async_hfl.network.topologies.from_file import devices_in, read_own_network

_WIRE = frozenset({"link_latency", "backhaul_rate", "backhaul_latency"}) | {
    "link_noise",
    "compute_noise",
    "backhaul_noise",
    "contention",
}
_RADIO = frozenset({"least_rate", "links_per_device", "fleet"}) | _WIRE
DEPLOYED = "deployed"
"""No network of ours: real links between real processes."""
SITES, DELAYS, TRACE = "file (sites)", "file (delays)", "file (trace)"

READ_BY: dict[str, frozenset[str]] = {
    "nycmesh-paper": frozenset({"gateways", "compute"}),
    "uniform": frozenset({"gateways", "links_per_device", "min_rate", "max_rate", "min_compute", "max_compute"})
    | _WIRE,
    "nycmesh": frozenset({"gateways"}) | _RADIO,
    "nycmesh-2024": frozenset({"gateways"}) | _RADIO,
    "random-geometric": frozenset({"gateways", "spacing"}) | _RADIO,
    SITES: frozenset({"path"}) | _RADIO,
    DELAYS: frozenset({"path", "download_path", "measured_bytes", "fleet"}) | _WIRE,
    TRACE: frozenset({"path", "replay", "backhaul_rate", "backhaul_latency"}),
    DEPLOYED: frozenset({"gateways"}),
    "file": frozenset({"path", "download_path", "measured_bytes", "replay"}) | _RADIO,
}
"""Without a path nobody knows which kind a `file` is; building it will ask for the path."""
BY_RADIO = frozenset({"nycmesh", "nycmesh-2024", "random-geometric", SITES, "file"})


def network_kind(network: NetworkSection) -> str:
    if network.name != "file" or not network.path:
        return network.name
    own = read_own_network(Path(network.path))
    if isinstance(own, OwnSites):
        return SITES
    return DELAYS if isinstance(own, DelayMatrix) else TRACE


def devices_of_file(path: str) -> int | None:
    """How many devices a network of one's own has; None without a path."""
    return devices_in(read_own_network(Path(path))) if path else None
