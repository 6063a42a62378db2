"""Round latency tau_ij (download + compute + upload, in seconds) and the data rate R_ij = M / tau_ij that follows from
it.

An unused link has a prior. The first measurement replaces it, and later ones enter a moving average.
"""

from __future__ import annotations

NEWEST_WEIGHS = 0.3


def averaged(mean: float, measured: float, heard_before: bool) -> float:
    """Return the moving average after another measurement."""
    if not heard_before:
        return measured
    return (1.0 - NEWEST_WEIGHS) * mean + NEWEST_WEIGHS * measured


def prior(expected_compute: float, expected_rate: float, model_bytes: int) -> float:
    """Return the expected round latency of an unused link: compute time plus a model in each direction."""
    return expected_compute + 2.0 * model_bytes / expected_rate


def data_rate(model_bytes: int, round_latency: float) -> float:
    """Return R_ij = M / tau_ij in bytes per second."""
    return model_bytes / round_latency


def patience(round_latency: float, floor: float, factor: float) -> float:
    """Return the time without a message after which a device is timed out."""
    return max(floor, factor * round_latency)
