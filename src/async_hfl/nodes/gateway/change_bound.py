"""The bound on what one update may change: a multiple of what is usual among the devices of this gateway.

    |w_i - w_sent| <= max_change * max(median of the latest |w_k - w_sent| of the devices k, a hundredth of |w_sent|)

Every device counts once, with its latest change, accepted or not: a device can shift the median only by what one of
many can shift it, and if most devices begin to change more, their updates pass. Updates of the warm-up, which are not
aggregated, count as well, so that the bound is known when a run begins. Until three devices have reported, a change may
be as large as the model itself, or as a model of ones, times `max_change`. Running statistics have a bound of their
own. A change within the bound may still be harmful: the bound limits what one update can do, it does not judge it.

Updates on an accelerator come from a simulation's own devices, and are not measured.
"""

from __future__ import annotations

from math import inf, isfinite, sqrt

import numpy as np

from async_hfl.core.compression.model_codec import plain_vector
from async_hfl.core.protocol.messages import Update
from async_hfl.core.vectors import HostVector
from async_hfl.core.weights import Weights, is_finite
from async_hfl.nodes.gateway.context import Gateway
from async_hfl.nodes.gateway.state import InFlightJob

DIVERGED = "is not finite"
_LEAST_DEVICES = 3
_REMEMBERED = 101
"""Devices whose latest change is remembered; the one that has been silent for longest is forgotten first."""
_ALWAYS_ALLOWED = 0.01
"""Share of the model that is taken for usual even if changes are smaller: they shrink as training converges."""
_LARGEST_LOSS = 1e30


def refusal(gateway: Gateway, in_flight: InFlightJob, update: Update) -> str:
    """Return the reason for which a decoded update must not be used; empty if it may be."""
    weights = plain_vector(update.weights)
    bounded = all(abs(loss) <= _LARGEST_LOSS for loss in (update.loss, update.squared_loss))  # NaN is not
    if not is_finite(weights) or not bounded:
        return DIVERGED
    most = gateway.config.max_change
    if most == inf or not isinstance(weights, np.ndarray) or not isinstance(in_flight.sent, np.ndarray):
        return ""
    trained = gateway.config.gradient_size
    found = _part(gateway.state.changes, in_flight, weights[:trained], in_flight.sent[:trained], most)
    if not found and trained < len(weights):
        statistics = gateway.state.changes_of_statistics
        found = _part(statistics, in_flight, weights[trained:], in_flight.sent[trained:], most)
    return found


def _part(seen: dict[int, float], in_flight: InFlightJob, new: HostVector, sent: HostVector, most: float) -> str:
    """Compare one part of a model with the bound, and remember its change."""
    change = _norm(new - sent)
    seen.pop(in_flight.slot, None)
    seen[in_flight.slot] = change
    if len(seen) > _REMEMBERED:
        del seen[next(iter(seen))]
    usual = sorted(seen.values())[(len(seen) - 1) // 2] if len(seen) >= _LEAST_DEVICES else 0.0
    if change <= most * usual:
        return ""
    least = _ALWAYS_ALLOWED * _norm(sent) if usual > 0.0 else max(_norm(sent), sqrt(len(sent)))
    if change <= most * least:
        return ""
    return f"changes the model by {change:.3g}, more than {most:g} times what is usual, {max(usual, least):.3g}"


def _norm(vector: Weights) -> float:
    """Return the Euclidean norm, in double precision if single precision overflows."""
    with np.errstate(over="ignore", invalid="ignore"):
        squared = float(np.dot(vector, vector))
        if not isfinite(squared):
            wide = np.asarray(vector, np.float64)
            squared = float(np.dot(wide, wide))
    return sqrt(squared) if isfinite(squared) else inf
