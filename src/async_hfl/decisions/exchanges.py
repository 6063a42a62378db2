"""Local search for a balanced association: move one device, or let two devices change places.

The aim, as in Eq. 11 with a bonus b_l for using link l (what staying spares in switching cost):

    maximise  min_j U_j - phi max_j Q_j + sum_l b_l,    U_j = sum_i I_ij u_i,    Q_j = sum_i I_ij R_ij / B_j.

A minimum over gateways stalls: while two gateways are equally poor no single exchange helps. So exchanges are judged
by the soft minimum and maximum, -log(sum_j exp(-t U_j)) / t and log(sum_j exp(s Q_j)) / s, where every gateway counts a
little, the worst most; t and s are sharpened as the search goes on. What is kept is the best of the true aim.

Only exchanges that touch one of the most critical gateways are weighed, all of them at once in numpy. From a local
optimum a few devices are scattered and the search repeated, while `effort` (a count, not a clock) lasts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from async_hfl.core.policies import Floats, Ints
from async_hfl.core.randomness import scramble

_SHARPNESS = (3.0, 30.0, 300.0)
"""t in units of 1 / mean |u|, s in units of 1 / mean load of a link."""
_WORST = 3
"""Gateways tried at a step, the most critical first."""
_PAIRS = 100_000
"""Swaps weighed for one gateway at most: partners with the most to give come first."""
_OVERHEAD = 3_000
"""Effort of weighing one gateway's exchanges over and above their number."""
_SCATTERED = 5


@dataclass(frozen=True, slots=True)
class Balance:
    """The problem on links sorted by device, all of them usable. Gateway number `gateways` is nowhere: a link to it
    leaves the device out, and it does not count in minimum or maximum. Every device has at least one link."""

    devices: int
    gateways: int
    device: Ints
    gateway: Ints
    utility: Floats
    load: Floats
    bonus: Floats
    load_penalty: float

    def row_start(self) -> Ints:
        return np.searchsorted(self.device, np.arange(self.devices + 1)).astype(np.int64)

    def aim(self, used: Ints) -> float:
        """The true aim of using these links, one per device."""
        utility, load = self.at_gateways(self.utility, used), self.at_gateways(self.load, used)
        return float(utility[:-1].min() - self.load_penalty * load[:-1].max() + self.bonus[used].sum())

    def at_gateways(self, amount: Floats, links: Ints) -> Floats:
        """The amounts of these links added up at their gateways, nowhere last."""
        totals = np.bincount(self.gateway[links], amount[links], self.gateways + 1)
        return totals.astype(np.float64, copy=False)


def improve(balance: Balance, used: Ints, *, enough: float, effort: int, seed: int) -> Ints:
    """The best links found, one per device, beginning with `used`. Stops early once the aim reaches `enough`."""
    search = _Search(balance, used, enough, effort)
    for sharpness in _SHARPNESS:
        search.descend(sharpness)
    number = 0
    while search.effort > 0 and search.best_aim < enough:
        search.scatter(scramble(seed ^ number))
        search.descend(_SHARPNESS[-1])
        number += 1
    return search.best


class _Search:
    """Where the search is (mutable, local to one call) and the best it has seen."""

    def __init__(self, balance: Balance, used: Ints, enough: float, effort: int) -> None:
        self.balance, self.enough, self.effort = balance, enough, effort
        self.row_start = balance.row_start()
        self.by_gateway = np.argsort(balance.gateway, kind="stable")
        self.column_start = np.searchsorted(balance.gateway[self.by_gateway], np.arange(balance.gateways + 2))
        self.utility_unit = float(np.abs(balance.utility).mean()) or 1.0
        self.load_unit = float(np.abs(balance.load).mean()) or 1.0
        self.best, self.best_aim = used.copy(), balance.aim(used)
        self._stand(used)

    def _stand(self, used: Ints) -> None:
        balance = self.balance
        self.used, self.place = used.copy(), balance.gateway[used]
        self.utility = balance.at_gateways(balance.utility, used)
        self.load = balance.at_gateways(balance.load, used)

    def descend(self, sharpness: float) -> None:
        """Take the best exchange of the most critical gateway that has one, until none has."""
        softness = _Soft(self.balance, sharpness / self.utility_unit, sharpness / self.load_unit)
        least = 1e-9 * self.utility_unit
        while self.effort > 0 and self.best_aim < self.enough:
            view = softness.seen(self.utility, self.load)
            for gateway in view.most_critical(_WORST):
                links = self._best_exchange(gateway, view, least)
                if len(links):
                    break
            else:
                return
            self._take(links)

    def _take(self, links: Ints) -> None:
        balance = self.balance
        for link in links.tolist():
            device, old = balance.device[link], self.used[balance.device[link]]
            for sign, one in ((-1.0, old), (1.0, link)):
                self.utility[balance.gateway[one]] += sign * balance.utility[one]
                self.load[balance.gateway[one]] += sign * balance.load[one]
            self.used[device], self.place[device] = link, balance.gateway[link]
        aim = balance.aim(self.used)
        if aim > self.best_aim:
            self.best, self.best_aim = self.used.copy(), aim

    def scatter(self, seed: int) -> None:
        """From the best so far, send a few devices elsewhere."""
        self._stand(self.best)
        for _ in range(_SCATTERED):
            seed = scramble(seed)
            device = seed % self.balance.devices
            first, end = int(self.row_start[device]), int(self.row_start[device + 1])
            self._take(np.array([first + (seed >> 32) % (end - first)]))

    def _best_exchange(self, worst: int, view: _View, least: float) -> Ints:
        """Links to change over to: one for a move, two for a swap, none if nothing with `worst` gains at `least`."""
        balance, used = self.balance, self.used
        column = self.by_gateway[self.column_start[worst] : self.column_start[worst + 1]]
        here = self.place[balance.device[column]] == worst
        members, arriving = balance.device[column[here]], column[~here]
        leaving = _ranges(self.row_start[members], self.row_start[members + 1])
        leaving = leaving[balance.gateway[leaving] != worst]
        left, given = used[balance.device[leaving]], used[balance.device[arriving]]
        target, source = balance.gateway[leaving], balance.gateway[given]
        out, in_ = self._pairs(target, source, view)
        self.effort -= len(leaving) + len(arriving) + len(out) + _OVERHEAD

        def each(of_leaving: Floats, of_arriving: Floats) -> Floats:
            return np.concatenate((of_leaving, of_arriving, of_leaving[out] + of_arriving[in_]))

        scores = view.scores(
            worst,
            np.concatenate((target, source, target[out])),
            each(-balance.utility[left], balance.utility[arriving]),
            each(balance.utility[leaving], -balance.utility[given]),
            each(-balance.load[left], balance.load[arriving]),
            each(balance.load[leaving], -balance.load[given]),
            each(balance.bonus[leaving] - balance.bonus[left], balance.bonus[arriving] - balance.bonus[given]),
        )
        best = int(scores.argmax()) if len(scores) else -1
        if best < 0 or scores[best] <= view.score + least:
            return np.empty(0, np.int64)
        if best < len(leaving):
            return np.array([leaving[best]])
        best -= len(leaving)
        if best < len(arriving):
            return np.array([arriving[best]])
        best -= len(arriving)
        return np.array([leaving[out[best]], arriving[in_[best]]])

    def _pairs(self, target: Ints, source: Ints, view: _View) -> tuple[Ints, Ints]:
        """Each (leaving for b, arriving from b), for all partner gateways b, or the least critical ones if too many."""
        size = self.balance.gateways + 1
        leaving, arriving = np.bincount(target, minlength=size), np.bincount(source, minlength=size)
        source_start = np.cumsum(arriving) - arriving
        pairs = leaving * arriving
        if pairs.sum() > _PAIRS:
            order = np.argsort(view.critical, kind="stable")
            arriving[order[np.cumsum(pairs[order]) > _PAIRS]] = 0
        by_source = np.argsort(source, kind="stable")
        repeats = arriving[target]
        out = np.repeat(np.arange(len(target)), repeats)
        first = source_start[target]
        return out, by_source[_ranges(first, first + repeats)]


