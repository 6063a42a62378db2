"""The privacy of a run in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def privacy_text(spent: Mapping[str, Any]) -> str:
    """Return what a run's `privacy` means, with its unit."""
    most, median = (_epsilon(spent[key]) for key in ("epsilon", "median_epsilon"))
    return (
        f"epsilon {most} at delta {spent['delta']:g} for device {spent['device']}, which took part most often "
        f"({spent['participations']:,} times; median {spent['median_participations']:,}, epsilon {median}). "
        f"Noise {spent['noise']:g} times the clip {spent['clip']:g}. Unit: the changes of {spent['unit']}, towards "
        "everybody but its gateways; no amplification by sampling is claimed"
    )


def _epsilon(value: float | None) -> str:
    return "without bound" if value is None else f"{value:.3g}"
