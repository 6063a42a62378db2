"""Wall-clock time of decisions on this machine.

Times are part of a run's summary, never of its journal. A policy is timed by a wrapper, which does not affect its
decisions. Durations are counted in histogram bins about 20 % wide, so that a million of them take little memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter_ns
from typing import Any

from async_hfl.core.policies import (
    Association,
    AssociationPolicy,
    AssociationProblem,
    Selection,
    SelectionPolicy,
    SelectionProblem,
)
from async_hfl.core.serialization import Plain

_BINS_PER_DOUBLING = 4


class Durations:
    def __init__(self) -> None:
        self.counts = [0] * (_BINS_PER_DOUBLING * 65)
        self.total_ns = 0
        self.most_ns = 0

    def add(self, nanoseconds: int) -> None:
        bits = nanoseconds.bit_length()
        self.counts[_BINS_PER_DOUBLING * bits + (nanoseconds >> (bits - 3) & 3) if bits > 2 else 0] += 1
        self.total_ns += nanoseconds
        if nanoseconds > self.most_ns:
            self.most_ns = nanoseconds

    @property
    def count(self) -> int:
        return sum(self.counts)

    def classes(self) -> Iterator[tuple[float, float, int]]:
        """Return (from, to, count) of the non-empty bins, in seconds."""
        for place, count in enumerate(self.counts):
            if count:
                bits, part = divmod(place, _BINS_PER_DOUBLING)
                if bits < 3:
                    yield 0.0, 4e-9, count
                else:
                    yield (4 + part) * 2.0 ** (bits - 3) * 1e-9, (5 + part) * 2.0 ** (bits - 3) * 1e-9, count

    def quantile(self, chance: float) -> float:
        """Return a quantile in seconds, exact to a bin and never above the longest time."""
        left = chance * self.count
        for low, high, count in self.classes():
            if left <= count:
                return min(low + (high - low) * left / count, self.most_ns * 1e-9)
            left -= count
        return self.most_ns * 1e-9

    def summary(self) -> dict[str, Any] | None:
        if not self.count:
            return None
        return {
            "count": self.count,
            "mean_s": self.total_ns / self.count * 1e-9,
            "median_s": self.quantile(0.5),
            "p99_s": self.quantile(0.99),
            "most_s": self.most_ns * 1e-9,
            "histogram": [list(row) for row in self.classes()],
        }


class DecisionTimes:
    """Decision times of one run."""

    def __init__(self) -> None:
        self.selection = Durations()
        self.association = Durations()

    def summary(self) -> dict[str, Any]:
        return {"selection": self.selection.summary(), "association": self.association.summary()}

    def snapshot(self) -> Plain:
        return [[part.counts, part.total_ns, part.most_ns] for part in (self.selection, self.association)]

    def restore(self, data: Plain) -> None:
        for part, (counts, total_ns, most_ns) in zip((self.selection, self.association), data, strict=True):
            part.counts, part.total_ns, part.most_ns = list(counts), total_ns, most_ns


class TimedSelection:
    def __init__(
        self, policy: SelectionPolicy, durations: Durations, clock: Callable[[], int] = perf_counter_ns
    ) -> None:
        self.policy, self.needs = policy, policy.needs
        self._durations, self._clock = durations, clock

    def choose(self, problem: SelectionProblem) -> Selection:
        began = self._clock()
        chosen = self.policy.choose(problem)
        self._durations.add(self._clock() - began)
        return chosen


class TimedAssociation:
    def __init__(
        self, policy: AssociationPolicy, durations: Durations, clock: Callable[[], int] = perf_counter_ns
    ) -> None:
        self.policy, self.needs, self.revisits = policy, policy.needs, policy.revisits
        self._durations, self._clock = durations, clock

    def solve(self, problem: AssociationProblem) -> Association:
        began = self._clock()
        solved = self.policy.solve(problem)
        self._durations.add(self._clock() - began)
        return solved
