"""Balancing as data: links, what each brings and takes, and bounds on the best that can be done.

Async-HFL's association (Yu et al., IoTDI 2023, Eq. 11) with a bonus b_l for using link l (what staying spares in
switching cost). x_l in {0, 1} says whether link l = (i, j) is used:

    maximise    U - phi Q + sum_l x_l b_l
    subject to  sum_{l at j} x_l u_l >= U    for each gateway j       (multiplier lambda_j)
                sum_{l at j} x_l q_l <= Q    for each gateway j       (multiplier mu_j)
                sum_{l of i} x_l      = 1    for each device i
                U, Q free.

**The bound by prices.** For any lambda >= 0 with sum 1 and mu >= 0 with sum phi no association is worth more than

    D(lambda, mu) = sum_i max_{l of i} (lambda_j u_l - mu_j q_l + b_l)                            (Lagrange),

so a bound needs no trust in a solver's tolerances: it is evaluated at whatever prices somebody found.

**Clipping.** A device worth more than any gateway can have of U is split by the relaxation as if it could serve
several. If U <= V for every association, then a device counts in full once it alone lifts its gateway to V, whatever
devices of negative utility stand beside it: u_l may be cut to max(V - n_j, 0), n_j the sum of the negative utilities
within reach of j. No association that could be optimal changes its worth, and the relaxation gets tighter. The least V
that prices prove is the fixed point of V = sum_i max_l lambda_j min(u_l, V - n_j), approached from above: each step is
a bound. Without negative utilities the right side is concave in V (a device is worth the same at every gateway), so
Newton's method may be used: a tangent lies above, and so does the point where it meets V.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from async_hfl.core.arrays import Bools, Floats, Ints

_STEPS = 60
_WORTH_CUTTING = 1e-4
"""Utilities within so much of the cut are left as they are."""
_LEAST_CUT = 1e-6


@dataclass(frozen=True, slots=True)
class AssignmentProblem:
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

    def utility_unit(self) -> float:
        return float(np.abs(self.utility).mean()) or 1.0

    def load_unit(self) -> float:
        return float(np.abs(self.load).mean()) or 1.0


@dataclass(frozen=True, slots=True)
class Prices:
    """lambda and mu / phi: at least zero, each adding up to one over the gateways."""

    utility: Floats
    load: Floats

    @staticmethod
    def cleaned(utility: Floats, load: Floats) -> Prices:
        return Prices(_shares(utility), _shares(load))


def _shares(prices: Floats) -> Floats:
    prices = np.maximum(prices, 0.0)
    total = float(prices.sum())
    return prices / total if 0.0 < total < np.inf else np.full(len(prices), 1.0 / len(prices))


def price_bound(balance: AssignmentProblem, prices: Prices, allowed: Bools | None = None) -> float:
    """D at these prices over the links allowed, a rounding above."""
    worth = np.append(prices.utility, 0.0)[balance.gateway] * balance.utility
    worth -= balance.load_penalty * np.append(prices.load, 0.0)[balance.gateway] * balance.load
    worth += balance.bonus
    if allowed is not None:
        worth[~allowed] = -np.inf
    best = np.maximum.reduceat(worth, balance.row_start()[:-1])
    return float(best.sum() + 1e-12 * np.abs(best).sum())


def clipped(balance: AssignmentProblem, prices: Prices) -> AssignmentProblem:
    """The same problem with utilities cut to what they can count, as far as these prices prove it."""
    negative = balance.at_gateways(np.minimum(balance.utility, 0.0), np.arange(len(balance.gateway)))
    price = np.append(prices.utility, 0.0)[balance.gateway]
    rows = balance.row_start()
    most = _most_utility(balance, price, negative, rows)
    # Fewer devices than gateways leave no utility at all; but a problem without any has no scale.
    cut = np.maximum(most - negative, _LEAST_CUT * balance.utility_unit())[balance.gateway]
    if not (balance.utility > cut * (1.0 + _WORTH_CUTTING)).any():
        return balance
    return replace(balance, utility=np.minimum(balance.utility, cut))


def _most_utility(balance: AssignmentProblem, price: Floats, negative: Floats, rows: Ints) -> float:
    """The least V that these prices prove."""
    utility, first = balance.utility, rows[:-1]
    lengths = np.diff(rows)
    of_device = utility[first]
    # A link to nowhere is worth zero, and no less than that is never best.
    concave = not negative.any() and bool(((utility == np.repeat(of_device, lengths)) | (price == 0.0)).all())
    most = _sum(np.maximum.reduceat(price * utility, first))
    for _ in range(_STEPS):
        cut = np.maximum(most - negative, 0.0)[balance.gateway]
        worth = price * np.minimum(utility, cut)
        best = np.maximum.reduceat(worth, first)
        proven = _sum(best)
        if not proven < most * (1.0 - 1e-9):
            break
        if concave:
            # How fast the right side falls with V: the prices of the cut links that are some device's best.
            falling = (utility > cut) & (worth >= np.repeat(best, lengths))
            slope = float(np.maximum.reduceat(np.where(falling, price, 0.0), first).sum())
            if slope < 1.0:
                proven = (proven - slope * most) / (1.0 - slope)
        most = proven
    return most


def _sum(best: Floats) -> float:
    """Added up, a rounding above."""
    return float(best.sum() + 1e-12 * np.abs(best).sum())
