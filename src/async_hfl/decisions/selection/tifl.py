"""TiFL: devices of similar speed train together, and tiers with a high loss are chosen more often.

Chai et al.: "TiFL: A Tier-based Federated Learning System", HPDC 2020, section 4 and Algorithm 2:

* devices slower than T_max are excluded; the others are split by round latency into 5 tiers of equal size;
* each round one tier is drawn, for all gateways, with probability p_t among those that have credits left, which costs
  it a credit;
* every 20 rounds the p_t are reset by rank, with tiers sorted by loss, highest first:
      p_t = (T - rank_t) / (T (T + 1) / 2),      rank_t = 0 .. T - 1.

The cloud does all this (`core.maths.latency_tiers`, `nodes.cloud.tier_draws`), again at every cloud epoch with the
latencies and losses that it knows then, and tells the draws for the rounds of a cycle with each global model. This
policy takes the gateway's devices of the tier in random order, as many as the bandwidth or `selection.participants`
allow; with `inside = "high-loss"` by decreasing loss, as Yu et al. (IoTDI 2023) describe it for their comparison. No
device of another tier is added: one slow device would delay the round. A gateway with no idle device in the tier takes
those of the next faster tier that has some, or else of the next slower one; without any, it takes nobody, unless
nothing is in flight.

Adapted: TiFL ranks tiers by test accuracy on held-out data; here devices report their mean loss, and a tier has the
mean of its devices. Its T_max is a number to be chosen; here it is the deadline of a round. Credits limit how often a
tier is drawn in the whole run. TiFL grants them once for a known number of rounds; here each tier gets 8 more every 20
rounds and keeps unused ones: no tier is drawn in more than two fifths of all rounds (a fifth, an equal share, would
leave p_t without effect). Algorithm 2 resets the p_t only if the tier last drawn has not improved in the interval.
While the model learns, every tier improves, so all tiers would stay equal for most of a run; that condition is left
out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from async_hfl.core.arrays import Ints
from async_hfl.core.policies import Need, Selection, SelectionProblem
from async_hfl.decisions.selection.capacity_fill import FreeBandwidth, devices, fill, ranked, uniform_draws

Inside = Literal["high-loss", "random"]


@dataclass(frozen=True, slots=True)
class Tifl:
    needs: ClassVar[frozenset[Need]] = frozenset({"tiers"})

    inside: Inside = "random"

    def choose(self, problem: SelectionProblem) -> Selection:
        """Choose from the tier drawn for this round; from all devices if the cloud has told no tiers."""
        places = np.arange(len(problem.candidates)) if problem.tiers is None else self.members(problem)
        if len(places) == 0:
            return Selection(())
        own = set(places.tolist())
        order = [place for place in self._order(problem) if place in own]
        room = FreeBandwidth(problem.capacity, problem.most)
        rates = np.full(len(problem.candidates), np.inf)
        rates[places] = problem.data_rate[places]
        return Selection(devices(problem, fill(rates, order, room)))

    def members(self, problem: SelectionProblem) -> Ints:
        """Return the places of the devices of the tier drawn, or of the tier that stands in for it."""
        assert problem.tiers is not None
        tier = problem.tiers.tier_of(problem.round_latency)
        tier[problem.data_rate > problem.capacity] = len(problem.tiers.limits)
        drawn = problem.tiers.drawn[problem.cycle_round % len(problem.tiers.drawn)]
        nearest = [*range(drawn, -1, -1), *range(drawn + 1, len(problem.tiers.limits))]
        present = next((one for one in nearest if (tier == one).any()), -1)
        return np.flatnonzero(tier == present)

    def _order(self, problem: SelectionProblem) -> list[int]:
        if self.inside == "random":
            return ranked(problem, uniform_draws(problem, 4))
        return ranked(problem, np.where(np.isnan(problem.loss), np.inf, problem.loss))
