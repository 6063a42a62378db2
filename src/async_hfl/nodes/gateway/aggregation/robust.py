"""Robust aggregation: a limit to what a few harmful devices can do, by comparison with the others.

A gateway remembers the latest changes of the last n distinct devices that it has aggregated (`gateway.robust_window`),
those that arrive now included, whatever model each of them started from. With D_k = w_k - w_sent_k,

    clip           w_i   is replaced by   w_sent_i + D_i min(1, m / |D_i|),   m: median of all |D_k|
    trimmed-mean   w_i   is replaced by   w_sent_i + trimmed mean of all D_k
    median         w_i   is replaced by   w_sent_i + median of all D_k

and the aggregation rule goes on as without. So an update sets when the model moves, and how far as a multiple of the
common change; under a trimmed mean or a median it no longer sets the direction. A device counts once, whatever number
of samples or updates it sends, except in the rule's own weights. If more devices than n arrive together, all of them
are compared. Until others have reported, there is nothing to compare with: a lone change is taken as it is.

Running statistics, such as variances, are compared as values, not as changes, so that they stay in their range; clip
treats them as a second change, with a median of its own.

Memory: with a trimmed mean or a median n models at each gateway, with clip two numbers for each device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from async_hfl.core.maths.robust import (
    clip_factor,
    cut_at_each_end,
    lower_median,
    median,
    moved_by,
    norm,
    trimmed_mean,
)
from async_hfl.core.vectors import to_host
from async_hfl.core.weights import Weights, frozen
from async_hfl.nodes.gateway.aggregation.rule import Gateway, HeldUpdate

Latest = TypeVar("Latest")


def robust_models(gateway: Gateway, arrived: Sequence[HeldUpdate]) -> list[Weights]:
    """Return the models to aggregate in place of those that have arrived."""
    return _clipped(gateway, arrived) if gateway.config.robust.rule == "clip" else _common(gateway, arrived)


def _clipped(gateway: Gateway, arrived: Sequence[HeldUpdate]) -> list[Weights]:
    trained, seen, most = gateway.config.gradient_size, gateway.state.latest_norms, gateway.config.robust.window
    pairs = [(to_host(held.weights), to_host(held.in_flight.sent)) for held in arrived]
    norms = [(norm(new[:trained] - sent[:trained]), norm(new[trained:] - sent[trained:])) for new, sent in pairs]
    _remember(seen, arrived, norms, most)
    usual = [lower_median([sizes[part] for sizes in seen.values()]) for part in (0, 1)]
    _forget(seen, most)
    models: list[Weights] = []
    for (new, sent), sizes in zip(pairs, norms, strict=True):
        first, second = (clip_factor(size, limit) for size, limit in zip(sizes, usual, strict=True))
        if first == second:
            models.append(moved_by(sent, new, first))
            continue
        parts = (moved_by(sent[:trained], new[:trained], first), moved_by(sent[trained:], new[trained:], second))
        models.append(frozen(np.concatenate(parts)))
    return models


def _common(gateway: Gateway, arrived: Sequence[HeldUpdate]) -> list[Weights]:
    config, trained, seen = gateway.config.robust, gateway.config.gradient_size, gateway.state.latest
    changes: list[Weights] = []
    for held in arrived:
        new = to_host(held.weights)
        change = new - to_host(held.in_flight.sent)
        change[trained:] = new[trained:]
        changes.append(frozen(change))
    _remember(seen, arrived, changes, config.window)
    vectors = [to_host(vector) for vector in seen.values()]
    if config.rule == "median":
        common = median(vectors)
    else:
        common = trimmed_mean(vectors, cut_at_each_end(len(vectors), config.trim))
    _forget(seen, config.window)
    models: dict[int, Weights] = {}  # devices that were sent the same model have the same one now
    for held in arrived:
        sent = to_host(held.in_flight.sent)
        if id(sent) not in models:
            model = sent + common
            model[trained:] = common[trained:]
            models[id(sent)] = frozen(model)
    return [models[id(to_host(held.in_flight.sent))] for held in arrived]


def _remember(seen: dict[int, Latest], arrived: Sequence[HeldUpdate], values: Sequence[Latest], most: int) -> None:
    """Note the latest value of each device that has arrived, and drop the oldest beyond the window; those that have
    arrived together are all kept for now."""
    for held, value in zip(arrived, values, strict=True):
        seen.pop(held.in_flight.slot, None)
        seen[held.in_flight.slot] = value
    _forget(seen, max(most, len({held.in_flight.slot for held in arrived})))


def _forget(seen: dict[int, Latest], most: int) -> None:
    while len(seen) > most:
        del seen[next(iter(seen))]
