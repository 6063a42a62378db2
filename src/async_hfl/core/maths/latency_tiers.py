"""TiFL's tiers of devices by round latency, and the draw of one tier for every round (see `decisions.selection.tifl`).

The cloud draws for the whole network and tells the gateways with each global model, so that all of them train devices
of the same tier at the same time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from async_hfl.core.arrays import Floats, Ints
from async_hfl.core.randomness import stream
from async_hfl.core.serialization import plain, value

TIERS = 5
INTERVAL = 20
"""Rounds between two changes of the probabilities."""
_CREDITS = math.ceil(0.4 * INTERVAL)
"""Credits that each tier is given every `INTERVAL` rounds: no tier is drawn in more than two fifths of all rounds."""


@value
class Tiers:
    """The tiers as gateways are told them."""

    limits: tuple[float, ...]
    """The highest latency of each tier, the fastest first. Devices slower than the last limit are in no tier."""
    drawn: tuple[int, ...]
    """The tier drawn for each round of the cycle that begins with this model."""

    def tier_of(self, latency: Floats) -> Ints:
        """Return the tier of devices with these latencies; `len(limits)` for devices that are in none."""
        tiers: Ints = np.searchsorted(np.array(self.limits), latency)
        return tiers


@plain
@dataclass(slots=True)
class TierDraws:
    """The memory of the draws, over a run."""

    window: int = -1
    """Number of the interval of rounds that the probabilities were computed for."""
    probabilities: list[float] = field(default_factory=lambda: [1.0 / TIERS] * TIERS)
    credits: list[int] = field(default_factory=lambda: [0] * TIERS)
    epoch: int = -1
    """The cloud epoch that the tiers were drawn for last."""
    told: Tiers | None = None


def draw(state: TierDraws, latency: Floats, loss: Floats, longest: float, rounds: int, epoch: int, seed: int) -> None:
    """Draw the tiers for the rounds of the cycle that begins at this cloud epoch.

    `latency` and `loss` (NaN if unknown) are those of all devices; devices slower than `longest` are excluded."""
    limits = tier_limits(latency, longest)
    tiers = Tiers(limits, ())
    tier = tiers.tier_of(latency)
    window = epoch * rounds // INTERVAL
    if window > state.window:
        state.credits = [left + _CREDITS * (window - state.window) for left in state.credits]
        if state.window >= 0:
            state.probabilities = probabilities(tier_losses(tier, loss)).tolist()
        state.window = window
    present = np.bincount(tier, minlength=TIERS)[:TIERS] > 0
    rng = stream(seed, "tiers", epoch)
    drawn: list[int] = []
    for _ in range(rounds):
        paying = present & (np.array(state.credits) > 0)
        weights = np.where(paying if paying.any() else present, state.probabilities, 0.0)
        one = int(rng.choice(TIERS, p=weights / weights.sum()))
        state.credits[one] -= state.credits[one] > 0
        drawn.append(one)
    state.told = Tiers(limits, tuple(drawn))


def tier_limits(latency: Floats, longest: float) -> tuple[float, ...]:
    """Return the limits of tiers of equal size among the devices that are not slower than `longest`."""
    kept = latency[latency <= longest]
    if len(kept) == 0:
        kept = latency
    quantiles = np.quantile(kept, (np.arange(TIERS) + 1) / TIERS, method="inverted_cdf")
    return tuple(float(limit) for limit in quantiles)


def tier_losses(tier: Ints, loss: Floats) -> Floats:
    """Return the mean loss of each tier; infinite if unknown, so that such a tier is tried."""
    known = (tier < TIERS) & ~np.isnan(loss)
    total = np.bincount(tier[known], loss[known], TIERS)
    count = np.bincount(tier[known], minlength=TIERS)
    mean: Floats = np.where(count > 0, total / np.maximum(count, 1), np.inf)
    return mean


def probabilities(losses: Floats) -> Floats:
    """Return the probabilities by rank, the highest loss first; equal losses share the probabilities of their ranks."""
    position = np.array([np.mean(np.flatnonzero(np.sort(-losses) == -loss)) for loss in losses])
    share: Floats = (TIERS - position) / (TIERS * (TIERS + 1) / 2)
    return share
