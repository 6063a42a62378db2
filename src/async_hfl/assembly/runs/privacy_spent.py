"""The privacy that a run has spent: epsilon of the device that took part most often.

Each aggregation that contains a device is a Gaussian mechanism with the noise multiplier z (`aggregation.private`). The
accountant of dp-accounting composes them, in Rényi divergence. No amplification by sampling is claimed: devices are not
drawn at random, and whoever sees the messages knows who took part.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from async_hfl.assembly.settings.schema import Settings


def privacy_spent(settings: Settings, participations: Mapping[int, int]) -> dict[str, Any]:
    """Return the entry of a summary; empty without noise. `participations`: aggregated updates by device."""
    if settings.privacy.noise == 0.0:
        return {}
    privacy, counts = settings.privacy, sorted(participations.values())
    most = counts[-1] if counts else 0
    middle = counts[(len(counts) - 1) // 2] if counts else 0
    return {
        "privacy": {
            "unit": "one device",
            "epsilon": epsilon(privacy.noise, most, privacy.delta),
            "delta": privacy.delta,
            "participations": most,
            "device": min((device for device, count in participations.items() if count == most), default=None),
            "median_participations": middle,
            "median_epsilon": epsilon(privacy.noise, middle, privacy.delta),
            "noise": privacy.noise,
            "clip": privacy.clip,
            "amplification": "none",
        }
    }


def epsilon(noise: float, participations: int, delta: float) -> float | None:
    """Return epsilon of so many Gaussian mechanisms; None if the accountant finds no finite one."""
    if participations == 0:
        return 0.0
    from dp_accounting import GaussianDpEvent
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant()
    accountant.compose(GaussianDpEvent(noise), participations)
    found = float(accountant.get_epsilon(delta))
    return found if math.isfinite(found) else None
