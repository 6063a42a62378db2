"""Small maps and a simple radio propagation whose numbers can be worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from async_hfl.network.radio.air import Air
from async_hfl.network.radio.places import Places
from async_hfl.network.topologies.request import NetworkRequest


def places(*points: tuple[float, ...], first_key: int = 0) -> Places:
    """Places from (x, y) or (x, y, height); the default height is 10 m."""
    columns = [[*point, *([10.0] if len(point) == 2 else [])] for point in points]
    x, y, height = np.array(columns, float).reshape(-1, 3).T
    return Places(x, y, height, np.arange(first_key, first_key + len(points)))


def straight_air(reach: float = 100.0, shadowing_db: float = 0.0, upload: float = 0.5) -> Air:
    """One decibel per metre; each costs 1,000 bytes/s, so that nothing arrives from `reach` on; uploads are half as
    fast."""

    def rate(loss: np.ndarray) -> np.ndarray:
        return np.maximum(1000.0 * (reach - loss), 0.0)

    return Air(
        lambda here, there: np.hypot(here.x - there.x, here.y - there.y),
        rate,
        lambda loss: upload * rate(loss),
        shadowing_db,
    )


def minute(devices: int) -> np.ndarray:
    return np.full(devices, 60.0)


def radio_request(
    devices: int, gateways: int, model_bytes: int, seed: int, air: Air, spacing: float = 500.0, **rules: Any
) -> NetworkRequest:
    """A request for a network by radio; every training takes a minute."""
    return NetworkRequest(devices, gateways, model_bytes, seed, {"spacing": spacing}, minute, lambda: air, **rules)