@dataclass(frozen=True, slots=True)
class _Soft:
    """The soft aim at one sharpness."""

    balance: Balance
    t: float
    s: float

    def seen(self, utility: Floats, load: Floats) -> _View:
        gateways = self.balance.gateways
        least, most = float(utility[:gateways].min()), float(load[:gateways].max())
        poor, full = np.zeros(gateways + 1), np.zeros(gateways + 1)
        np.exp(-self.t * (utility[:gateways] - least), out=poor[:gateways])
        np.exp(self.s * (load[:gateways] - most), out=full[:gateways])
        return _View(self, utility - least, load - most, poor, full)


class _View:
    """All gateways as one step of the search sees them: how poor, how full, how critical."""

    def __init__(self, soft: _Soft, utility: Floats, load: Floats, poor: Floats, full: Floats) -> None:
        self.soft, self.utility, self.load, self.poor, self.full = soft, utility, load, poor, full
        penalty = soft.balance.load_penalty
        total_poor, total_full = poor.sum(), full.sum()
        self.score = float(-np.log(total_poor) / soft.t - penalty * np.log(total_full) / soft.s)
        self.critical = np.maximum(poor / total_poor, full / total_full if penalty > 0.0 else 0.0)
        self.counts = np.ones(len(poor))
        self.counts[-1] = 0.0

    def most_critical(self, count: int) -> list[int]:
        order: list[int] = np.argsort(-self.critical[:-1], kind="stable")[:count].tolist()
        return order

    def scores(
        self,
        worst: int,
        partner: Ints,
        utility_here: Floats,
        utility_there: Floats,
        load_here: Floats,
        load_there: Floats,
        bonus: Floats,
    ) -> Floats:
        """The soft aim after each exchange between `worst` and its partner."""
        soft, counts = self.soft, self.counts[partner]
        poor = _others(self.poor, worst)[partner]
        poor += _exp(-soft.t * (self.utility[worst] + utility_here))
        poor += counts * _exp(-soft.t * (self.utility[partner] + utility_there))
        full = _others(self.full, worst)[partner]
        full += _exp(soft.s * (self.load[worst] + load_here))
        full += counts * _exp(soft.s * (self.load[partner] + load_there))
        score: Floats = bonus - np.log(np.maximum(poor, 1e-300)) / soft.t
        score -= soft.balance.load_penalty / soft.s * np.log(np.maximum(full, 1e-300))
        return score


def _others(terms: Floats, one: int) -> Floats:
    """For each partner the sum of the terms but those of `one` and of the partner, added up without subtraction."""
    rest = terms.copy()
    rest[one] = 0.0
    before = np.concatenate(((0.0,), np.cumsum(rest)[:-1]))
    after = np.concatenate((np.cumsum(rest[::-1])[::-1][1:], (0.0,)))
    return before + after


def _exp(exponent: Floats) -> Floats:
    return np.exp(np.minimum(exponent, 600.0))


def _ranges(start: Ints, end: Ints) -> Ints:
    """start[0] .. end[0] - 1, start[1] .. end[1] - 1 and so on, in one array."""
    length = end - start
    skipped = np.cumsum(length) - length
    ranges: Ints = np.arange(int(length.sum())) + np.repeat(start - skipped, length)
    return ranges
