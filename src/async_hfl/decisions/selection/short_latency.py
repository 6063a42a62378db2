"""Selection of the devices with the shortest round latency first, as many as the bandwidth allows.

The selection of Async-ST in Yu et al., "Async-HFL", IoTDI 2023, section 6.1, after Nishio & Yonetani, "Client selection
for federated learning with heterogeneous resources in mobile edge" (FedCS, ICC 2019): as many updates as possible in
the available time.

    order by  tau_ij  increasing.

It never triggers slow devices while fast ones are idle, so the data of slow devices may never be learnt: that is the
weakness this baseline shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from async_hfl.core.policies import Need, Selection, SelectionProblem
from async_hfl.decisions.selection.capacity_fill import ranked, select_in_order


@dataclass(frozen=True, slots=True)
class ShortLatency:
    needs: ClassVar[frozenset[Need]] = frozenset()

    def choose(self, problem: SelectionProblem) -> Selection:
        return select_in_order(problem, ranked(problem, -problem.round_latency))
