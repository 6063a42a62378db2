"""Solves one selection or association problem, with a bound on the distance from the optimum (`async-hfl decide`).

The solvers are those of a run. Unlike in a run, utilities are not scaled, and if no device fits the bandwidth, none is
selected.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from async_hfl.assembly.runs.problem_files import association_task, selection_task
from async_hfl.core.errors import UserError
from async_hfl.core.policies import Association, AssociationProblem, association_objective, relative_gap
from async_hfl.decisions.association.balanced_utility import BalancedUtility, assignment_problem
from async_hfl.decisions.solvers.exact import best_assignment, best_packing
from async_hfl.decisions.solvers.highs import load_solver
from async_hfl.decisions.solvers.knapsack import Packing, knapsack


def decide_selection(problem: str | Path | Mapping[str, Any], *, exact: bool = False) -> dict[str, Any]:
    """Solve Eq. 10, with `exact` to a proven optimum. Keys: selected, objective, bound, gap, seconds."""
    task = selection_task(problem)
    started = time.perf_counter()
    values = task.learning_utility * task.round_latency**-task.latency_exponent
    # Devices that take no bandwidth always fit, so they are left out of the knapsack.
    free = (task.data_rate == 0.0) & (values > 0.0) & (task.capacity >= 0.0)
    packing = _packed(np.where(free, 0.0, values), task.data_rate, task.capacity, exact)
    extra = float(values[free].sum())
    chosen = np.sort(np.concatenate((np.flatnonzero(free), packing.chosen)))
    seconds = time.perf_counter() - started
    names = [task.devices[place] for place in chosen.tolist()]
    return {"selected": names, **_proof(packing.objective + extra, packing.bound + extra, seconds)}


def decide_association(problem: str | Path | Mapping[str, Any], *, exact: bool = False) -> dict[str, Any]:
    """Solve Eq. 11, with `exact` to a proven optimum. Keys: association, objective, bound, gap, seconds."""
    task = association_task(problem)
    load_solver()  # so that loading the library is not timed
    started = time.perf_counter()
    answer = _best(task.problem) if exact else BalancedUtility().solve(task.problem)
    seconds = time.perf_counter() - started
    found = zip(task.devices, answer.gateway_of.tolist(), strict=True)
    association = {device: task.gateways[gateway] for device, gateway in found if gateway >= 0}
    return {"association": association, **_proof(answer.objective, answer.bound, seconds)}


def _proof(objective: float, bound: float, seconds: float) -> dict[str, float]:
    return {"objective": objective, "bound": bound, "gap": relative_gap(objective, bound), "seconds": seconds}


def _packed(values: Any, weights: Any, capacity: float, exact: bool) -> Packing:
    if not exact:
        return knapsack(values, weights, capacity)
    packing = best_packing(values, weights, capacity)
    if packing is None:
        raise _unproven(knapsack(values, weights, capacity).gap)
    return packing


def _best(problem: AssociationProblem) -> Association:
    near = BalancedUtility().solve(problem)
    gap = relative_gap(near.objective, near.bound)
    if gap <= 0.0:
        return near
    balance, devices, gateways = assignment_problem(problem)
    best = best_assignment(balance, seed=problem.seed)
    if best is None:
        raise _unproven(gap)
    gateway_of = np.full(len(problem.learning_utility), -1, np.int64)
    gateway_of[devices] = np.append(gateways, -1)[balance.gateway[best.used]]
    objective = association_objective(problem, gateway_of)
    return replace(near, gateway_of=gateway_of, objective=objective, bound=objective)


def _unproven(gap: float) -> UserError:
    return UserError(
        "no optimum could be proven within the search limit (which counts steps, not seconds); "
        f"without --exact the answer has a proven gap of {gap:.2g}"
    )
