"""Association of each device with the gateway of least round latency.

gateway of i = argmin_j tau_ij over the feasible links (ties: the lower number).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from async_hfl.core.policies import Association, AssociationProblem, Need, association_objective


@dataclass(frozen=True, slots=True)
class NearestGateway:
    needs: ClassVar[frozenset[Need]] = frozenset()
    revisits: ClassVar[bool] = True
    """Measured latencies replace the expected ones and keep changing."""

    def solve(self, problem: AssociationProblem) -> Association:
        gateway_of = np.full(len(problem.learning_utility), -1, np.int64)
        order = np.lexsort((problem.link_gateway, problem.link_round_latency, problem.link_device))
        devices, first = np.unique(problem.link_device[order], return_index=True)
        gateway_of[devices] = problem.link_gateway[order[first]]
        return Association(gateway_of, association_objective(problem, gateway_of))
