"""Association drawn uniformly among each device's feasible links: the uninformed baseline.

As in the baselines' own papers, a device keeps its gateway while it can reach it; only devices that have lost theirs
draw again. The draw is a hash of (seed, device), so it does not depend on other devices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from async_hfl.core.policies import Association, AssociationProblem, Need, association_objective
from async_hfl.core.randomness import keyed_uniform


@dataclass(frozen=True, slots=True)
class RandomAssociation:
    """Gives every device with a link a gateway, even if the problem does not ask for every device."""

    needs: ClassVar[frozenset[Need]] = frozenset()

    redraw: bool = False
    """Draw for every device every time, not only for those that cannot reach their gateway."""

    @property
    def revisits(self) -> bool:
        """A draw changes only with the links."""
        return self.redraw

    def solve(self, problem: AssociationProblem) -> Association:
        count = len(problem.learning_utility)
        rows = np.searchsorted(problem.link_device, np.arange(count + 1))
        links = np.diff(rows)
        linked = np.flatnonzero(links)
        seed = np.array([problem.seed & 0xFFFFFFFFFFFFFFFF], np.uint64)
        draw = (keyed_uniform(seed, linked.astype(np.uint64)) * links[linked]).astype(np.int64)
        gateway_of = np.full(count, -1, np.int64)
        gateway_of[linked] = problem.link_gateway[rows[linked] + draw]
        if not self.redraw:
            kept = np.flatnonzero(problem.link_gateway == problem.current[problem.link_device])
            gateway_of[problem.link_device[kept]] = problem.link_gateway[kept]
        return Association(gateway_of, association_objective(problem, gateway_of))
