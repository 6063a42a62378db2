"""A set of numbers stored as ranges, so that a million consecutive numbers take no more space than one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

from async_hfl.core.serialization import plain


@plain
@dataclass(slots=True)
class NumberSet:
    firsts: list[int] = field(default_factory=list)
    lasts: list[int] = field(default_factory=list)
    """The first and last numbers of the ranges, both included, in rising order; no two ranges are adjacent."""

    def add(self, number: int) -> bool:
        """Add a number; return True if it was new."""
        place = bisect_right(self.firsts, number)
        if place and number <= self.lasts[place - 1]:
            return False
        follows = place > 0 and self.lasts[place - 1] == number - 1
        precedes = place < len(self.firsts) and self.firsts[place] == number + 1
        if follows and precedes:
            self.lasts[place - 1] = self.lasts.pop(place)
            del self.firsts[place]
        elif follows:
            self.lasts[place - 1] = number
        elif precedes:
            self.firsts[place] = number
        else:
            self.firsts.insert(place, number)
            self.lasts.insert(place, number)
        return True

    def __contains__(self, number: int) -> bool:
        place = bisect_right(self.firsts, number)
        return place > 0 and number <= self.lasts[place - 1]

    def __iter__(self) -> Iterator[int]:
        for first, last in zip(self.firsts, self.lasts, strict=True):
            yield from range(first, last + 1)

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in zip(self.firsts, self.lasts, strict=True))
