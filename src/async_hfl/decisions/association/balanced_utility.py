"""Association that balances learning utility and load over the gateways.

Yu et al., "Async-HFL: Efficient and Robust Asynchronous Federated Learning in Hierarchical IoT Networks", IoTDI 2023,
Eq. 11. With x_l in {0, 1} for each feasible link l = (i, j), u_i the learning utility, R_l the data rate, B_j the
bandwidth, and only the gateways j that some link reaches:

    maximise    U - phi Q
    subject to  sum_{l at j} x_l u_i       >= U      for each gateway j
                sum_{l at j} x_l R_l / B_j <= Q      for each gateway j
                sum_{l of i} x_l            = 1      for each device i with a link
                U, Q free.

If devices may be left out (`every_device` is false), each has an additional dummy link with neither utility nor load. A
switching cost c is a bonus of c for each device that stays, so that a device moves only if it gains more. The bonus is
part of the objective of the search, but not of the one reported. `solvers.assignment_solver` solves the problem.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from async_hfl.core.arrays import Ints
from async_hfl.core.policies import Association, AssociationProblem, Need, association_objective
from async_hfl.decisions.solvers.assignment_problem import AssignmentProblem
from async_hfl.decisions.solvers.assignment_solver import solve_assignment


@dataclass(frozen=True, slots=True)
class BalancedUtility:
    """Solves Eq. 11 to a proven gap. The limits are counts, never seconds, so that runs are repeatable."""

    needs: ClassVar[frozenset[Need]] = frozenset({"utility"})
    revisits: ClassVar[bool] = True

    target_gap: float = 5e-4
    """Relative gap at which the local search stops."""
    effort: int = 3_000_000
    """Largest number of exchanges evaluated, including a fixed cost per gateway; about a tenth of a second."""

    def solve(self, problem: AssociationProblem) -> Association:
        gateway_of = np.full(len(problem.learning_utility), -1, np.int64)
        if len(problem.link_device) == 0:
            return Association(gateway_of, 0.0, 0.0)
        assignment, devices, gateways = assignment_problem(problem)
        answer = solve_assignment(assignment, target_gap=self.target_gap, effort=self.effort, seed=problem.seed)
        gateway_of[devices] = np.append(gateways, -1)[assignment.gateway[answer.used]]
        objective = association_objective(problem, gateway_of)
        return Association(gateway_of, objective, max(answer.bound, objective))


def assignment_problem(problem: AssociationProblem) -> tuple[AssignmentProblem, Ints, Ints]:
    """Return the problem restricted to the devices and gateways that have a link, with their numbers."""
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
    assignment = AssignmentProblem(
        len(devices), len(gateways), device, gateway, utility, load, bonus, problem.load_penalty
    )
    return assignment, devices, gateways
