"""The search for the best settings: a generator that yields points to measure and is sent their ranking.

One setting at a time, beginning with the first: both neighbours of the best point on the grid, then further on as long
as the best point is the outermost one, and at last half a step to both sides of the best. The first setting may take
half of the points if there are others; these share what is left. Nothing is random: the same measurements lead to the
same points, so a search that was interrupted is repeated from its results.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

Point = tuple[float, ...]
"""Steps from the packaged value, by setting."""
Ranking = Callable[[Point], tuple[float, ...]]
"""The lowest is the best. Defined for all points measured so far."""
Allowed = Callable[[Point], bool]
"""True if every setting has a value at that point."""
Search = Generator[list[Point], Ranking, Point]


def search(settings: int, budget: int, allowed: Allowed) -> Search:
    """Yield batches of points, at most `budget` in total, and return the best one."""
    best: Point = (0.0,) * settings
    known: list[Point] = []
    batch = [best]  # the packaged settings are measured together with the first neighbours
    for number in range(settings):
        left, others = budget - len(known), settings - number - 1
        end = len(known) + (max(1, left // 2) if number == 0 and others else left // (others + 1))
        batch += _beside(best, number, 1.0, known, allowed)
        while batch := batch[: end - len(known)]:
            known += batch
            ranking = yield batch
            best = min(known, key=ranking)
            batch = _beside(best, number, 1.0, known, allowed)
        halves = _beside(best, number, 0.5, known, allowed)
        if len(halves) > end - len(known):
            halves = _more_promising(best, number, known, ranking, halves)[: end - len(known)]
        if halves:
            known += halves
            ranking = yield halves
            best = min(known, key=ranking)
        batch = []
    return best


def _beside(best: Point, number: int, steps: float, known: list[Point], allowed: Allowed) -> list[Point]:
    """Return the points on both sides of the best that are not known yet."""
    both = (_moved(best, number, steps), _moved(best, number, -steps))
    return [point for point in both if point not in known and allowed(point)]


def _moved(point: Point, number: int, by: float) -> Point:
    return (*point[:number], point[number] + by, *point[number + 1 :])


def _more_promising(best: Point, number: int, known: list[Point], ranking: Ranking, halves: list[Point]) -> list[Point]:
    """Sort half steps by the rank of the whole step on the same side."""

    def promise(half: Point) -> tuple[float, ...]:
        whole = _moved(best, number, 2 * (half[number] - best[number]))
        return ranking(whole) if whole in known else ()

    return sorted(halves, key=promise)
