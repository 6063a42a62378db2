"""Where the authors' six gateways may have stood: at the hub nearest the centroid of the devices each one reaches.

Their positions are not published and a map needs some. Three of the six centroids have the same nearest hub, so every
hub serves once, the closest pair of gateway and hub first: six points that can be told apart. A guess, to be marked so.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from async_hfl.core.arrays import Floats
from async_hfl.core.errors import DataError


def estimated_gateways(
    device_x: Floats, device_y: Floats, reached: npt.NDArray[np.bool_], hub_x: Floats, hub_y: Floats
) -> tuple[Floats, Floats]:
    """x and y of a hub for each column of `reached` (devices x gateways)."""
    gateways = reached.shape[1]
    if len(hub_x) < gateways:
        raise DataError(f"{len(hub_x)} hubs are too few for {gateways} gateways at one hub each")
    count = reached.sum(axis=0)
    lonely = np.flatnonzero(count == 0)
    if len(lonely):
        raise DataError(f"gateway {lonely[0]} reaches no device: its position cannot be estimated")
    centre_x, centre_y = device_x @ reached / count, device_y @ reached / count
    distance = np.hypot(centre_x[:, None] - hub_x, centre_y[:, None] - hub_y)
    chosen = np.zeros(gateways, np.int64)
    for _ in range(gateways):
        gateway, hub = np.unravel_index(np.argmin(distance), distance.shape)
        chosen[gateway] = hub
        distance[gateway, :] = np.inf
        distance[:, hub] = np.inf
    return hub_x[chosen], hub_y[chosen]
