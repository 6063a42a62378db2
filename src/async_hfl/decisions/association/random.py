"""Association drawn uniformly among each device's feasible links: the baseline that knows nothing.

A device keeps its gateway while it can reach it, so that, as in the baselines' own papers, the draw is made once and
again only for those that lost theirs. The draw is a hash of (seed, device): no device's depends on another's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from async_hfl.core.policies import Association, AssociationProblem, Need, association_objective
from async_hfl.core.randomness import keyed_uniform


@dataclass(frozen=True, slots=True)
class RandomAssociation:
    """Each device with a link gets one, whether or not the problem asks for every device."""

    needs: ClassVar[frozenset[Need]] = frozenset()

    redraw: bool = False
    """Draw for every device every time, not only for those whose gateway is out of reach."""

    @property
    def revisits(self) -> bool:
        """Drawn once, it changes only with the links."""
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
        return Association(gateway_of, association_objective(problem, gateway_of), math.inf)
