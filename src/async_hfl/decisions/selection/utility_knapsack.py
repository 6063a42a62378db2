"""Selection by learning utility per round latency under the gateway's bandwidth.

Yu, Cherkasova, Vardhan, Zhao, Ekaireb, Zhang, Mazumdar, Rosing: "Async-HFL: Efficient and Robust Asynchronous
Federated Learning in Hierarchical IoT Networks", IoTDI 2023, Eq. 10:

    maximise  sum_i d_i u_i (1 / tau_ij)^kappa    subject to  sum_i d_i R_ij <= B_j - (rates in flight),    d binary.

The paper prints the bound per device (Eq. 10b); its text, which calls the problem a 0-1 knapsack, means the sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from async_hfl.core.policies import Need, Selection, SelectionProblem
from async_hfl.decisions.solvers.knapsack import knapsack

_NO_DEVICE = Selection((), 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class UtilityKnapsack:
    """Chooses the devices with the highest total utility, discounted by latency, that fit the free bandwidth."""

    needs: ClassVar[frozenset[Need]] = frozenset({"utility"})

    def choose(self, problem: SelectionProblem) -> Selection:
        if problem.latency_exponent == 1.0:
            values = problem.learning_utility / problem.round_latency
        else:
            values = problem.learning_utility * problem.round_latency**-problem.latency_exponent
        packing = knapsack(values, problem.data_rate, problem.capacity)
        if len(packing.chosen):
            return Selection(tuple(problem.candidates[packing.chosen].tolist()), packing.objective, packing.bound)
        # A device of value zero (a utility floor of 0) is never packed. If it is all there is, the fastest is chosen:
        # a gateway with free bandwidth and a device to trigger must not stay idle.
        able = ((values == 0.0) & (problem.data_rate <= problem.capacity)).nonzero()[0]
        if len(able) == 0:
            return _NO_DEVICE
        return Selection((int(problem.candidates[able[problem.round_latency[able].argmin()]]),), 0.0, 0.0)
