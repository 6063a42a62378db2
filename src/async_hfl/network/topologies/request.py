"""The interface of a network builder: the request that it gets, and its entry in the registry.

A built-in network is a module of this package with a function `NetworkRequest -> NetworkDescription` and a line in
`registry.py`. A user's network is the same function in a file of their own (`--network FILE.py:NAME`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from async_hfl.core.arrays import Floats
from async_hfl.network.description import NetworkDescription
from async_hfl.network.radio.air import Air
from async_hfl.network.radio.links import DEFAULT_LINK_RULES, LinkRules
from async_hfl.network.topologies.rated_network import DEFAULT_WIRE, Wire

NOISE_SETTINGS = frozenset({"link_noise", "compute_noise", "backhaul_noise"})
WIRE_SETTINGS = frozenset({"link_latency", "backhaul_rate", "backhaul_latency", "contention"}) | NOISE_SETTINGS
RADIO_SETTINGS = frozenset({"least_rate", "links_per_device", "fleet"}) | WIRE_SETTINGS


@dataclass(frozen=True, slots=True, eq=False)
class NetworkRequest:
    """The sizes, the seed and the settings from which a network is built."""

    devices: int
    gateways: int
    model_bytes: int
    """Size of the model, which decides the expected latency of a link with a given rate."""
    seed: int
    settings: Mapping[str, Any]
    """The section [network] of the settings. A builder may read those that are listed in `NetworkEntry.reads`."""
    compute: Callable[[int], Floats]
    """Seconds of one local training for each of the first n devices, drawn from the setting network.fleet."""
    make_air: Callable[[], Air]
    """Radio propagation and Wi-Fi as the section [radio] describes them."""
    wire: Wire = DEFAULT_WIRE
    link_rules: LinkRules = DEFAULT_LINK_RULES

    @property
    def options(self) -> Mapping[str, Any]:
        """The settings network.options.NAME, which a user's network is free to name."""
        options: Mapping[str, Any] = self.settings["options"]
        return options


@dataclass(frozen=True, slots=True)
class NetworkEntry:
    """A network in the registry."""

    build: Callable[[NetworkRequest], NetworkDescription]
    reads: frozenset[str]
    """The settings of [network] that it reads. Setting any other is an error, since it would have no effect."""
    by_radio: bool = False
    """True if links come from radio propagation: the network then reads [radio], and transfers share the air."""
