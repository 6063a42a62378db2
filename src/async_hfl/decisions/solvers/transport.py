"""Assignment of devices to gateways at least cost, with the same number of devices at each gateway.

    minimise    sum_l x_l c_l + C sum_j (o_j + s_j)
    subject to  sum_{l of i} x_l = 1    for each device i,
                floor(N / G) - s_j <= sum_{l at j} x_l <= ceil(N / G) + o_j    for each gateway j,

C exceeds the cost of any chain of moves through all gateways, so that sizes differ by more than one only if the links
leave no choice. Up to 25,000 links it is solved as a linear programme, whose vertices are integral.
Beyond that, or if the solver fails, gateways have prices: each device takes its cheapest link, prices are adjusted to
the demand for a number of iterations, and the devices that lose least by moving leave gateways that are still too full.
"""

from __future__ import annotations

import numpy as np

from async_hfl.core.arrays import Floats, Ints
from async_hfl.core.errors import SolverError
from async_hfl.decisions.solvers.highs import LinearProgramme, solve_linear

_PROGRAMMES = 25_000
_PRICE_STEPS = 100


def solve_transport(device: Ints, gateway: Ints, cost: Floats, devices: int, gateways: int) -> Ints:
    """Return the link of each device. Links are sorted by device, and each device has at least one."""
    if len(device) <= _PROGRAMMES:
        try:
            return _by_programme(device, gateway, cost, devices, gateways)
        except SolverError:  # numerical trouble in the solver: fall back to prices
            pass
    return _by_prices(device, gateway, cost, devices, gateways)


def _by_programme(device: Ints, gateway: Ints, cost: Floats, devices: int, gateways: int) -> Ints:
    links = len(device)
    unit = float(cost.max()) or 1.0
    dear = gateways + 1.0
    start = np.concatenate((2 * np.arange(links + 1), 2 * links + 1 + np.arange(2 * gateways)))
    rows = np.column_stack((device, devices + gateway)).ravel()
    numbers = devices + np.arange(gateways)
    solution = solve_linear(
        LinearProgramme(
            gain=np.concatenate((-cost / unit, np.full(2 * gateways, -dear))),
            lower=np.zeros(links + 2 * gateways),
            upper=np.full(links + 2 * gateways, np.inf),
            row_lower=np.concatenate((np.ones(devices), np.full(gateways, float(devices // gateways)))),
            row_upper=np.concatenate((np.ones(devices), np.full(gateways, float(-(-devices // gateways))))),
            column_start=start,
            row_index=np.concatenate((rows, numbers, numbers)),
            entry=np.concatenate((np.ones(2 * links), np.full(gateways, -1.0), np.ones(gateways))),
        )
    )
    share = solution.columns[:links]
    first = np.searchsorted(device, np.arange(devices))
    return np.lexsort((-share, device))[first]


def _by_prices(device: Ints, gateway: Ints, cost: Floats, devices: int, gateways: int) -> Ints:
    first = np.searchsorted(device, np.arange(devices + 1))
    price, fair = np.zeros(gateways), devices / gateways
    step = float(cost.std()) or 1.0
    used = first[:-1]
    for number in range(_PRICE_STEPS):
        used = _cheapest(cost + price[gateway], first)
        crowd = np.bincount(gateway[used], minlength=gateways)
        price += step / (1.0 + 0.1 * number) * (crowd / fair - 1.0)
    return _evened(device, gateway, cost + price[gateway], used, gateways)


def _cheapest(cost: Floats, first: Ints) -> Ints:
    """Return the first of the cheapest links of each device (sorting all links would take ten times as long)."""
    least = np.minimum.reduceat(cost, first[:-1])
    places = np.flatnonzero(cost == np.repeat(least, np.diff(first)))
    return places[np.searchsorted(places, first[:-1])]


def _evened(device: Ints, gateway: Ints, cost: Floats, used: Ints, gateways: int) -> Ints:
    """Move devices from gateways that are too full to others, those that lose least first."""
    most = -(-len(used) // gateways)
    crowd = np.bincount(gateway[used], minlength=gateways)
    own = used[device]
    others = np.flatnonzero(own != np.arange(len(device)))
    loss = cost[others] - cost[own[others]]
    used = used.copy()
    for link in others[np.argsort(loss, kind="stable")].tolist():
        old = gateway[used[device[link]]]
        new = gateway[link]
        if crowd[old] > most and crowd[new] < most:
            crowd[old] -= 1
            crowd[new] += 1
            used[device[link]] = link
    return used
