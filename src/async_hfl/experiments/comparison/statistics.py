"""Mean and spread over seeds, and ratios paired by seed.

A seed determines data, initial weights and delays of every method alike, so methods are compared seed by seed: the
ratio is the geometric mean of the seeds' ratios, with an interval from Student's t of their logarithms. A seed with
which one side never reached the target cannot enter the ratio; such seeds are counted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Average:
    """Mean and sample standard deviation."""

    mean: float
    deviation: float | None
    """None for a single value."""


def average(values: Sequence[float]) -> Average | None:
    if not values:
        return None
    mean = math.fsum(values) / len(values)
    if len(values) == 1:
        return Average(mean, None)
    return Average(mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)))


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio over seeds with its confidence interval."""

    value: float
    low: float | None
    """Lower end of the confidence interval; None for a single pair."""
    high: float | None
    pairs: int
    seeds: int
    """The number of all seeds, of which `pairs` had both values."""


def paired_ratio(above: Mapping[int, float], below: Mapping[int, float], seeds: int) -> Ratio | None:
    """Return above / below, paired by seed; None without a common seed."""
    logs = [math.log(above[seed] / below[seed]) for seed in sorted(above.keys() & below.keys())]
    found = average(logs)
    if found is None:
        return None
    if found.deviation is None:
        return Ratio(math.exp(found.mean), None, None, 1, seeds)
    half = student_quantile((1 + CONFIDENCE) / 2, len(logs) - 1) * found.deviation / math.sqrt(len(logs))
    return Ratio(math.exp(found.mean), math.exp(found.mean - half), math.exp(found.mean + half), len(logs), seeds)


def student_quantile(probability: float, degrees: int) -> float:
    """Return a quantile of Student's t distribution by bisection of the exact one (probability at least 0.5)."""
    low, high = 0.0, 1.0
    while student_below(high, degrees) < probability:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if student_below(middle, degrees) < probability else (low, middle)
    return (low + high) / 2


def student_below(value: float, degrees: int) -> float:
    """Return P(T <= value) by the finite trigonometric sums of Abramowitz and Stegun 26.7.3-4."""
    angle = math.atan(value / math.sqrt(degrees))
    cosine = math.cos(angle)
    if degrees % 2:
        total, term = 0.0, cosine
        for k in range(1, degrees - 1, 2):
            total += term
            term *= cosine * cosine * (k + 1) / (k + 2)
        inside = (angle + math.sin(angle) * total) * 2 / math.pi
    else:
        total, term = 0.0, 1.0
        for k in range(0, degrees - 1, 2):
            total += term
            term *= cosine * cosine * (k + 1) / (k + 2)
        inside = math.sin(angle) * total
    return (1 + inside) / 2
