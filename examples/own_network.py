"""A network of your own: devices on a street with gateways at equal distances, slower the further away.

Run it from the directory above:

    async-hfl run --method async-hfl --network examples/own_network.py:street --seed 1 --set network.options.metres=900

The function gets a `NetworkRequest` (async_hfl.network.topologies.request) and returns a `NetworkDescription`, which is
checked. The run stores a digest of this file: after a change, a run that was started with it is not resumed.
"""

from __future__ import annotations

import numpy as np

from async_hfl.core.randomness import stream
from async_hfl.network.delays.rates import RatedLinks
from async_hfl.network.description import NetworkDescription
from async_hfl.network.topologies.rated_network import rated_network
from async_hfl.network.topologies.request import NetworkRequest

REACH = 400.0  # metres


def street(request: NetworkRequest) -> NetworkDescription:
    length = float(request.options.get("metres", 1000.0))
    gateways = np.linspace(0.0, length, request.gateways)
    devices = stream(request.seed, "street").uniform(0.0, length, request.devices)
    distance = np.abs(devices[:, None] - gateways)
    device, gateway = np.nonzero(distance < REACH)
    rate = 1e6 * (1.0 - distance[device, gateway] / REACH) + 1e4  # bytes per second
    links = RatedLinks(device, gateway, download_rate=rate, upload_rate=rate / 2)
    compute = request.compute(request.devices)  # seconds per training, from network.fleet
    return rated_network("street", request.devices, request.gateways, links, compute, request.model_bytes, request.wire)
