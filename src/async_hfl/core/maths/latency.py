"""Round latency tau_ij (download + compute + upload, seconds) and the data rate R_ij = M / tau_ij it implies.

A link never used has a prior; the first measurement replaces it, later ones enter a moving average.
"""

from __future__ import annotations

NEWEST_WEIGHS = 0.3


def averaged(mean: float, measured: float, heard_before: bool) -> float:
    """The moving average after one more measurement."""
    if not heard_before:
        return measured
    return (1.0 - NEWEST_WEIGHS) * mean + NEWEST_WEIGHS * measured


def prior(expected_compute: float, expected_rate: float, model_bytes: int) -> float:
    """What a round should take over a link never used: compute plus the model there and back."""
    return expected_compute + 2.0 * model_bytes / expected_rate


def data_rate(model_bytes: int, round_latency: float) -> float:
    """R_ij = M / tau_ij, bytes per second."""
    return model_bytes / round_latency


def patience(round_latency: float, floor: float, factor: float) -> float:
    """How long a device may stay silent before it is given up."""
    return max(floor, factor * round_latency)
