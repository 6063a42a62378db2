"""Local search for a balanced association: move one device, or swap two.

The objective (`assignment_problem`): maximise min_j U_j - phi max_j Q_j + sum_l x_l b_l, with U_j and Q_j the utility
and load of gateway j.

With the minimum over gateways the search would stall: if two gateways have the least utility, no single exchange
improves it. Exchanges are therefore scored by the soft minimum and maximum, -log(sum_j exp(-t U_j)) / t and
log(sum_j exp(s Q_j)) / s, in which every gateway counts a little and the worst one most; t and s increase during the
search. The association that is best by the true objective is kept.

Only exchanges with one of the most critical gateways are evaluated, all of them at once in numpy, and swaps only if no
move helps, since there are a hundred times as many. From a local optimum a few devices are reassigned at random and the
search is repeated until `effort` (a count, not a time) is used up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from async_hfl.core.arrays import Floats, Ints
from async_hfl.core.randomness import scramble
from async_hfl.decisions.solvers.assignment_problem import AssignmentProblem

_SHARPNESS = (3.0, 30.0, 300.0)
"""t in units of 1 / mean |u|, s in units of 1 / mean load of a link."""
_WORST = 3
"""Gateways tried per step, the most critical first."""
_PAIRS = 100_000
"""Largest number of swaps evaluated for one gateway; the least critical partners come first."""
_OVERHEAD = 3_000
"""Fixed effort of evaluating one gateway, in addition to the number of its exchanges."""
_SCATTERED = 5
"""Devices reassigned at random at a restart."""


def improve(problem: AssignmentProblem, used: Ints, *, enough: float, effort: int, seed: int) -> Ints:
    """Return the best links found, one per device, starting from `used`; stop once the objective reaches `enough`."""
    search = _Search(problem, used, enough, effort)
    for sharpness in _SHARPNESS:
        search.descend(sharpness)
    number = 0
    while search.effort > 0 and search.best_objective < enough:
        search.scatter(scramble(seed ^ number))
        search.descend(_SHARPNESS[-1])
        number += 1
    return search.best


class _Search:
    """The state of the search (mutable, local to one call) and the best association so far."""

    def __init__(self, problem: AssignmentProblem, used: Ints, enough: float, effort: int) -> None:
        self.problem, self.enough, self.effort = problem, enough, effort
        self.row_start = problem.row_start()
        self.by_gateway = np.argsort(problem.gateway, kind="stable")
        self.column_start = np.searchsorted(problem.gateway[self.by_gateway], np.arange(problem.gateways + 2))
        self.utility_unit, self.load_unit = problem.utility_unit(), problem.load_unit()
        self.best, self.best_objective = used.copy(), problem.objective(used)
        self._start_from(used)

    def _start_from(self, used: Ints) -> None:
        problem = self.problem
        self.used, self.place = used.copy(), problem.gateway[used]
        self.utility = problem.at_gateways(problem.utility, used)
        self.load = problem.at_gateways(problem.load, used)
        self.bonus = float(problem.bonus[used].sum())

    def descend(self, sharpness: float) -> None:
        """Apply the best exchange of the most critical gateway that has an improving one, until there is none."""
        t, s = sharpness / self.utility_unit, sharpness / self.load_unit
        least = 1e-9 * self.utility_unit
        while self.effort > 0 and self.best_objective < self.enough:
            soft = _SoftObjective(self.utility, self.load, t, s, self.problem.load_penalty)
            for gateway in soft.most_critical(_WORST):
                links = self._best_exchange(gateway, soft, least)
                if len(links):
                    break
            else:
                return
            self._take(links)

    def _take(self, links: Ints) -> None:
        problem = self.problem
        for link in links.tolist():
            device, old = problem.device[link], self.used[problem.device[link]]
            self.bonus += problem.bonus[link] - problem.bonus[old]
            for sign, one in ((-1.0, old), (1.0, link)):
                self.utility[problem.gateway[one]] += sign * problem.utility[one]
                self.load[problem.gateway[one]] += sign * problem.load[one]
            self.used[device], self.place[device] = link, problem.gateway[link]
        aim = float(self.utility[:-1].min() - problem.load_penalty * self.load[:-1].max() + self.bonus)
        if aim > self.best_objective:
            self.best, self.best_objective = self.used.copy(), aim

    def scatter(self, seed: int) -> None:
        """Restart from the best association with a few devices reassigned."""
        self._start_from(self.best)
        for _ in range(_SCATTERED):
            seed = scramble(seed)
            device = seed % self.problem.devices
            first, end = int(self.row_start[device]), int(self.row_start[device + 1])
            self._take(np.array([first + (seed >> 32) % (end - first)]))

    def _best_exchange(self, worst: int, soft: _SoftObjective, least: float) -> Ints:
        """Return the links to switch to: one for a move, two for a swap, none if no exchange with `worst` gains at
        least `least`."""
        problem, used = self.problem, self.used
        column = self.by_gateway[self.column_start[worst] : self.column_start[worst + 1]]
        here = self.place[problem.device[column]] == worst
        members, arriving = problem.device[column[here]], column[~here]
        leaving = _ranges(self.row_start[members], self.row_start[members + 1])
        leaving = leaving[problem.gateway[leaving] != worst]
        left, given = used[problem.device[leaving]], used[problem.device[arriving]]
        target, source = problem.gateway[leaving], problem.gateway[given]
        out = _Change(
            target,
            -problem.utility[left],
            problem.utility[leaving],
            -problem.load[left],
            problem.load[leaving],
            problem.bonus[leaving] - problem.bonus[left],
        )
        in_ = _Change(
            source,
            problem.utility[arriving],
            -problem.utility[given],
            problem.load[arriving],
            -problem.load[given],
            problem.bonus[arriving] - problem.bonus[given],
        )
        self.effort -= len(leaving) + len(arriving) + _OVERHEAD
        best, gains = self._weigh(worst, out.followed_by(in_), soft, least)
        if gains:
            return np.array([leaving[best] if best < len(leaving) else arriving[best - len(leaving)]])
        first, second = self._pairs(target, source, soft)
        self.effort -= len(first)
        best, gains = self._weigh(worst, out.at(first).with_(in_.at(second)), soft, least)
        return np.array([leaving[first[best]], arriving[second[best]]]) if gains else np.empty(0, np.int64)

    def _weigh(self, worst: int, change: _Change, soft: _SoftObjective, least: float) -> tuple[int, bool]:
        """Return the best of these exchanges, and True if it is an improvement."""
        if len(change.partner) == 0:
            return -1, False
        scores = soft.scores(worst, change)
        best = int(scores.argmax())
        return best, bool(scores[best] > soft.score + least)

    def _pairs(self, target: Ints, source: Ints, soft: _SoftObjective) -> tuple[Ints, Ints]:
        """Return all pairs (device leaving for b, device arriving from b) over all partner gateways b, or the least
        critical ones if there are too many."""
        size = self.problem.gateways + 1
        leaving, arriving = np.bincount(target, minlength=size), np.bincount(source, minlength=size)
        source_start = np.cumsum(arriving) - arriving
        pairs = leaving * arriving
        if pairs.sum() > _PAIRS:
            order = np.argsort(soft.critical, kind="stable")
            arriving[order[np.cumsum(pairs[order]) > _PAIRS]] = 0
        by_source = np.argsort(source, kind="stable")
        repeats = arriving[target]
        out = np.repeat(np.arange(len(target)), repeats)
        first = source_start[target]
        return out, by_source[_ranges(first, first + repeats)]


@dataclass(frozen=True, slots=True)
class _Change:
    """Exchanges between one gateway and one partner each: the change in utility and load on either side."""

    partner: Ints
    utility_here: Floats
    utility_there: Floats
    load_here: Floats
    load_there: Floats
    bonus: Floats

    def at(self, places: Ints) -> _Change:
        return _Change(*(getattr(self, name)[places] for name in self.__slots__))

    def followed_by(self, other: _Change) -> _Change:
        return _Change(*(np.concatenate((getattr(self, name), getattr(other, name))) for name in self.__slots__))

    def with_(self, other: _Change) -> _Change:
        """Return the sum of two exchanges, row by row, with the same partners."""
        added = (getattr(self, name) + getattr(other, name) for name in self.__slots__[1:])
        return _Change(self.partner, *added)


class _SoftObjective:
    """The soft objective at the current utilities and loads of the gateways; the dummy gateway does not count."""

    def __init__(self, utility: Floats, load: Floats, t: float, s: float, penalty: float) -> None:
        self.t, self.s, self.penalty = t, s, penalty
        self.utility, self.load = utility - utility[:-1].min(), load - load[:-1].max()
        self.counts = np.ones(len(utility))
        self.counts[-1] = 0.0
        self.poor, self.full = np.zeros(len(utility)), np.zeros(len(load))
        np.exp(-t * self.utility[:-1], out=self.poor[:-1])
        np.exp(s * self.load[:-1], out=self.full[:-1])
        total_poor, total_full = self.poor.sum(), self.full.sum()
        self.score = float(-np.log(total_poor) / t - penalty * np.log(total_full) / s)
        self.critical = np.maximum(self.poor / total_poor, self.full / total_full if penalty > 0.0 else 0.0)

    def most_critical(self, count: int) -> list[int]:
        order: list[int] = np.argsort(-self.critical[:-1], kind="stable")[:count].tolist()
        return order

    def scores(self, worst: int, change: _Change) -> Floats:
        """Return the soft objective after each exchange between `worst` and its partner."""
        partner = change.partner
        counts = self.counts[partner]
        poor = _others(self.poor, worst)[partner]
        poor += _exp(-self.t * (self.utility[worst] + change.utility_here))
        poor += counts * _exp(-self.t * (self.utility[partner] + change.utility_there))
        full = _others(self.full, worst)[partner]
        full += _exp(self.s * (self.load[worst] + change.load_here))
        full += counts * _exp(self.s * (self.load[partner] + change.load_there))
        score: Floats = change.bonus - np.log(np.maximum(poor, 1e-300)) / self.t
        score -= self.penalty / self.s * np.log(np.maximum(full, 1e-300))
        return score


def _others(terms: Floats, one: int) -> Floats:
    """Return, for each partner, the sum of the terms of all gateways but `one` and the partner, without subtraction."""
    rest = terms.copy()
    rest[one] = 0.0
    before = np.concatenate(((0.0,), np.cumsum(rest)[:-1]))
    after = np.concatenate((np.cumsum(rest[::-1])[::-1][1:], (0.0,)))
    return before + after


def _exp(exponent: Floats) -> Floats:
    return np.exp(np.minimum(exponent, 600.0))


def _ranges(start: Ints, end: Ints) -> Ints:
    """Return start[0] .. end[0] - 1, start[1] .. end[1] - 1 and so on, in one array."""
    length = end - start
    skipped = np.cumsum(length) - length
    ranges: Ints = np.arange(int(length.sum())) + np.repeat(start - skipped, length)
    return ranges
