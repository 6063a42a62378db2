"""Association that balances learning utility and load over the gateways.

Yu et al., "Async-HFL: Efficient and Robust Asynchronous Federated Learning in Hierarchical IoT Networks", IoTDI 2023,
Eq. 11. With x_l in {0, 1} for each feasible link l = (i, j), u_i the learning utility, R_l the data rate, B_j the
bandwidth, and only the gateways j that some link reaches:

    maximise    U - phi Q
    subject to  sum_{l at j} x_l u_i       >= U      for each gateway j       (multiplier lambda_j)
                sum_{l at j} x_l R_l / B_j <= Q      for each gateway j       (multiplier mu_j)
                sum_{l of i} x_l            = 1      for each device i with a link
                U, Q free.

Where a device may be left out (`every_device` false) it has one link more, to nowhere, with neither utility nor load.
A switching cost c is a bonus of c for each device that stays, added to the aim but not to the objective reported.

How: the linear relaxation (HiGHS) has a vertex in which all but some 2 G devices are whole; the others are rounded so
that each gateway gets about the utility it has in the relaxation; moves and swaps do the rest (`exchanges`).

The bound does not trust the solver's tolerances. For any lambda >= 0 with sum 1 and mu >= 0 with sum phi,

    sum_i max_{l of i} (lambda_j u_i - mu_j R_l / B_j)

is at least the optimum (Lagrange); it is evaluated at the solver's multipliers, cleaned to meet the two sums.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from async_hfl.core.policies import Association, AssociationProblem, Floats, Ints, Need, association_objective
from async_hfl.decisions.exchanges import Balance, improve
from async_hfl.decisions.solver import LinearProgramme, LinearSolution, solve_linear

_WHOLE = 1.0 - 1e-6
_LUMP = 5.0
"""A device of so many times the mean utility is settled before the others."""
_RELAXATION = 150
"""Effort of one relaxation per link."""
_LEAST_EFFORT = 400_000
_EFFORT_PER_LINK = 2_000
"""A small problem that ten times as much would not improve (60 x 6: the same gaps in a sixth of the time)."""


@dataclass(frozen=True, slots=True)
class BalancedUtility:
    """Eq. 11, to a proven gap. The limits are counts, never seconds, so that runs repeat."""

    needs: ClassVar[frozenset[Need]] = frozenset({"utility"})
    revisits: ClassVar[bool] = True

    target_gap: float = 5e-4
    """The local search stops here."""
    effort: int = 3_000_000
    """Exchanges weighed at most, a gateway looked at counting for some; about a tenth of a second."""

    def solve(self, problem: AssociationProblem) -> Association:
        gateway_of = np.full(len(problem.learning_utility), -1, np.int64)
        if len(problem.link_device) == 0:
            return Association(gateway_of, 0.0, 0.0)
        balance, devices, gateways = _balance(problem)
        relaxed = solve_linear(_programme(balance))
        aim_bound = bound = _bound(balance, relaxed)
        if balance.bonus.any():
            plain = replace(balance, bonus=np.zeros(len(balance.bonus)))
            bound = _bound(plain, solve_linear(_programme(plain)))
        enough = aim_bound - self.target_gap * abs(aim_bound)
        effort = min(self.effort, max(_LEAST_EFFORT, _EFFORT_PER_LINK * len(balance.device)))
        settled, spent = _settle_lumps(balance, relaxed, effort // 2)
        used = _start(balance, settled.columns[:-2])
        used = improve(balance, used, enough=enough, effort=effort - spent, seed=problem.seed)
        gateway_of[devices] = np.append(gateways, -1)[balance.gateway[used]]
        objective = association_objective(problem, gateway_of)
        return Association(gateway_of, objective, max(bound, objective))


def _balance(problem: AssociationProblem) -> tuple[Balance, Ints, Ints]:
    """The problem on the devices and gateways that have a link, with their numbers."""
    devices, device = np.unique(problem.link_device, return_inverse=True)
    gateways, gateway = np.unique(problem.link_gateway, return_inverse=True)
    utility = problem.learning_utility[problem.link_device]
    load = problem.link_data_rate / problem.bandwidth[problem.link_gateway]
    stays = problem.current[problem.link_device] == problem.link_gateway
    bonus = np.where(stays, problem.switching_cost, 0.0)
    if not problem.every_device:
        count, none = len(devices), np.zeros(len(devices))
        device = np.concatenate((device, np.arange(count)))
        order = np.argsort(device, kind="stable")
        device = device[order]
        gateway = np.concatenate((gateway, np.full(count, len(gateways))))[order]
        utility, load, bonus = (np.concatenate((column, none))[order] for column in (utility, load, bonus))
    balance = Balance(len(devices), len(gateways), device, gateway, utility, load, bonus, problem.load_penalty)
    return balance, devices, gateways


def _programme(balance: Balance) -> LinearProgramme:
    """The relaxation in units of mean |u| and mean load, so that the solver's absolute tolerances mean something.

    Columns: links, U, Q. Rows: devices, utility of each gateway, load of each gateway.
    """
    devices, gateways, links = balance.devices, balance.gateways, len(balance.device)
    utility_unit = float(np.abs(balance.utility).mean()) or 1.0
    load_unit = float(np.abs(balance.load).mean()) or 1.0
    load_price = balance.load_penalty * load_unit / utility_unit
    rows = np.column_stack((balance.device, devices + balance.gateway, devices + gateways + balance.gateway))
    entries = np.column_stack((np.ones(links), balance.utility / utility_unit, balance.load / load_unit))
    real = np.ones((links, 3), bool)
    real[balance.gateway == gateways, 1:] = False
    lengths = np.concatenate(((0,), real.sum(axis=1), (gateways, gateways)))
    gain = np.concatenate((balance.bonus / utility_unit, (1.0, -load_price))) / max(1.0, load_price)
    endless, none = np.full(gateways, np.inf), np.zeros(gateways)
    return LinearProgramme(
        gain=gain,
        lower=np.concatenate((np.zeros(links), (-np.inf, -np.inf))),
        upper=np.full(links + 2, np.inf),
        row_lower=np.concatenate((np.ones(devices), none, -endless)),
        row_upper=np.concatenate((np.ones(devices), endless, none)),
        column_start=np.cumsum(lengths),
        row_index=np.concatenate((rows[real], np.arange(devices, devices + 2 * gateways))),
        entry=np.concatenate((entries[real], np.full(2 * gateways, -1.0))),
    )


def _bound(balance: Balance, relaxed: LinearSolution) -> float:
    """The Lagrangian bound at the solver's multipliers, a rounding above."""
    utility_price, load_price = np.split(np.abs(relaxed.row_duals[balance.devices :]), 2)
    utility_price = _shares(utility_price)[balance.gateway]
    load_price = balance.load_penalty * _shares(load_price)[balance.gateway]
    worth = utility_price * balance.utility - load_price * balance.load + balance.bonus
    best = np.maximum.reduceat(worth, balance.row_start()[:-1])
    return float(best.sum() + 1e-12 * np.abs(best).sum())


