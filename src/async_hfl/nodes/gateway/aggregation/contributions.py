"""The part that device updates have in a gateway's model: as they arrived, made robust, or private.

Every rule that aggregates asks for the models in place of those that arrived, and assigns its result by `adopt`, before
it counts the gateway's epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from async_hfl.core.weights import Weights
from async_hfl.nodes.gateway.aggregation.private import clipped, noisy
from async_hfl.nodes.gateway.aggregation.robust import robust_models
from async_hfl.nodes.gateway.aggregation.rule import Gateway, HeldUpdate


def models_of(gateway: Gateway, arrived: Sequence[HeldUpdate]) -> list[Weights]:
    """Return the models to aggregate, of updates that are aggregated together."""
    if gateway.config.privacy.clip < inf:
        return [clipped(gateway, held) for held in arrived]
    if gateway.config.robust.rule != "none":
        return robust_models(gateway, arrived)
    return [held.weights for held in arrived]


def adopt(gateway: Gateway, model: Weights, arrived: Sequence[HeldUpdate], weights: Sequence[float]) -> None:
    """Make this the gateway's model, which contains these updates with these weights."""
    private = gateway.config.privacy.noise > 0.0
    gateway.weights = noisy(gateway, model, arrived, weights) if private else model
