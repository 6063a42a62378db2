"""DivFL: the devices whose gradients together represent all devices best.

Balakrishnan, Li, Zhou, Himayat, Smith, Bilmes: "Diverse Client Selection for Federated Learning via Submodular
Maximization", ICLR 2022, Eq. 5: choose S to minimise the error of representing each gradient by the nearest chosen one,

    G(S) = sum_k min_{i in S} |g_k - g_i|,      k over all the gateway's devices,

which maximises the facility location function G({e}) - G(S), with e an auxiliary device further away than all others.
It is submodular, so the greedy choice of the largest gain is within 1 - 1/e of the best (Nemhauser, Wolsey & Fisher
1978). It is evaluated lazily (Minoux 1978): a gain can only fall, so only the device with the largest old gain is
re-evaluated.

As in the published code (github.com/melodi-lab/divfl, flearn/trainers): the distances are Euclidean, the choice is
greedy and lazy, a device's gradient is the one of its latest training, all devices give one before the first round (the
warm-up), and the chosen devices are averaged by their numbers of samples, although the paper's Eq. 3 would weigh them
by the number of devices that they represent.

Adapted: each gateway represents its own devices, since only it has their gradients. DivFL chooses a fixed number of
devices (`selection.participants`); otherwise the bandwidth limits them. By gain alone, one device may use the bandwidth
of three that together would cover more. The greedy choice by gain per bandwidth is therefore computed as well, and the
better of both is used (Leskovec et al., KDD 2007: within (1 - 1/e) / 2). Room that is left when no gain remains goes
to the other devices in random order. Devices without a known gradient come first: no other device represents them.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from async_hfl.core.arrays import Bools, Floats, Ints
from async_hfl.core.policies import Need, Selection, SelectionProblem
from async_hfl.decisions.selection.capacity_fill import FreeBandwidth, devices, fill, ranked

_BLOCK = 65_536
"""Components of the gradients processed at a time: whole gradients in double precision would take gigabytes."""


@dataclass(frozen=True, slots=True)
class DivFl:
    needs: ClassVar[frozenset[Need]] = frozenset({"gradients", "peers"})

    def choose(self, problem: SelectionProblem) -> Selection:
        known = _known(problem)
        shuffled = ranked(problem, np.zeros(len(known)))
        room = FreeBandwidth(problem.capacity, problem.most)
        first = fill(problem.data_rate, [place for place in shuffled if not known[place]], room)
        places = np.flatnonzero(known)
        distance = distances(problem, places)
        most = None if problem.most is None else problem.most - len(first)
        found = [
            greedy(distance, problem.data_rate[places], problem.capacity - room.used, most, per_rate=per_rate)
            for per_rate in (False, True)
        ]
        covered, chosen = max(found, key=lambda one: one[0])
        chosen = [int(places[place]) for place in chosen]
        taken = [place for place in chosen if room.take(float(problem.data_rate[place]))]
        left = set(shuffled) - set(taken) - set(first)
        rest = fill(problem.data_rate, [place for place in shuffled if place in left], room)
        return Selection(devices(problem, [*first, *taken, *rest]), covered)


def _known(problem: SelectionProblem) -> Bools:
    if problem.gradients is None:
        return np.zeros(len(problem.candidates), bool)
    if problem.gradient_known is None:
        return np.ones(len(problem.candidates), bool)
    return problem.gradient_known


def distances(problem: SelectionProblem, places: Ints) -> Floats:
    """Return |g_k - g_i|: one row for every device k with a known gradient, one column for each of these candidates."""
    if problem.gradients is None or len(places) == 0:
        return np.zeros((0, len(places)))
    gradients = problem.gradients[places]
    if problem.peers is not None and problem.peers.gradients is not None:
        gradients = np.concatenate((gradients, problem.peers.gradients))
    product = np.zeros((len(gradients), len(gradients)))
    for start in range(0, gradients.shape[1], _BLOCK):
        block = gradients[:, start : start + _BLOCK].astype(np.float64)
        product += block @ block.T
    squares = product.diagonal()
    squared = (squares[:, None] + squares[None, :] - 2.0 * product)[:, : len(places)]
    distance: Floats = np.sqrt(np.maximum(squared, 0.0))
    # The difference of large squares leaves a residue; the distance of a device to itself is exactly 0.
    np.fill_diagonal(distance, 0.0)
    return distance


def greedy(
    distance: Floats, rates: Floats, capacity: float, most: int | None = None, *, per_rate: bool
) -> tuple[float, list[int]]:
    """Return the total reduction of the error and the places chosen, in order of choice."""
    error = distance.max(axis=1, initial=0.0)
    room, chosen, covered = FreeBandwidth(capacity, most), list[int](), 0.0
    cost = np.maximum(rates, 1e-300) if per_rate else np.ones(len(rates))
    gains = np.maximum(error[:, None] - distance, 0.0).sum(axis=0)
    queue = [(-float(gain / cost[place]), place, 0) for place, gain in enumerate(gains.tolist())]
    heapq.heapify(queue)
    while queue:
        _, place, looked_at = heapq.heappop(queue)
        if looked_at < len(chosen):
            gain = float(np.maximum(error - distance[:, place], 0.0).sum())
            heapq.heappush(queue, (-gain / float(cost[place]), place, len(chosen)))
            continue
        gain = float(np.maximum(error - distance[:, place], 0.0).sum())
        if gain <= 0.0:
            break
        if room.take(float(rates[place])):
            error = np.minimum(error, distance[:, place])
            chosen.append(place)
            covered += gain
    return covered, chosen
