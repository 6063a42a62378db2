"""The linear relaxation of the assignment problem, with its few large devices fixed by branch and bound.

At a vertex of the relaxation with G gateways, all but about 2 G devices are integral; the others must be rounded. A
*large* device, one of high utility, outweighs a dozen others: no move or swap repairs a wrong placement, and the
relaxation, which splits it, has a higher value than any association. Large devices are therefore fixed one at a time,
largest first, at each possible gateway, best node first (branch and bound, Land & Doig 1960). Once the best node splits
no large device, its value is an upper bound for any association, and only small devices remain to be rounded. The
number of relaxations is limited; the bound is then that of the best open node.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from async_hfl.core.arrays import Bools, Floats, Ints
from async_hfl.core.errors import SolverError
from async_hfl.decisions.solvers.assignment_problem import AssignmentProblem, Prices, price_bound
from async_hfl.decisions.solvers.highs import LinearProgramme, LinearSolution, LinearSolver

WHOLE = 1.0 - 1e-6
_LARGE = 3.0
"""Multiple of the mean utility from which a device counts as large."""


def programme(problem: AssignmentProblem) -> LinearProgramme:
    """Return the relaxation in units of mean |u| and mean load, which suit the solver's absolute tolerances.

    Columns: links, U, Q. Rows: devices, utility of each gateway, load of each gateway.
    """
    devices, gateways, links = problem.devices, problem.gateways, len(problem.device)
    utility_unit, load_unit = problem.utility_unit(), problem.load_unit()
    load_price = problem.load_penalty * load_unit / utility_unit
    rows = np.column_stack((problem.device, devices + problem.gateway, devices + gateways + problem.gateway))
    entries = np.column_stack((np.ones(links), problem.utility / utility_unit, problem.load / load_unit))
    real = np.ones((links, 3), bool)
    real[problem.gateway == gateways, 1:] = False
    lengths = np.concatenate(((0,), real.sum(axis=1), (gateways, gateways)))
    gain = np.concatenate((problem.bonus / utility_unit, (1.0, -load_price)))
    gain /= np.abs(gain).max()
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


def prices_of(problem: AssignmentProblem, solution: LinearSolution) -> Prices:
    """Return the multipliers of the gateways' rows, made non-negative."""
    utility, load = np.split(np.abs(solution.row_duals[problem.devices :]), 2)
    return Prices.normalised(utility, load)


@dataclass(frozen=True, slots=True)
class _Node:
    fixed: tuple[int, ...]
    """Links that are fixed."""
    share: Floats
    bound: float


class Relaxation:
    """A tree of relaxations (mutable, local to one call).

    The node of the best bound comes first; among equal bounds, the deepest.
    """

    def __init__(self, problem: AssignmentProblem) -> None:
        self.problem = problem
        self.programme = programme(problem)
        self.solver = LinearSolver(self.programme)
        self.rows = problem.row_start()
        self.size = np.maximum.reduceat(np.abs(problem.utility), self.rows[:-1])
        self.unit = problem.utility_unit() * max(1.0, problem.devices / problem.gateways)
        self.made = 0
        self.prices = Prices.normalised(np.zeros(problem.gateways), np.zeros(problem.gateways))
        """Multipliers of the relaxation with nothing fixed."""
        self.open: list[tuple[float, int, int, _Node]] = []
        """Sorted by bound (to nine digits), depth, number."""

        self._add((), np.inf)
        if not self.open:
            raise SolverError("the solver found no relaxed association although each device has a link")

    def bound(self) -> float:
        """Return the upper bound of any association, as far as known."""
        return max(entry[-1].bound for entry in self.open)

    def splits_large_device(self) -> bool:
        return self._largest_split(self.open[0][-1].share) >= 0

    def settle(self, relaxations: int) -> tuple[Floats, float]:
        """Return shares of the links and a bound, with large devices integral as far as this number of relaxations,
        including the first one, allows."""
        while True:
            node = self.open[0][-1]
            device = self._largest_split(node.share)
            links = range(int(self.rows[device]), int(self.rows[device + 1])) if device >= 0 else range(0)
            if len(links) == 0 or self.made + len(links) > relaxations:
                return node.share, self.bound()
            heapq.heappop(self.open)
            try:
                for link in links:
                    self._add((*node.fixed, link), node.bound)
            except SolverError:  # numerical trouble in the solver: keep the node's own bound
                return node.share, max([node.bound, *(entry[-1].bound for entry in self.open)])

    def _add(self, fixed: tuple[int, ...], parent: float) -> None:
        lower = self.programme.lower.copy()
        lower[list(fixed)] = 1.0
        self.made += 1
        solution = self.solver.solve(lower)
        if solution is None:
            return
        prices = prices_of(self.problem, solution)
        if not fixed:
            self.prices = prices
        bound = min(parent, price_bound(self.problem, prices, self._allowed(fixed)))
        node = _Node(fixed, solution.columns[:-2], bound)
        heapq.heappush(self.open, (-round(bound / self.unit, 9), -len(fixed), self.made, node))

    def _allowed(self, fixed: tuple[int, ...]) -> Bools:
        allowed = np.ones(len(self.problem.device), bool)
        for link in fixed:
            device = self.problem.device[link]
            allowed[self.rows[device] : self.rows[device + 1]] = False
            allowed[link] = True
        return allowed

    def _largest_split(self, share: Floats) -> int:
        """Return the largest device that is split, -1 if none of the split ones is large."""
        divided = np.flatnonzero(np.maximum.reduceat(share, self.rows[:-1]) < WHOLE)
        if len(divided) == 0:
            return -1
        device = int(divided[self.size[divided].argmax()])
        return device if self.size[device] > _LARGE * float(self.size.mean()) else -1


def rounded(problem: AssignmentProblem, share: Floats, least_share: float) -> Ints:
    """Round to one link per device, largest devices first.

    Each device gets, among its links with a share above `least_share`, the one that minimises the squared differences
    from the utilities and loads that the shares give to the gateways."""
    rows = problem.row_start()
    used = np.lexsort((-share, problem.device))[rows[:-1]]
    divided = np.flatnonzero(share[used] < 1.0 - least_share)
    of_divided = np.isin(problem.device, divided)
    promised = np.flatnonzero(of_divided)
    utility, load = problem.utility, problem.load_penalty * problem.load
    lacking = problem.at_gateways(utility * share, promised).tolist()
    lacking_load = problem.at_gateways(load * share, promised).tolist()
    links = np.flatnonzero(of_divided & (share > least_share))
    order = divided[np.argsort(-np.abs(utility[used[divided]]), kind="stable")]
    first = np.searchsorted(problem.device[links], order).tolist()
    end = np.searchsorted(problem.device[links], order, side="right").tolist()
    columns = (problem.gateway[links].tolist(), utility[links].tolist(), load[links].tolist(), links.tolist())
    for device, start, stop in zip(order.tolist(), first, end, strict=True):
        best, choice = np.inf, start
        for place in range(start, stop):
            gateway, brings, takes = columns[0][place], columns[1][place], columns[2][place]
            worse = brings * (brings - 2.0 * lacking[gateway]) + takes * (takes - 2.0 * lacking_load[gateway])
            if worse < best:
                best, choice = worse, place
        used[device] = columns[3][choice]
        lacking[columns[0][choice]] -= columns[1][choice]
        lacking_load[columns[0][choice]] -= columns[2][choice]
    return used
