"""Selection of the devices that have been idle longest first, as many as the bandwidth allows.

The age of an update as in Yang, Arafa, Quek & Poor, "Age-based scheduling policy for federated learning in mobile edge
networks" (ICASSP 2020): every device is triggered in turn, however the latencies differ.

    order by  t - t_i  decreasing,   t_i the time at which the device last became idle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from async_hfl.core.policies import Need, Selection, SelectionProblem
from async_hfl.decisions.selection.capacity_fill import ranked, select_in_order


@dataclass(frozen=True, slots=True)
class LongestIdle:
    needs: ClassVar[frozenset[Need]] = frozenset()

    def choose(self, problem: SelectionProblem) -> Selection:
        return select_in_order(problem, ranked(problem, -problem.idle_since))
