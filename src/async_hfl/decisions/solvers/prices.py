"""Prices of utility and load at each gateway, by smoothing: nearly the bound of the linear relaxation, but faster.

The dual of the assignment problem (`assignment_problem`) is to find prices lambda, mu that minimise D. D is not smooth,
so the maximum over each device's links is replaced by the soft maximum at temperature T,

    D_T = sum_i T log sum_{l of i} exp((lambda_j u_l - mu_j q_l + b_l) / T),       D <= D_T,

whose gradient is the utility and load of the gateways when device i uses link l with the share

    x_l = exp(w_l / T) / sum_{l of i} exp(w_l / T),      w_l = lambda_j u_l - mu_j q_l + b_l.

D_T is minimised over lambda = softmax(a), mu = phi softmax(c) with limited-memory BFGS (Liu & Nocedal 1989) around the
diagonal of the prices themselves, with T decreasing in steps. The least D found is the bound; rounding starts from
the shares at the last T. One evaluation is a few passes over the links: 100,000 devices with 10 links each take a few
seconds altogether, where the linear programme takes minutes. The limits are counts, so the same problem has the same
answer everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from async_hfl.core.arrays import Floats
from async_hfl.decisions.solvers.assignment_problem import AssignmentProblem, Prices, price_bound

_TEMPERATURES = (0.1, 0.03, 0.01, 0.003, 0.001)
"""In units of mean |u| / gateways. At much higher temperatures devices are spread nearly evenly, and prices diverge."""
_STEPS, _FLAT = (40, 150), (1e-6, 1e-8)
"""Steps per temperature, and the relative improvement at which they end. The second value of each applies if only
prices bound the problem (`alone`)."""
_TRIALS = 6
"""Step halvings tried before the search at a temperature ends."""
_KEPT = 8
"""Pairs of differences from which the curvature is estimated."""
_LEAST_PRICE = 1e-4
"""Divided by the number of gateways: lower limit of a price in the scaling."""


@dataclass(frozen=True, slots=True)
class PriceSolution:
    prices: Prices
    bound: float
    share: Floats
    """The share of its device that each link gets; they sum to one per device."""


@dataclass(frozen=True, slots=True)
class _Point:
    place: Floats
    value: float
    gradient: Floats
    sharp: float
    """D itself, in the units of the search."""
    share: Floats


class _Smoothed:
    """D_T in units of mean |u| and mean load, as a function of (a, c)."""

    def __init__(self, problem: AssignmentProblem) -> None:
        self.gateways, self.gateway = problem.gateways, problem.gateway
        rows = problem.row_start()
        self.first, self.lengths = rows[:-1], np.diff(rows)
        utility_unit, load_unit = problem.utility_unit(), problem.load_unit()
        self.utility, self.load = problem.utility / utility_unit, problem.load / load_unit
        self.bonus = problem.bonus / utility_unit if problem.bonus.any() else None
        self.penalty = problem.load_penalty * load_unit / utility_unit

    def at(self, place: Floats, temperature: float) -> _Point:
        utility_price, load_price = self.prices(place)
        charge = self.penalty * load_price
        worth: Floats = np.append(utility_price, 0.0)[self.gateway] * self.utility
        worth -= np.append(charge, 0.0)[self.gateway] * self.load
        if self.bonus is not None:
            worth += self.bonus
        best = np.maximum.reduceat(worth, self.first)
        sharp = float(best.sum())
        worth -= np.repeat(best, self.lengths)
        worth /= temperature
        share = np.exp(worth, out=worth)
        total = np.add.reduceat(share, self.first)
        share /= np.repeat(total, self.lengths)
        utility = np.bincount(self.gateway, share * self.utility, self.gateways + 1)[:-1]
        load = np.bincount(self.gateway, share * self.load, self.gateways + 1)[:-1]
        gradient = np.concatenate(
            (utility_price * (utility - utility_price @ utility), -charge * (load - load_price @ load))
        )
        return _Point(place, sharp + temperature * float(np.log(total).sum()), gradient, sharp, share)

    def curvature(self, place: Floats) -> Floats:
        """Return the diagonal, in proportion to the prices: the slope of a softmax vanishes with its share."""
        least = _LEAST_PRICE / self.gateways
        return np.maximum(np.concatenate(self.prices(place)), least)

    def prices(self, place: Floats) -> tuple[Floats, Floats]:
        return _softmax(place[: self.gateways]), _softmax(place[self.gateways :])


def optimise_prices(problem: AssignmentProblem, *, alone: bool = False) -> PriceSolution:
    """Return near-optimal prices, the bound they prove, and the shares they suggest."""
    smoothed = _Smoothed(problem)
    place = np.zeros(2 * problem.gateways)
    best = point = smoothed.at(place, _TEMPERATURES[0] / problem.gateways)
    for temperature in _TEMPERATURES:
        point, seen = _descend(smoothed, point.place, temperature / problem.gateways, alone)
        best = min(best, seen, key=lambda one: one.sharp)
    prices = Prices.normalised(*smoothed.prices(best.place))
    return PriceSolution(prices, price_bound(problem, prices), point.share)


def _descend(smoothed: _Smoothed, place: Floats, temperature: float, alone: bool) -> tuple[_Point, _Point]:
    """Run limited-memory BFGS with backtracking; return the last point and the least D on the way."""
    point = best = smoothed.at(place, temperature)
    pairs: list[tuple[Floats, Floats]] = []
    for _ in range(_STEPS[alone]):
        direction = _direction(point.gradient, pairs, smoothed.curvature(point.place))
        fall = float(direction @ point.gradient)
        step, tried = 1.0, point
        for _ in range(_TRIALS):
            tried = smoothed.at(point.place - step * direction, temperature)
            if tried.value <= point.value - 1e-4 * step * fall:
                break
            step *= 0.4
        else:
            break
        moved, turned = tried.place - point.place, tried.gradient - point.gradient
        if moved @ turned > 1e-14:
            pairs = [*pairs[1 - _KEPT :], (moved, turned)]
        gained = point.value - tried.value
        point = tried
        best = min(best, point, key=lambda one: one.sharp)
        if gained <= _FLAT[alone] * abs(point.value):
            break
    return point, best


def _direction(gradient: Floats, pairs: list[tuple[Floats, Floats]], curvature: Floats) -> Floats:
    """Return the direction of the two-loop recursion around a diagonal, limited to a step of one per coordinate."""
    direction = gradient.copy()
    weights = []
    for moved, turned in reversed(pairs):
        weight = float(moved @ direction) / float(moved @ turned)
        weights.append(weight)
        direction -= weight * turned
    direction /= curvature
    if pairs:
        moved, turned = pairs[-1]
        direction *= float(moved @ turned) / float(turned @ (turned / curvature))
    else:
        direction *= 0.1 / max(float(np.abs(direction).max()), 1e-12)
    for (moved, turned), weight in zip(pairs, reversed(weights), strict=True):
        direction += moved * (weight - float(turned @ direction) / float(moved @ turned))
    return direction / max(1.0, float(np.abs(direction).max()))


def _softmax(place: Floats) -> Floats:
    weights = np.exp(place - place.max())
    share: Floats = weights / weights.sum()
    return share
