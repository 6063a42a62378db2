"""Association that balances the gateways' demand, without gradients or utility.

This is Async-HFL's association (Yu et al., IoTDI 2023, Eq. 11) reduced to its load assignment. With q_l = R_l / B_j the
demand that link l makes on its gateway:

    maximise  min_j Q_j - max_j Q_j / 2,      Q_j = sum_{l at j} x_l q_l,      each device with a link at one gateway.

Demand is M / tau, so minimising the highest demand alone would associate every device over its slowest link. Since the
least demand counts in full, an even association is best, and of two even ones the one over faster links. Links slower
than `max_latency_ratio` times the device's best are not used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from async_hfl.core.policies import Association, AssociationProblem, Need, association_objective
from async_hfl.core.topology import near_best
from async_hfl.decisions.association.balanced_utility import assignment_problem
from async_hfl.decisions.solvers.assignment_solver import solve_assignment


@dataclass(frozen=True, slots=True)
class Even:
    """Balances demand. A device moves only if it gains more than `switching_cost`, in units of demand / bandwidth."""

    needs: ClassVar[frozenset[Need]] = frozenset()
    revisits: ClassVar[bool] = True

    max_latency_ratio: float = 2.0
    target_gap: float = 5e-3
    effort: int = 1_000_000

    def solve(self, problem: AssociationProblem) -> Association:
        gateway_of = np.full(len(problem.learning_utility), -1, np.int64)
        if len(problem.link_device) == 0:
            return Association(gateway_of, 0.0, 0.0)
        usable = np.ones(len(problem.link_device), bool)
        kept = near_best(problem.link_device, usable, problem.link_round_latency, self.max_latency_ratio)
        links = {name: getattr(problem, name)[kept] for name in ("link_device", "link_gateway", "link_data_rate")}
        assignment, devices, gateways = assignment_problem(replace(problem, every_device=True, **links))
        assignment = replace(assignment, utility=assignment.load, load_penalty=0.5)
        answer = solve_assignment(assignment, target_gap=self.target_gap, effort=self.effort, seed=problem.seed)
        gateway_of[devices] = gateways[assignment.gateway[answer.used]]
        return Association(gateway_of, association_objective(problem, gateway_of))
