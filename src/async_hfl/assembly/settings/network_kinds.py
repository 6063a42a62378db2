"""The settings that each kind of network reads. Giving any other is an error, since it would have no effect.

The network `file` is one of three kinds, which are recognised by the file's contents.
"""

from __future__ import annotations

from pathlib import Path

from async_hfl.assembly.settings.environment import NetworkSection
from async_hfl.assembly.user_code.loading import is_user_code
from async_hfl.network.topologies.from_file import devices_in, file_kind, read_network_file
from async_hfl.network.topologies.registry import NETWORKS
from async_hfl.network.topologies.request import WIRE_SETTINGS

DEPLOYED = "deployed"
"""The network of a deployed run: real links between real processes."""
USER_NETWORK = "FILE.py:NAME"
"""A network built by a function in the user's file."""

READ_BY: dict[str, frozenset[str]] = {
    **{name: entry.reads for name, entry in NETWORKS.items()},
    DEPLOYED: frozenset({"gateways"}),
    USER_NETWORK: frozenset({"gateways", "options", "fleet"}) | WIRE_SETTINGS,
}
BY_RADIO = frozenset(name for name, entry in NETWORKS.items() if entry.by_radio)


def network_kind(network: NetworkSection) -> str:
    """Return the key of `READ_BY` for the chosen network."""
    if is_user_code(network.name):
        return USER_NETWORK
    return file_kind(network.path) if network.name == "file" else network.name


def devices_of_file(path: str) -> int | None:
    """Return the number of devices in a network file; None without a path."""
    return devices_in(read_network_file(Path(path))) if path else None
