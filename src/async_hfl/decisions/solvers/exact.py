"""Proven optima of both decisions: the reference for the fast solvers, and the answer of `decide --exact`.

Both searches start from the fast answer, which is often optimal, and continue until optimality is proven. Their limits
count nodes and states. A search that reaches its limit first returns None.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from async_hfl.core.arrays import Floats
from async_hfl.decisions.solvers.assignment_problem import AssignmentProblem
from async_hfl.decisions.solvers.assignment_solver import AssignmentSolution, solve_assignment, tightened
from async_hfl.decisions.solvers.highs import solve_integer
from async_hfl.decisions.solvers.knapsack import Packing, knapsack
from async_hfl.decisions.solvers.relaxation import programme

_NODES = 20_000_000
"""Node limit, to be divided by the number of links: nodes of larger problems take longer."""
_STATES = 5_000_000
_HALVES = (10, 12, 16, 21)
"""Sorting 2^21 subsets takes half a second and 200 MB: exact up to 42 undecided items."""
_DIGITS = 1e-12
"""Sums of values given with 16 digits count as equal if twelve digits agree."""
_PROOF = 1e-7
"""The solver's tolerance: its bound may exceed the true optimum by this much."""


def best_packing(values: Floats, weights: Floats, capacity: float) -> Packing | None:
    """Solve the knapsack to optimality, up to rounding."""
    packing = knapsack(values, weights, capacity, tolerance=_DIGITS / 10.0, state_limit=_STATES, halves=_HALVES)
    if packing.bound > packing.objective * (1.0 + 2.0 * _DIGITS):
        return None
    return replace(packing, bound=packing.objective)


def best_assignment(
    problem: AssignmentProblem, *, seed: int, node_limit: int | None = None
) -> AssignmentSolution | None:
    """Solve Eq. 11 as an integer programme that starts from the fast solver's answer.

    The problem is clipped first (`assignment_problem`), which does not change the value of an optimal association."""
    found = solve_assignment(problem, target_gap=0.0, effort=3_000_000, seed=seed)
    objective = problem.objective(found.used)
    if not problem.bonus.any() and found.bound <= objective + _PROOF * max(abs(objective), problem.utility_unit()):
        return replace(found, bound=objective)
    tight, _ = tightened(problem)
    links = len(tight.device)
    node_limit = max(2_000, _NODES // links) if node_limit is None else node_limit
    integer = np.append(np.ones(links, bool), [False, False])
    start = np.zeros(links + 2)
    start[found.used] = 1.0
    start[-2] = tight.at_gateways(tight.utility, found.used)[:-1].min() / tight.utility_unit()
    start[-1] = tight.at_gateways(tight.load, found.used)[:-1].max() / tight.load_unit()
    solution = solve_integer(programme(tight), integer, node_limit=node_limit, start=start)
    if solution is None or not solution.proven:
        return None
    used = np.lexsort((-solution.columns[:links], tight.device))[tight.row_start()[:-1]]
    best = max((used, found.used), key=problem.objective)
    return AssignmentSolution(best, problem.objective(best))
