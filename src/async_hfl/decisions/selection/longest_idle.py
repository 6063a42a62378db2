"""Selection of the devices that have been idle longest first, as many as the bandwidth allows.

The age of an update as in Yang, Arafa, Quek & Poor, "Age-based scheduling policy for federated learning in mobile edge
networks" (ICASSP 2020): every device is triggered in turn, however the latencies differ.

    order by  t - t_i  decreasing,   t_i the time at which the device last became idle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from async_hfl.core.policies import Need, Selection, SelectionProblem
from async_hfl.decisions.selection.capacity_fill import Room, devices, fill, ranked


@dataclass(frozen=True, slots=True)
class LongestIdle:
    needs: ClassVar[frozenset[Need]] = frozenset()

    def choose(self, problem: SelectionProblem) -> Selection:
        order = ranked(problem, -problem.idle_since)
        return Selection(devices(problem, fill(problem.data_rate, order, Room(problem.capacity))))
