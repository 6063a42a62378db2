"""Measures of a run's stability: classes that are forgotten for a while, and devices that are left out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from async_hfl.core.arrays import Floats
from async_hfl.core.topology import FeasibleLinks

RECENT = 20
"""The number of evaluations at the end of a run in which no class may be forgotten."""
_SHORT = 0.25
"""Share of the run: a device whose expected round is shorter could have taken part."""


def class_floor(evaluations: Sequence[Mapping[str, float]]) -> float | None:
    """Return the least accuracy of a class in these evaluations, relative to its accuracy in the last one.

    The smallest of all classes counts; a class with a final accuracy of 0 has 0. None without accuracies by class.
    """
    final = {name: value for name, value in evaluations[-1].items() if name.startswith("class_")} if evaluations else {}
    floors = [
        min(one.get(name, 0.0) for one in evaluations) / value if value > 0 else 0.0 for name, value in final.items()
    ]
    return min(floors, default=None)


def quickest_rounds(links: FeasibleLinks) -> Floats:
    """Return the expected round of each device on its best link, in seconds; infinity without a link."""
    quickest = np.full(links.devices, np.inf)
    np.minimum.at(quickest, links.link_device, links.expected_latency)
    return quickest


def left_out(rounds: Floats, took_part: Collection[int], run_s: float) -> list[int]:
    """Return the devices that never took part although their expected round is under a quarter of the run."""
    able = np.flatnonzero(rounds < _SHORT * run_s).tolist()
    return [device for device in able if device not in took_part]
