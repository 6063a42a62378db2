"""The built-in networks by name. To add one: a module in this package, a line here, and a TOML file of its settings."""

from __future__ import annotations

from async_hfl.network.topologies import from_file, nycmesh, nycmesh_paper, random_geometric, uniform
from async_hfl.network.topologies.request import NetworkEntry

NETWORKS: dict[str, NetworkEntry] = {
    "nycmesh-paper": nycmesh_paper.NETWORK,
    "uniform": uniform.NETWORK,
    "nycmesh": nycmesh.NETWORK_2022,
    "nycmesh-2024": nycmesh.NETWORK_2024,
    "random-geometric": random_geometric.NETWORK,
    **from_file.NETWORKS,
}
