"""Oort: the devices of highest statistical and system utility, drawn as a bandit with exploration.

Lai, Zhu, Madhyastha, Chowdhury: "Oort: Efficient Federated Learning via Guided Participant Selection", OSDI 2021, Eq. 2
and Algorithm 1:

    utility     S_i = n_i sqrt(mean of loss^2 over the device's n_i samples), clipped at the 98th percentile of those
                seen and scaled to [0, 1];
    + age       sqrt(0.1 ln r / L_i), r the round, L_i the round the device was last seen in;
    x system    (T / t_i)^2 if t_i > T, t_i its round latency and T a percentile of the latencies of all devices.

The percentile of T is 10 at first. Every 20 rounds the **pacer** compares the utility gained in them (the mean of the
exploited devices that answered, summed over the rounds) with that of the 20 rounds before. If it has changed by no more
than a tenth, the percentile rises by 5 points (slower devices are admitted); if it is fivefold, the percentile falls
by 5.

**Exploration**: a share of max(0.9 x 0.95^r, 0.2) goes to devices never seen. Of these, the best by n_i and latency
penalty, five times as many as are needed, are drawn in proportion to them. The rest goes to devices drawn in proportion
to utility among those above the **cut-off**, 70 % of the utility of the first device that is left out when the best are
taken in order.

The constants are the defaults of the published code (github.com/SymbioticLab/Oort, commit 05a3aa1): `pacer_delta` 5,
`pacer_step` 20, `exploration_factor` 0.9, `exploration_decay` 0.95, `exploration_min` 0.2, `round_threshold` 10,
`round_penalty` 2, `clip_bound` 0.98, `cut_off_util` 0.7 and `sample_window` 5 in training/argParser.py; 0.1 for the
age, 0.1 and 5 for the pacer in oort/oort.py. Its server selects K x `overcommit` devices and closes the round with the
K-th answer (training/param_server.py); 1.1 there, 1.3 in the paper and in FedScale, here `gateway.over_selection`.

Adapted: with `selection.participants` a gateway chooses that number of devices, like Oort, as far as they fit the
bandwidth; places left over are filled at random. Without it the bandwidth is what is shared between exploration and
exploitation, and what is left goes to devices above the cut-off, best first, and to devices below it only if nothing
else was chosen. No device is skipped in the order that sets the cut-off, since the slowest device, with its small rate
M / tau, would fit almost anywhere. Utilities are scaled by the range after clipping. The published code can exclude
devices that were chosen too often, which its defaults do not.
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

    clip_percentile: float = 98.0
    age_weight: float = 0.1
    latency_exponent: float = 2.0
    """alpha of the paper's Eq. 2."""
    first_percentile: float = 10.0
    pacer_rounds: int = 20
    pacer_step: float = 5.0
    flat: float = 0.1
    steep: float = 5.0
    exploration: float = 0.9
    exploration_decay: float = 0.95
    least_exploration: float = 0.2
    window: float = 5.0
    """Devices from which those to be explored are drawn, per device drawn."""
    cut_off: float = 0.7

    def choose(self, problem: SelectionProblem) -> Selection:
        memory = self.paced(problem)
        preferred = self.preferred_latency(problem, memory["percentile"])
        seen = ~np.isnan(problem.squared_loss)
        utility = self.utility(problem, seen, preferred)
        exploit = _Draw(problem, np.flatnonzero(seen), utility)
        explore = _Draw(
            problem, np.flatnonzero(~seen), problem.samples * self._penalty(problem.round_latency, preferred)
        )
        room = FreeBandwidth(problem.capacity, problem.most)
        share = self.exploration_at(problem.round) if len(explore.places) else 0.0
        part = _part(problem, (1.0 - share) * (1.0 + 1e-9))  # 1 - 0.9 is slightly less than a tenth
        known = exploit.above(self.cut_off_utility(exploit, part))
        exploited = known.drawn(2, part)
        chosen = [place for place in exploited if room.take(float(problem.data_rate[place]))]
        chosen += explore.best(self.window, room).drawn(1, room)
        if problem.most is None:
            chosen += known.rest(chosen, room)
            if not chosen:  # no device above the cut-off fits: one below it is better than none
                chosen = exploit.rest(chosen, room)
        else:
            everyone = _Draw(problem, np.arange(len(utility)), np.zeros(len(utility)))
            chosen += everyone.rest(chosen, room)
        memory |= {"exploited": np.sort(problem.candidates[exploited]), "round": problem.round}
        return Selection(devices(problem, chosen), float(utility[chosen].sum()), None, memory)

    def exploration_at(self, round_: int) -> float:
        return max(self.exploration * self.exploration_decay**round_, self.least_exploration)

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

    def cut_off_utility(self, exploit: _Draw, room: FreeBandwidth) -> float:
        """Return the cut-off: a share of the utility of the first device that does not fit when the best are taken in
        order, or of the last one if all fit. The room is left as it is."""
        order = exploit.best_first()
        if not order:
            return 0.0
        room = FreeBandwidth(room.capacity, room.most)
        rates = exploit.problem.data_rate
        first_left_out = next((place for place in order if not room.take(float(rates[place]))), order[-1])
        return self.cut_off * float(exploit.weight[first_left_out])

    def paced(self, problem: SelectionProblem) -> dict[str, Any]:
        """Return the memory updated to this round: the utility gained since, and the resulting percentile of T."""
        old: Mapping[str, Any] = problem.memory
        if not old:
            return {"percentile": self.first_percentile, "window": 0, "now": 0.0, "before": 0.0}
        memory = {key: old[key] for key in ("percentile", "window", "now", "before")}
        back = np.isin(problem.candidates, old["exploited"]) & ~np.isnan(problem.squared_loss)
        if problem.last_seen is not None:
            back &= problem.last_seen >= old.get("round", 0)
        if back.any():
            memory["now"] += float(statistical_utility(problem)[back].mean())
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

    def best(self, times: float, room: FreeBandwidth) -> _Draw:
        """Return the best of those that fit alone: so many times as many as fit together."""
        rates = self.problem.data_rate
        order = [place for place in self.best_first() if room.fits(float(rates[place]))]
        together = fill(rates, order, room.copy())
        return _Draw(self.problem, np.array(order[: int(times * len(together))], np.int64), self.weight)

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


def _part(problem: SelectionProblem, share: float) -> FreeBandwidth:
    """Return this share of the bandwidth and of the number of devices."""
    return FreeBandwidth(share * problem.capacity, None if problem.most is None else int(share * problem.most))


def statistical_utility(problem: SelectionProblem) -> Floats:
    """Return n_i sqrt(mean squared loss); NaN if the device never reported."""
    return problem.samples.astype(np.float64) * np.sqrt(problem.squared_loss)
