"""The assignment problem as data: links with their utilities and loads, and bounds on the objective.

It is Async-HFL's association (Yu et al., IoTDI 2023, Eq. 11) with a bonus b_l for using link l (the switching cost that
a device saves by staying). x_l in {0, 1} is 1 if link l = (i, j) is used:

    maximise    U - phi Q + sum_l x_l b_l
    subject to  sum_{l at j} x_l u_l >= U    for each gateway j       (multiplier lambda_j)
                sum_{l at j} x_l q_l <= Q    for each gateway j       (multiplier mu_j)
                sum_{l of i} x_l      = 1    for each device i
                U, Q free.

**Bound by prices.** For any lambda >= 0 with sum 1 and mu >= 0 with sum phi, no association is worth more than

    D(lambda, mu) = sum_i max_{l of i} (lambda_j u_l - mu_j q_l + b_l)                            (Lagrange),

so a bound does not depend on a solver's tolerances: it can be evaluated at any prices.

**Clipping.** The relaxation splits a device whose utility exceeds the largest possible U, as if it could serve several
gateways. If U <= V for every association, a device needs no more utility than raises its gateway to V by itself, even
with all devices of negative utility there: u_l may be clipped to max(V - n_j, 0), with n_j the sum of the negative
utilities that can reach j. This does not change the value of an optimal association, and makes the relaxation tighter.
The least V that prices prove is the fixed point of V = sum_i max_l lambda_j min(u_l, V - n_j). It is approached from
above, and each step is a valid bound. Without negative utilities the right-hand side is concave in V (a device has the
same utility at every gateway), so Newton's method can be used: the tangent lies above the curve.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from async_hfl.core.arrays import Bools, Floats, Ints

_STEPS = 60
_WORTH_CUTTING = 1e-4
"""Utilities this close to the limit are not clipped."""
_LEAST_CUT = 1e-6


@dataclass(frozen=True, slots=True)
class AssignmentProblem:
    """The problem on links sorted by device, all of them usable.

    Gateway number `gateways` is a dummy: a link to it leaves the device out, and it does not count in the minimum or
    maximum. Every device has at least one link."""

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

    def objective(self, used: Ints) -> float:
        """Return the objective with bonuses for these links, one per device."""
        utility, load = self.at_gateways(self.utility, used), self.at_gateways(self.load, used)
        return float(utility[:-1].min() - self.load_penalty * load[:-1].max() + self.bonus[used].sum())

    def at_gateways(self, amount: Floats, links: Ints) -> Floats:
        """Return the sums of the amounts of these links at their gateways, the dummy last."""
        totals = np.bincount(self.gateway[links], amount[links], self.gateways + 1)
        return totals.astype(np.float64, copy=False)

    def utility_unit(self) -> float:
        return float(np.abs(self.utility).mean()) or 1.0

    def load_unit(self) -> float:
        return float(np.abs(self.load).mean()) or 1.0


@dataclass(frozen=True, slots=True)
class Prices:
    """lambda and mu / phi: non-negative, each with sum one over the gateways."""

    utility: Floats
    load: Floats

    @staticmethod
    def normalised(utility: Floats, load: Floats) -> Prices:
        return Prices(_shares(utility), _shares(load))


def _shares(prices: Floats) -> Floats:
    prices = np.maximum(prices, 0.0)
    total = float(prices.sum())
    return prices / total if 0.0 < total < np.inf else np.full(len(prices), 1.0 / len(prices))


def price_bound(problem: AssignmentProblem, prices: Prices, allowed: Bools | None = None) -> float:
    """Return D at these prices over the allowed links, rounded up."""
    worth = np.append(prices.utility, 0.0)[problem.gateway] * problem.utility
    worth -= problem.load_penalty * np.append(prices.load, 0.0)[problem.gateway] * problem.load
    worth += problem.bonus
    if allowed is not None:
        worth[~allowed] = -np.inf
    best = np.maximum.reduceat(worth, problem.row_start()[:-1])
    return float(best.sum() + 1e-12 * np.abs(best).sum())


def clipped(problem: AssignmentProblem, prices: Prices) -> AssignmentProblem:
    """Return the problem with utilities clipped to the largest value that, by these prices, can matter."""
    negative = problem.at_gateways(np.minimum(problem.utility, 0.0), np.arange(len(problem.gateway)))
    price = np.append(prices.utility, 0.0)[problem.gateway]
    rows = problem.row_start()
    most = _most_utility(problem, price, negative, rows)
    # With fewer devices than gateways V is 0, but the utilities still need a scale.
    cut = np.maximum(most - negative, _LEAST_CUT * problem.utility_unit())[problem.gateway]
    if not (problem.utility > cut * (1.0 + _WORTH_CUTTING)).any():
        return problem
    return replace(problem, utility=np.minimum(problem.utility, cut))


def _most_utility(problem: AssignmentProblem, price: Floats, negative: Floats, rows: Ints) -> float:
    """Return the least V that these prices prove."""
    utility, first = problem.utility, rows[:-1]
    lengths = np.diff(rows)
    of_device = utility[first]
    # Dummy links have price 0 and may differ in utility.
    concave = not negative.any() and bool(((utility == np.repeat(of_device, lengths)) | (price == 0.0)).all())
    most = _sum(np.maximum.reduceat(price * utility, first))
    for _ in range(_STEPS):
        cut = np.maximum(most - negative, 0.0)[problem.gateway]
        worth = price * np.minimum(utility, cut)
        best = np.maximum.reduceat(worth, first)
        proven = _sum(best)
        if not proven < most * (1.0 - 1e-9):
            break
        if concave:
            # Derivative of the right-hand side in V: the prices of the clipped links that are some device's best.
            falling = (utility > cut) & (worth >= np.repeat(best, lengths))
            slope = float(np.maximum.reduceat(np.where(falling, price, 0.0), first).sum())
            if slope < 1.0:
                proven = (proven - slope * most) / (1.0 - slope)
        most = proven
    return most


def _sum(best: Floats) -> float:
    """Return the sum, rounded up."""
    return float(best.sum() + 1e-12 * np.abs(best).sum())