def _shares(prices: Floats) -> Floats:
    """Prices that add up to one over the gateways, and zero for nowhere."""
    total = float(prices.sum())
    shares = prices / total if total > 0.0 else np.full(len(prices), 1.0 / len(prices))
    return np.append(shares, 0.0)


def _settle_lumps(balance: Balance, relaxed: LinearSolution, effort: int) -> tuple[LinearSolution, int]:
    """Before rounding, settle the split devices of large utility one by one, and relax the rest around them anew.

    Such a device is worth a dozen others, so no single move or swap makes up for having rounded it the wrong way.
    Returns the last relaxation and the effort it took.
    """
    programme, rows, spent = _programme(balance), balance.row_start(), 0
    size = np.maximum.reduceat(np.abs(balance.utility), rows[:-1])
    lump = _LUMP * float(size.mean())
    while True:
        share = relaxed.columns[:-2]
        split = np.flatnonzero((np.maximum.reduceat(share, rows[:-1]) < _WHOLE) & (size > lump))
        if len(split) == 0:
            return relaxed, spent
        device = int(split[size[split].argmax()])
        links = rows[device] + np.flatnonzero(share[rows[device] : rows[device + 1]] > 1.0 - _WHOLE)
        spent += len(links) * _RELAXATION * len(balance.device)
        if spent > effort:
            return relaxed, spent - len(links) * _RELAXATION * len(balance.device)
        tried = []
        for link in links.tolist():
            lower = programme.lower.copy()
            lower[link] = 1.0
            tried.append(replace(programme, lower=lower))
        solutions = [solve_linear(one) for one in tried]
        best = int(np.argmax([solution.objective for solution in solutions]))
        programme, relaxed = tried[best], solutions[best]


def _start(balance: Balance, share: Floats) -> Ints:
    """Round the relaxation: the largest devices first, each to where the utility promised is most lacking.

    Devices that stay cost nothing, so where staying has a bonus the association as it is may be the better start.
    """
    rows = balance.row_start()
    used = np.lexsort((-share, balance.device))[rows[:-1]]
    split = np.flatnonzero(share[used] < _WHOLE)
    in_part = np.isin(balance.device, split) & (share > 1.0 - _WHOLE)
    lacking = balance.at_gateways(balance.utility * share, np.flatnonzero(in_part))
    for device in split[np.argsort(-np.abs(balance.utility[rows[split]]), kind="stable")].tolist():
        links = rows[device] + np.flatnonzero(in_part[rows[device] : rows[device + 1]])
        utility, gateway = balance.utility[links], balance.gateway[links]
        choice = int((utility**2 - 2.0 * utility * lacking[gateway]).argmin())
        used[device] = links[choice]
        lacking[gateway[choice]] -= utility[choice]
    staying = np.flatnonzero(balance.bonus > 0.0)
    if len(staying):
        stay = used.copy()
        stay[balance.device[staying]] = staying
        if balance.aim(stay) > balance.aim(used):
            return stay
    return used
