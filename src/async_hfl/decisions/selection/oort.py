"""Oort: the devices of highest statistical and system utility, drawn as a bandit with exploration.

Lai, Zhu, Madhyastha, Chowdhury: "Oort: Efficient Federated Learning via Guided Participant Selection", OSDI 2021, Eq. 2
and Algorithm 1, with the constants of its published code:

    utility     S_i = n_i sqrt(mean of loss^2 over the device's n_i samples), clipped at the 95th percentile of those
                seen and scaled to [0, 1];
    + age       sqrt(0.1 ln r / L_i), r the round, L_i the round the device was last seen in;
    x system    (T / t_i)^2 if t_i > T, t_i its round latency and T a percentile of the latencies of all devices.

The percentile of T is 30 at first. Every 20 rounds the **pacer** compares the utility gained in them with that of the
20 rounds before. If it has changed by no more than a tenth, the percentile rises by 5 points (slower devices are
admitted); if it is fivefold, the percentile falls by 5.

**Exploration**: a share of max(0.9 x 0.98^(r - 1), 0.2) of the bandwidth goes to devices never seen, drawn in
proportion to n_i with the same penalty for latency. The rest goes to devices drawn in proportion to utility among those
above the **cut-off**. It is 95 % of the utility of the last device that fits that rest when the best are taken in
order. No device is skipped in this order, since the slowest device, with its small rate M / tau, would fit almost
anywhere. Bandwidth left by exploitation goes to exploration; bandwidth left by exploration goes to devices above the
cut-off, best first, and to devices below it only if nothing else was chosen.

Oort chooses a fixed number of devices; here the bandwidth limits them. Its list of devices that were chosen too often
is left out: on networks of a hundred devices it would soon contain all of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from async_hfl.core.arrays import Bools, Floats, Ints
from async_hfl.core.policies import Need, Selection, SelectionProblem
from async_hfl.decisions.selection.capacity_fill import (
    FreeBandwidth,
    devices,
    fill,
    ranked,
    uniform_draws,
    weighted_order,
)


@dataclass(frozen=True, slots=True)
class Oort:
    needs: ClassVar[frozenset[Need]] = frozenset({"peers"})

    clip_percentile: float = 95.0
    age_weight: float = 0.1
    latency_exponent: float = 2.0
    """alpha of the paper's Eq. 2."""
    first_percentile: float = 30.0
    pacer_rounds: int = 20
    pacer_step: float = 5.0
    flat: float = 0.1
    steep: float = 5.0
    exploration: float = 0.9
    exploration_decay: float = 0.98
    least_exploration: float = 0.2
    cut_off: float = 0.95

    def choose(self, problem: SelectionProblem) -> Selection:
        memory = self.paced(problem)
        preferred = self.preferred_latency(problem, memory["percentile"])
        seen = ~np.isnan(problem.squared_loss)
        utility = self.utility(problem, seen, preferred)
        exploit = _Draw(problem, np.flatnonzero(seen), utility)
        explore = _Draw(
            problem, np.flatnonzero(~seen), problem.samples * self._penalty(problem.round_latency, preferred)
        )
        room = FreeBandwidth(problem.capacity)
        share = self.exploration_at(problem.round) if len(explore.places) else 0.0
        exploitable = (1.0 - share) * problem.capacity * (1.0 + 1e-9)  # 1 - 0.9 is slightly less than a tenth
        known = exploit.above(self.cut_off_utility(exploit, exploitable))
        exploited = known.drawn(2, FreeBandwidth(exploitable))
        chosen = [place for place in exploited if room.take(float(problem.data_rate[place]))]
        chosen += explore.drawn(1, room)
        chosen += known.rest(chosen, room)
        if not chosen:  # no device above the cut-off fits: one below it is better than none
            chosen = exploit.rest(chosen, room)
        memory["exploited"] = np.sort(problem.candidates[exploited])
        return Selection(devices(problem, chosen), float(utility[chosen].sum()), None, memory)

    def exploration_at(self, round_: int) -> float:
        return max(self.exploration * self.exploration_decay ** (round_ - 1), self.least_exploration)

    def preferred_latency(self, problem: SelectionProblem, percentile: float) -> float:
        """Return T, the latency that this percentage of all devices (candidates or not) does not exceed; no limit from
        100 on."""
        latencies = problem.round_latency
        if problem.peers is not None:
            latencies = np.concatenate((latencies, problem.peers.round_latency))
        if percentile >= 100.0 or len(latencies) == 0:
            return math.inf
        place = min(int(len(latencies) * percentile / 100.0), len(latencies) - 1)
        return float(np.sort(latencies)[place])

    def utility(self, problem: SelectionProblem, seen: Bools, preferred: float) -> Floats:
        """Return the utility with age bonus and latency penalty; zero for unseen devices."""
        raw = statistical_utility(problem)[seen]
        result = np.zeros(len(seen))
        if len(raw) == 0:
            return result
        ordered = np.sort(raw)
        most = ordered[min(int(len(ordered) * self.clip_percentile / 100.0), len(ordered) - 1)]
        least = ordered[0]
        scaled = (np.minimum(raw, most) - least) / (most - least) if most > least else np.ones(len(raw))
        last = np.ones(len(raw)) if problem.last_seen is None else np.maximum(problem.last_seen[seen], 1)
        age = np.sqrt(self.age_weight * math.log(problem.round) / last)
        result[seen] = (scaled + age) * self._penalty(problem.round_latency[seen], preferred)
        return result

    def cut_off_utility(self, exploit: _Draw, capacity: float) -> float:
        """Return the cut-off: a share of the utility of the last device that fits when the best are taken in order (of
        the very best device if it exceeds the capacity alone)."""
        order = exploit.best_first()
        if not order:
            return 0.0
        room, last = FreeBandwidth(capacity), order[0]
        for place in order:
            if not room.take(float(exploit.problem.data_rate[place])):
                break
            last = place
        return self.cut_off * float(exploit.weight[last])

    def paced(self, problem: SelectionProblem) -> dict[str, Any]:
        """Return the memory updated to this round: the utility gained since, and the resulting percentile of T."""
        old: Mapping[str, Any] = problem.memory
        if not old:
            return {"percentile": self.first_percentile, "window": 0, "now": 0.0, "before": 0.0}
        memory = {key: old[key] for key in ("percentile", "window", "now", "before")}
        back = np.isin(problem.candidates, old["exploited"]) & ~np.isnan(problem.squared_loss)
        memory["now"] += float(statistical_utility(problem)[back].sum())
        window = problem.round // self.pacer_rounds
        if window > memory["window"]:
            if window >= 2:
                memory["percentile"] = self._percentile(memory["percentile"], memory["now"], memory["before"])
            memory |= {"window": window, "before": memory["now"], "now": 0.0}
        return memory

    def _percentile(self, percentile: float, now: float, before: float) -> float:
        changed = abs(now - before)
        if changed <= self.flat * before:
            return min(100.0, percentile + self.pacer_step)
        if changed >= self.steep * before:
            return max(self.pacer_step, percentile - self.pacer_step)
        return percentile

    def _penalty(self, latency: Floats, preferred: float) -> Floats:
        penalty: Floats = np.minimum(preferred / latency, 1.0) ** self.latency_exponent
        return penalty


@dataclass(frozen=True, slots=True)
class _Draw:
    """A subset of the candidates, and a weight for every candidate."""

    problem: SelectionProblem
    places: Ints
    weight: Floats

    def above(self, least: float) -> _Draw:
        return _Draw(self.problem, self.places[self.weight[self.places] >= least], self.weight)

    def drawn(self, purpose: int, room: FreeBandwidth) -> list[int]:
        draws = uniform_draws(self.problem, purpose)[self.places]
        order = self.places[weighted_order(self.weight[self.places], draws)]
        return fill(self.problem.data_rate, order.tolist(), room)

    def best_first(self) -> list[int]:
        own = set(self.places.tolist())
        return [place for place in ranked(self.problem, self.weight) if place in own]

    def rest(self, chosen: list[int], room: FreeBandwidth) -> list[int]:
        """Return the devices not chosen yet that fit, best first."""
        taken = set(chosen)
        return fill(self.problem.data_rate, [place for place in self.best_first() if place not in taken], room)


def statistical_utility(problem: SelectionProblem) -> Floats:
    """Return n_i sqrt(mean squared loss); NaN if the device never reported."""
    return problem.samples.astype(np.float64) * np.sqrt(problem.squared_loss)
