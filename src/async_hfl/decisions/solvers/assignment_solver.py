"""A solver of the assignment problem: bound the objective, round a fractional solution, improve it by local search.

Problems of up to 25,000 links are bounded by the linear relaxation, whose vertices are nearly integral. If they have no
more than 5,000 links, utilities are also clipped by its multipliers, and large devices are fixed by branch and bound if
rounding leaves a gap (`relaxation`). Larger problems are bounded by smoothed prices (`prices`), whose shares are
rounded: the bound is nearly as good, and the local search (`exchanges`) has many small devices with which to improve a
slightly worse start. If a gap remains, the relaxation is solved after all, up to 120,000 links. All limits are counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from async_hfl.core.arrays import Ints
from async_hfl.core.errors import SolverError
from async_hfl.decisions.solvers.assignment_problem import AssignmentProblem, clipped
from async_hfl.decisions.solvers.exchanges import improve
from async_hfl.decisions.solvers.prices import PriceSolution, optimise_prices
from async_hfl.decisions.solvers.relaxation import WHOLE, Relaxation, rounded

_PROGRAMMES = 25_000
"""Number of links up to which the linear relaxation is solved (a fifth of a second)."""
_RETRY_LINKS, _RETRY_GAP = 120_000, 0.01
"""Number of links up to which it is solved if prices leave a larger gap than this (some seconds)."""
_BRANCHING_LINKS = 5_000
"""Number of links up to which clipping uses the relaxation's multipliers and large devices are fixed by branch and
bound; and the number of relaxations allowed for the latter.
"""
_RELAXATIONS = 60
_BRANCHING_GAP = 3e-3
"""A smaller gap is not worth that search."""
_CLIPPINGS = 4
_SOFT_SHARE = 0.02
"""Rounding ignores smaller shares of a device in the solution by prices."""
_LEAST_EFFORT = 500_000
_EFFORT_PER_LINK = 2_000
"""Effort for a small problem. Ten times as much gave the same gaps on 60 x 6, in six times the time."""
_EFFORT_BY_SIZE = 80
"""Additional effort per link for a large problem."""


@dataclass(frozen=True, slots=True)
class AssignmentSolution:
    used: Ints
    """One link per device."""
    bound: float
    """Bound of the objective without bonuses."""


def solve_assignment(problem: AssignmentProblem, *, target_gap: float, effort: int, seed: int) -> AssignmentSolution:
    """Return a good choice of links and a proven bound. The search stops within `target_gap` of the bound."""
    tight, bound, by_price, relaxation = _bounded(problem)
    links = len(problem.device)
    effort = max(min(effort, max(_LEAST_EFFORT, _EFFORT_PER_LINK * links)), _EFFORT_BY_SIZE * links)
    if relaxation is None:
        assert by_price is not None
        start = rounded(tight, by_price.share, _SOFT_SHARE)
    else:
        share, relaxed = relaxation.settle(1)
        bound = min(bound, relaxed)
        start = rounded(tight, share, 1.0 - WHOLE)
    start = max([start, *_current_association(tight)], key=tight.objective)
    splits_large = relaxation is not None and links <= _BRANCHING_LINKS and relaxation.splits_large_device()
    first_effort = _LEAST_EFFORT // 2 if splits_large else effort
    used = improve(tight, start, enough=_near(bound, target_gap), effort=first_effort, seed=seed)
    poor = relaxation is None and links <= _RETRY_LINKS and tight.objective(used) < _near(bound, _RETRY_GAP)
    if poor or (splits_large and tight.objective(used) < _near(bound, _BRANCHING_GAP)):
        relaxation = _relaxation(tight) if relaxation is None else relaxation
        if relaxation is not None:
            share, relaxed = relaxation.settle(_RELAXATIONS if splits_large else 1)
            bound = min(bound, relaxed)
            start, enough = rounded(tight, share, 1.0 - WHOLE), _near(bound, target_gap)
            again = improve(tight, start, enough=enough, effort=effort, seed=seed)
            used = max(used, again, key=tight.objective)
    if problem.bonus.any():
        _, bound = tightened(replace(problem, bonus=np.zeros(links)))
    return AssignmentSolution(used, bound)


def _bounded(problem: AssignmentProblem) -> tuple[AssignmentProblem, float, PriceSolution | None, Relaxation | None]:
    """Return the tightened problem and a bound, by prices, by the relaxation, or by both."""
    links = len(problem.device)
    if links <= _BRANCHING_LINKS:
        try:
            tight, relaxation, bound = _tightened_by_programme(problem)
        except SolverError:  # numerical trouble in the solver: fall back to prices
            pass
        else:
            return tight, bound, None, relaxation
    tight, by_price = _tightened_by_prices(problem)
    return tight, by_price.bound, by_price, _relaxation(tight) if links <= _PROGRAMMES else None


def _relaxation(problem: AssignmentProblem) -> Relaxation | None:
    try:
        return Relaxation(problem)
    except SolverError:  # numerical trouble in the solver: fall back to prices
        return None


def _near(bound: float, gap: float) -> float:
    return bound - gap * abs(bound)


def tightened(problem: AssignmentProblem) -> tuple[AssignmentProblem, float]:
    """Return the problem with utilities clipped as far as prices prove it valid, and the bound that they prove."""
    tight, bound, _, _ = _bounded(problem)
    return tight, bound


def _tightened_by_programme(problem: AssignmentProblem) -> tuple[AssignmentProblem, Relaxation, float]:
    """Return the problem clipped by the relaxation's multipliers, its relaxation, and the bound.

    For a small problem the linear programme takes a tenth of the time of an iterative search for prices."""
    relaxation = Relaxation(problem)
    bound = relaxation.bound()
    for _ in range(_CLIPPINGS):
        tighter = clipped(problem, relaxation.prices)
        if tighter is problem:
            break
        problem, relaxation = tighter, Relaxation(tighter)
        bound = min(bound, relaxation.bound())
    return problem, relaxation, bound


def _tightened_by_prices(problem: AssignmentProblem) -> tuple[AssignmentProblem, PriceSolution]:
    alone = len(problem.device) > _PROGRAMMES
    by_price = optimise_prices(problem, alone=alone)
    for _ in range(_CLIPPINGS):
        tighter = clipped(problem, by_price.prices)
        if tighter is problem:
            break
        again = optimise_prices(tighter, alone=alone)
        problem, by_price = tighter, replace(again, bound=min(again.bound, by_price.bound))
    return problem, by_price


def _current_association(problem: AssignmentProblem) -> list[Ints]:
    """Return the current association as a start if there is a switching cost, with the lightest link of each device
    that has no gateway."""
    staying = np.flatnonzero(problem.bonus > 0.0)
    if len(staying) == 0:
        return []
    stay = np.lexsort((problem.load, problem.device))[problem.row_start()[:-1]]
    stay[problem.device[staying]] = staying
    return [stay]
