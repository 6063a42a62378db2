"""Distinct gateways for every device at once, each gateway reached whenever there are links enough."""

from __future__ import annotations

import numpy as np

from async_hfl.core.arrays import Ints


def distinct_gateways(devices: int, gateways: int, links: int, random: np.random.Generator) -> Ints:
    """A devices x links array of gateways, ascending and distinct within a row.

    The first ceil(G / N) links of a device (one, if devices are plenty) are dealt round-robin over a random order of
    the gateways: number s of device i is place (i + s N) mod G, which never repeats within a device and covers every
    place if N x links >= G. The others are a uniform draw from the gateways that the dealt ones leave, by Floyd's
    algorithm with all devices side by side: O(links^2) comparisons a device, no devices x gateways array.
    """
    dealt = min(links, -(-gateways // devices))
    places = (np.arange(devices)[:, None] + np.arange(dealt) * devices) % gateways
    places.sort(axis=1)
    drawn = links - dealt
    others = gateways - dealt
    chosen = np.empty((devices, drawn), np.int64)
    for at in range(drawn):
        last = others - drawn + at
        pick = random.integers(0, last + 1, devices)
        taken = (chosen[:, :at] == pick[:, None]).any(axis=1)
        chosen[:, at] = np.where(taken, last, pick)
    for column in range(dealt):
        chosen += chosen >= places[:, column, None]  # number the rest so that the dealt places are skipped
    order = random.permutation(gateways)
    rows: Ints = np.sort(order[np.concatenate((places, chosen), axis=1)], axis=1)
    return rows
