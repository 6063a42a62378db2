"""Mean and spread over seeds, and ratios paired by seed.

A seed determines data, initial weights and delays of every method alike, so methods are compared seed by seed: the
ratio is the geometric mean of the seeds' ratios, with an interval from Student's t of their logarithms. A run that
never reached the target enters with the cost of the whole run, its horizon; the ratio is then a bound and is marked so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

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
class Cost:
    """Time or bytes until a target was reached or, if it was not reached, of the whole run: a lower bound."""

    value: float
    known: bool = True


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
    bound: Literal["", ">", "<"] = ""
    """The ratio is at least (>) or at most (<) this, because some of the runs never reached the target."""


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


def bounded_ratio(above: Mapping[int, Cost], below: Mapping[int, Cost], seeds: int) -> Ratio | None:
    """Return above / below, paired by seed, with horizons in the place of costs that are not known.

    The result is a bound in the direction in which the true costs lie. A seed with which neither side reached the
    target says nothing and is left out. If one seed bounds the ratio from above and another from below, there is none.
    """
    common = [seed for seed in sorted(above.keys() & below.keys()) if above[seed].known or below[seed].known]
    least = any(not above[seed].known for seed in common)
    most = any(not below[seed].known for seed in common)
    if least and most:
        return None
    upper, lower = ({seed: side[seed].value for seed in common} for side in (above, below))
    found = paired_ratio(upper, lower, seeds)
    return None if found is None else replace(found, bound=">" if least else "<" if most else "")


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
