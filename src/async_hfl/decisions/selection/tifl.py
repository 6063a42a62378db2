"""TiFL: devices of similar speed train together, and tiers with a high loss are chosen more often.

Chai et al.: "TiFL: A Tier-based Federated Learning System", HPDC 2020, section 4 and Algorithm 2:

* the devices of a gateway are split by round latency into 5 tiers of equal size, again at every call;
* each round one tier is drawn with probability p_t among those that have credits left, which costs it a credit;
* every 20 rounds the p_t are reset by rank, with tiers sorted by loss, highest first:
      p_t = (T - rank_t) / (T (T + 1) / 2),      rank_t = 0 .. T - 1.

TiFL ranks tiers by test accuracy on held-out data; here devices report their mean loss, and a tier has the mean of its
devices. Credits limit how often a tier is drawn in the whole run. TiFL grants them once for a known number of rounds;
here each tier gets `credit_share` of 20 more every 20 rounds and keeps unused ones. With 0.4 no tier is drawn in more
than two fifths of all rounds (a fifth, an equal share, would leave p_t without effect).

TiFL draws a fixed number of devices of the tier at random. Here the bandwidth limits them, and devices with a high loss
come first, as Yu et al. (IoTDI 2023) describe it for their comparison; `inside = "random"` is TiFL's own rule. If the
tier leaves bandwidth free, no device of another tier is added: one slow device would delay the round.

Algorithm 2 resets the p_t only if the tier last drawn has not improved in the interval (`only_if_stalled`). While the
model learns, every tier improves, so all tiers would stay equal for most of a run. It is off by default.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from async_hfl.core.arrays import Bools, Floats, Ints
from async_hfl.core.policies import Need, Selection, SelectionProblem
from async_hfl.core.randomness import keyed_uniform
from async_hfl.decisions.selection.capacity_fill import (
    FreeBandwidth,
    devices,
    fill,
    ranked,
    uniform_draws,
    weighted_order,
)

Inside = Literal["high-loss", "random"]
_TIER_DRAW = 3


@dataclass(frozen=True, slots=True)
class Tifl:
    needs: ClassVar[frozenset[Need]] = frozenset({"peers"})

    inside: Inside = "high-loss"
    tiers: int = 5
    interval: int = 20
    credit_share: float = 0.4
    only_if_stalled: bool = False

    def choose(self, problem: SelectionProblem) -> Selection:
        tier = self.tier_of(problem, problem.round_latency)
        memory = self.remembered(problem)
        able = (problem.data_rate <= problem.capacity) & (problem.capacity > 0.0)
        present = np.bincount(tier[able], minlength=self.tiers) > 0
        if not present.any():
            return Selection((), memory=memory)
        drawn = self.draw(problem, present, memory)
        memory["credits"][drawn] -= memory["credits"][drawn] > 0
        memory["tier"] = drawn
        members = np.flatnonzero(tier == drawn)
        order = [place for place in self._order(problem) if tier[place] == drawn]
        rates = np.where(tier == drawn, problem.data_rate, problem.data_rate[members].max())
        return Selection(devices(problem, fill(rates, order, FreeBandwidth(problem.capacity))), memory=memory)

    def tier_of(self, problem: SelectionProblem, latency: Floats) -> Ints:
        """Return the tier of each device; tier 0 is the fastest fifth of all devices, candidates or not."""
        latencies = np.sort(_with_peers(problem, "round_latency"))
        tier: Ints = np.searchsorted(latencies, latency) * self.tiers // max(len(latencies), 1)
        return tier

    def losses(self, problem: SelectionProblem) -> Floats:
        """Return the mean loss of each tier; infinite if unknown, so that such a tier is tried."""
        tier = self.tier_of(problem, _with_peers(problem, "round_latency"))
        loss = _with_peers(problem, "loss")
        known = ~np.isnan(loss)
        total = np.bincount(tier[known], loss[known], self.tiers)
        count = np.bincount(tier[known], minlength=self.tiers)
        mean: Floats = np.where(count > 0, total / np.maximum(count, 1), np.inf)
        return mean

    def probabilities(self, losses: Floats) -> Floats:
        """Return the probabilities by rank, the highest loss first; equal losses share the probabilities of their
        ranks."""
        position = np.array([np.mean(np.flatnonzero(np.sort(-losses) == -loss)) for loss in losses])
        share: Floats = (self.tiers - position) / (self.tiers * (self.tiers + 1) / 2)
        return share

    def remembered(self, problem: SelectionProblem) -> dict[str, Any]:
        """Return the memory updated to this round."""
        window = (problem.round - 1) // self.interval
        old = problem.memory
        if not old:
            equal = np.full(self.tiers, 1.0 / self.tiers)
            dealt = np.full(self.tiers, self._dealt() * (window + 1))
            return {"window": window, "p": equal, "credits": dealt, "tier": -1, "losses": self.losses(problem)}
        memory = {**old, "credits": np.array(old["credits"], np.int64)}
        if window > old["window"]:
            losses = self.losses(problem)
            memory["credits"] += self._dealt() * (window - old["window"])
            tier = old["tier"]
            if not self.only_if_stalled or tier < 0 or losses[tier] >= old["losses"][tier]:
                memory["p"] = self.probabilities(losses)
            memory |= {"window": window, "losses": losses}
        return memory

    def draw(self, problem: SelectionProblem, present: Bools, memory: dict[str, Any]) -> int:
        """Draw a tier among those with a candidate that fits. Credits count while any of these tiers has some."""
        paying = present & (memory["credits"] > 0)
        among = np.flatnonzero(paying if paying.any() else present)
        key = np.array([(problem.seed + _TIER_DRAW) & 0xFFFFFFFFFFFFFFFF], np.uint64)
        draws = 1.0 - keyed_uniform(key, among.astype(np.uint64))
        return int(among[weighted_order(np.asarray(memory["p"])[among], draws)[0]])

    def _dealt(self) -> int:
        return math.ceil(self.credit_share * self.interval)

    def _order(self, problem: SelectionProblem) -> list[int]:
        if self.inside == "random":
            return ranked(problem, uniform_draws(problem, 4))
        return ranked(problem, np.where(np.isnan(problem.loss), np.inf, problem.loss))


def _with_peers(problem: SelectionProblem, column: Literal["round_latency", "loss"]) -> Floats:
    own: Floats = getattr(problem, column)
    return own if problem.peers is None else np.concatenate((own, getattr(problem.peers, column)))
