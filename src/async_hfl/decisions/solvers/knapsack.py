"""The 0-1 knapsack over real numbers: exact, always feasible, deterministic.

    maximise  sum_i d_i v_i    subject to  sum_i d_i w_i <= c,    d binary.

It runs inline in every selection of a gateway, so most of this module avoids work:

1. Fast cases: nothing fits, one item fits, everything fits, only one item can be taken.
2. Sort by density v_i / w_i. The *break solution* takes items until one, b, no longer fits; with r the capacity left,
   Dantzig's bound is U = v(break) + lambda r, where lambda = v_b / w_b. An item that deviates from the break
   solution lowers U by at least its loss |v_i - lambda w_i| (Dembo & Hammer 1980).
3. The first incumbent adds at most one item to the break solution and removes at most one, in the best way. Items
   whose loss is no less than U - incumbent are settled; the others are the *core* (Balas & Zemel 1980).
4. A core of 10 is enumerated. Of a larger one the 20 items of least loss (then 24) are enumerated as two halves that
   are matched by sorting (Horowitz & Sahni 1974): exact if the core has no more, otherwise an incumbent that settles
   most of the rest.
5. The rest is a dynamic programme over the Pareto frontier of (weight, value), items nearest to lambda in density
   first (Pisinger 1997): a state is dropped if another weighs no more and is worth no less, or if its own Dantzig bound
   over the remaining items does not beat the incumbent.

Step 5 may create `state_limit` states. Beyond that the answer is the incumbent, and `bound` is the best bound of the
open states, so the gap is still proven. No clock is read: the same numbers give the same answer everywhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from async_hfl.core.arrays import Bools, Floats, Ints
from async_hfl.core.errors import InvariantViolation
from async_hfl.core.policies import relative_gap

_HALVES = (10, 12)
"""Items in each enumerated half; the second value is used only if the first leaves a gap. Sorting 2^12 subsets takes
0.3 ms.
"""
_STEP = 500
"""Cost of a step of the dynamic programme, in states."""
_PATIENCE, _ALIKE = 0.15, 1e-9
"""If all densities are equal, as at the start of a run, closing the gap takes long and gains nothing: after this share
of the states, ten times the gap is accepted."""
_ATTEMPTS = 40
"""Number of sets that exceed the capacity by a rounding error only, after which borderline cases are skipped."""
_TINY = 1e-300
_NEVER = 1e300
"""A density that no item has; finite, so that its product with zero is zero."""
_ROUNDING = 2.0**-50


@dataclass(frozen=True, slots=True)
class Packing:
    """The items taken (ascending), their total value, and an upper bound for any packing (up to rounding)."""

    chosen: Ints
    objective: float
    bound: float

    @property
    def gap(self) -> float:
        return relative_gap(self.objective, self.bound)


_NOTHING = Packing(np.empty(0, np.int64), 0.0, 0.0)
_NOTHING.chosen.flags.writeable = False


def fits(weights: Floats, capacity: float) -> bool:
    """Return True if the weights fit, whether they are summed exactly or by numpy. There is no tolerance."""
    return bool(weights.sum() <= capacity) and math.fsum(weights.tolist()) <= capacity


def knapsack(
    values: Floats,
    weights: Floats,
    capacity: float,
    *,
    tolerance: float = 1e-7,
    state_limit: int = 100_000,
    halves: tuple[int, ...] = _HALVES,
) -> Packing:
    """Return the best packing. Items of no positive value are never taken; a capacity of zero or less takes nothing.

    Up to 24 items (twice the last of `halves`) it is exact. With more undecided items it may stop at a relative gap of
    `tolerance` (ten times that if all densities are equal), or at `state_limit`.
    """
    if not capacity > 0.0:
        return _NOTHING
    able = ((values > 0.0) & (weights <= capacity)).nonzero()[0]
    if len(able) == 0:
        return _NOTHING
    value, weight = values[able], weights[able]
    if weight.min() < 0.0 or value.max() == math.inf:
        raise InvariantViolation("a knapsack needs finite values and weights of at least zero")
    if len(able) == 1 or fits(weight, capacity):
        objective = math.fsum(value.tolist())
        return Packing(able, objective, objective)
    lightest = np.partition(weight, 1)
    if lightest[0] + lightest[1] > capacity:
        best = int(value.argmax())
        return Packing(able[best : best + 1], float(value[best]), float(value[best]))
    chosen, missing = _Search(value, weight, capacity).run(tolerance, state_limit, halves)
    objective = math.fsum(value[chosen].tolist())
    return Packing(able[chosen], objective, objective + missing)


class _Search:
    """Steps 2 to 5. Items are identified by their position in density order, solutions by their flips.

    A *flip* takes an item that the break solution lacks, or removes one that it has. Gains and added weights are
    relative to the break solution. Values and weights are scaled by powers of two, which is exact and avoids overflow.
    """

    def __init__(self, value: Floats, weight: Floats, capacity: float) -> None:
        self.weight, self.capacity = weight, capacity
        _, weight_exponent = math.frexp(capacity)
        _, self.value_exponent = math.frexp(float(value.max()))
        value, scaled = np.ldexp(value, -self.value_exponent), np.ldexp(weight, -weight_exponent)
        density = value / np.maximum(scaled, _TINY)
        self.order = np.argsort(-density, kind="stable")
        self.value, self.density = value[self.order], density[self.order]
        sorted_weight = scaled[self.order]
        filled = sorted_weight.cumsum()
        limit = math.ldexp(capacity, -weight_exponent)
        self.weight_blur = len(value) * _ROUNDING
        """Sums of weights closer than this to the remaining capacity are checked item by item."""
        self.taken = min(int(filled.searchsorted(limit, side="right")), len(value) - 1)
        self.room = limit - float(filled[self.taken - 1])
        # The break solution may seem to fit only because of rounding. With one item fewer it is as good a start.
        while self.room <= self.weight_blur and not fits(weight[np.sort(self.order[: self.taken])], capacity):
            self.taken -= 1
            self.room = limit - float(filled[self.taken - 1])
        self.multiplier = float(self.density[self.taken])
        self.loss = np.abs(self.value - self.multiplier * sorted_weight)
        self.upper = self.room * self.multiplier
        total = float(self.value[: self.taken].sum()) + self.upper
        self.value_blur = len(value) * _ROUNDING * total
        self.total = total
        self.added, self.gained = sorted_weight, self.value.copy()
        self.added[: self.taken] *= -1.0
        self.gained[: self.taken] *= -1.0
        self.flips = np.empty(0, np.int64)
        self.gain = 0.0
        """The incumbent."""
        self.doubt = 0.0
        """Best gain of a set rejected only because of rounding: no bound may be below it."""

    def run(self, tolerance: float, state_limit: int, halves: tuple[int, ...]) -> tuple[Ints, float]:
        """Return the chosen items, ascending, and the largest possible additional gain."""
        self._swap_one()
        core = np.flatnonzero(self._open(self.loss))
        # Losses that differ only by rounding count as equal; among these, items nearest to the break come first.
        nearness = np.abs(2 * (core - self.taken) + 1)
        core = core[np.lexsort((nearness, np.maximum(self.loss[core], self.value_blur)))]
        bound = self._improve(core, max(tolerance * self.total, self.value_blur), state_limit, halves)
        return self._chosen(self.flips), math.ldexp(max(bound, self.doubt) - self.gain, self.value_exponent)

    def _improve(self, core: Ints, enough: float, state_limit: int, halves: tuple[int, ...]) -> float:
        """Run steps 4 and 5; return a proven bound of the gain, at least that of the incumbent."""
        for half in halves:
            if len(core) == 0:
                return self.gain
            if len(core) <= half:
                self._enumerate(core)
                return self.gain
            self._match_halves(core[: 2 * half])
            open_core = core[self._open(self.loss[core])]
            if len(open_core) <= 2 * half:
                return self.gain
            core = open_core
            if self.upper - self.gain <= enough:
                return self.upper
        core = core[np.argsort(np.abs(self.density[core] - self.multiplier), kind="stable")]
        return self._frontier(core, enough, state_limit)

    def _open(self, loss: Floats) -> Bools:
        """Return True if a solution with this loss can still beat the incumbent."""
        undecided: Bools = loss < self.upper - self.gain - self.value_blur
        return undecided

    def _chosen(self, flips: Ints) -> Ints:
        mask = np.arange(len(self.order)) < self.taken
        mask[flips] ^= True
        return np.sort(self.order[mask])

    def _feasible(self, flips: Ints) -> bool:
        if self.room - float(self.added[flips].sum()) > self.weight_blur:
            return True
        return fits(self.weight[self._chosen(flips)], self.capacity)

    def _offer(self, gain: float, flips: Ints) -> bool:
        """Make a set the incumbent if it is better and fits exactly. Return True if no other need be tried."""
        if gain <= self.gain + self.value_blur:
            return True
        if not self._feasible(flips):
            self.doubt = max(self.doubt, gain)
            return False
        self.gain, self.flips = gain, flips
        return True

    def _swap_one(self) -> None:
        """Step 3: for each removed item (or none), find the best single item that then fits."""
        by_weight = self.taken + np.argsort(self.added[self.taken :], kind="stable")
        best = np.maximum.accumulate(self.gained[by_weight])
        places = self.added[by_weight].searchsorted(self.room - self.added[: self.taken], side="right") - 1
        gains = np.where(places >= 0, best[places], 0.0) + self.gained[: self.taken]
        given_back = int(gains.argmax())
        place, gain = int(places[given_back]), float(gains[given_back])
        alone = int(self.added[by_weight].searchsorted(self.room, side="right")) - 1
        if alone >= 0 and best[alone] >= gain:
            item = by_weight[self.gained[by_weight[: alone + 1]].argmax()]
            self._offer(float(best[alone]), np.array([item]))
        elif place >= 0:
            item = by_weight[self.gained[by_weight[: place + 1]].argmax()]
            self._offer(gain, np.array([given_back, item]))

    def _subsets(self, items: Ints) -> tuple[Floats, Floats, Ints]:
        """Return added weight and gain of every subset that may beat the incumbent, with the subset as a bit mask."""
        loss = _sums(self.loss[items])
        masks = np.flatnonzero(self._open(loss))
        return _sums(self.added[items])[masks], _sums(self.gained[items])[masks], masks

    def _enumerate(self, core: Ints) -> None:
        """Step 4 for a small core: enumerate every subset at once."""
        weight, gain, masks = self._subsets(core)
        gain[weight > self.room + self.weight_blur] = -1.0
        for _ in range(len(gain)):
            best = int(gain.argmax())
            if self._offer(float(gain[best]), core[_bits(int(masks[best]), len(core))]):
                return
            gain[best] = -1.0

    def _match_halves(self, core: Ints) -> None:
        """Step 4: find the best set of flips within `core`, with all other items as in the break solution."""
        left, right = core[0::2], core[1::2]
        weight, gain, masks = self._subsets(left)
        order = np.argsort(weight, kind="stable")
        weight, gain, masks = weight[order], gain[order], masks[order]
        best = np.maximum.accumulate(gain)
        other_weight, other_gain, other_masks = self._subsets(right)
        places = weight.searchsorted(self.room + self.weight_blur - other_weight, side="right") - 1
        for attempt in range(_ATTEMPTS):
            if attempt == _ATTEMPTS - 1:
                places = weight.searchsorted(self.room - self.weight_blur - other_weight, side="right") - 1
            totals = np.where(places >= 0, best[places] + other_gain, -1.0)
            match = int(totals.argmax())
            if places[match] < 0:
                return
            place = int(gain[: places[match] + 1].argmax())
            taken, other_taken = _bits(int(masks[place]), len(left)), _bits(int(other_masks[match]), len(right))
            if self._offer(float(totals[match]), np.concatenate((left[taken], right[other_taken]))):
                return
            places[match] = place - 1

    def _frontier(self, core: Ints, enough: float, state_limit: int) -> float:
        """Step 5 over `core`, nearest density first. Return a proven bound of the gain; improve the incumbent."""
        weight, gain = np.zeros(1), np.zeros(1)
        history: list[Ints] = []
        tried: list[int] = []
        add_density, drop_density = self._densities_to_come(core)
        bound, made = self.upper, 0
        alike = float(np.ptp(self.density[core])) <= _ALIKE * self.multiplier
        for step, item in enumerate(core.tolist()):
            if not self._open(self.loss[item]):
                continue
            made += 2 * len(weight) + _STEP
            if made > state_limit:
                return max(bound, self.gain)
            weight = np.concatenate((weight, weight + self.added[item]))
            gain = np.concatenate((gain, gain + self.gained[item]))
            order = np.argsort(weight, kind="stable")
            weight, gain = weight[order], gain[order]
            room = self.room - weight
            potential = gain + np.minimum(room * add_density[step], room * drop_density[step])
            tried.append(item)
            history.append(order)
            self._offer_best(weight, gain, history, tried)
            keep = potential > self.gain + self.value_blur
            keep[1:] &= gain[1:] > np.maximum.accumulate(gain)[:-1]
            keep = np.flatnonzero(keep)
            # Among equal weights the last has the largest value.
            keep = keep[np.append(weight[keep[1:]] > weight[keep[:-1]], True)] if len(keep) else keep
            if len(keep) == 0:
                return self.gain
            weight, gain, history[-1] = weight[keep], gain[keep], order[keep]
            bound = float(potential[keep].max())
            if bound - self.gain <= (10.0 * enough if alike and made > state_limit * _PATIENCE else enough):
                return bound
        return self.gain

    def _densities_to_come(self, core: Ints) -> tuple[Floats, Floats]:
        """Return, after each step, the highest density of an item still to be added and the lowest of one to be
        removed."""
        later = core[1:]
        adds = np.append(np.where(later >= self.taken, self.density[later], 0.0), 0.0)
        drops = np.append(np.where(later < self.taken, self.density[later], _NEVER), _NEVER)
        return np.maximum.accumulate(adds[::-1])[::-1], np.minimum.accumulate(drops[::-1])[::-1]

    def _offer_best(self, weight: Floats, gain: Floats, history: list[Ints], tried: list[int]) -> None:
        for room in (self.room + self.weight_blur, self.room, self.room - self.weight_blur):
            end = int(weight.searchsorted(room, side="right"))
            if end == 0:
                return
            state = int(gain[:end].argmax())
            if gain[state] <= self.gain + self.value_blur:
                return
            if self._offer(float(gain[state]), _flips_of(state, history, tried)):
                return


def _flips_of(state: int, history: list[Ints], tried: list[int]) -> Ints:
    """Trace a state back: each step's order maps it to its place in (kept states, the same with the item flipped)."""
    flips = []
    for step in range(len(tried) - 1, -1, -1):
        state = int(history[step][state])
        before = len(history[step - 1]) if step else 1
        if state >= before:
            flips.append(tried[step])
            state -= before
    return np.array(flips, np.int64)


def _sums(steps: Floats) -> Floats:
    """Return the sum over each subset; the bits of an index are its subset."""
    sums = np.zeros(1 << len(steps))
    for place, step in enumerate(steps.tolist()):
        size = 1 << place
        np.add(sums[:size], step, out=sums[size : 2 * size])
    return sums


def _bits(mask: int, count: int) -> Bools:
    return np.array([mask >> place & 1 for place in range(count)], bool)
