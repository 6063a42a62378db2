"""RFL-HA's re-clustering: devices of similar latency share a gateway, so that a synchronous round has no stragglers.

Wang, Xu, Liu, Huang, Qiao, Zhao: "Resource-Efficient Federated Learning with Hierarchical Aggregation in Edge
Computing", INFOCOM 2021: devices are grouped into as many clusters as there are gateways, balanced in size and similar
in round time, and regrouped as those times change. Within a cluster the head waits for all its devices (so its rounds
have no deadline), and the heads do not wait for each other: the server mixes each of their models on arrival, weighted
by its staleness.

Adapted: RFL-HA computes the number of clusters from resource budgets and makes a device the head of each; here the
gateways are given. A cluster may hold only devices that can reach its gateway. With c_j the mean log latency of cluster
j,

    minimise  sum_{l used} |log tau_l - log c_j|    subject to  floor(N / G) <= members of j <= ceil(N / G),

as far as links allow. For given c_j this is a transport problem (`transport`); c_j and members are improved alternately
(Lloyd 1982). The first c_j are quantiles of the devices' best latencies, assigned to the gateways in the order of their
links' mean latency and then a few times at random. The best clusters found are used.

Clusters are recomputed every `period` cloud epochs. In between, only devices that have lost their gateway are placed,
each where its latency fits best.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from async_hfl.core.arrays import Floats, Ints
from async_hfl.core.policies import Association, AssociationProblem, Need, association_objective
from async_hfl.core.randomness import stream
from async_hfl.decisions.solvers.transport import solve_transport


@dataclass(frozen=True, slots=True)
class Reclustering:
    needs: ClassVar[frozenset[Need]] = frozenset()
    revisits: ClassVar[bool] = True

    period: int = 10
    """Cloud epochs between two clusterings."""
    turns: int = 4
    """Number of iterations over centres and members."""
    starts: int = 4

    def solve(self, problem: AssociationProblem) -> Association:
        count = len(problem.learning_utility)
        gateway_of = np.full(count, -1, np.int64)
        memory = {"remade": int(problem.memory.get("remade", problem.epoch))}
        if len(problem.link_device) == 0:
            return Association(gateway_of, 0.0, math.inf, memory)
        kept = problem.link_gateway == problem.current[problem.link_device]
        if not problem.memory or problem.epoch - memory["remade"] >= self.period or not kept.any():
            memory["remade"] = problem.epoch
            gateway_of = self.clusters(problem)
        else:
            gateway_of[problem.link_device[kept]] = problem.link_gateway[kept]
            _place_rest(problem, gateway_of)
        return Association(gateway_of, association_objective(problem, gateway_of), math.inf, memory)

    def clusters(self, problem: AssociationProblem) -> Ints:
        """Return the best clusters of a few starts, which differ in the assignment of centres to gateways."""
        devices, device = np.unique(problem.link_device, return_inverse=True)
        gateways, gateway = np.unique(problem.link_gateway, return_inverse=True)
        speed = np.log(problem.link_round_latency)
        first = _first_centres(device, gateway, speed, len(gateways))
        rng = stream(problem.seed, "clusters")
        starts = [first, *(first[rng.permutation(len(first))] for _ in range(self.starts - 1))]
        found = [self._settle(device, gateway, speed, centres, len(devices)) for centres in starts]
        used = min(found, key=lambda one: one[0])[1]
        gateway_of = np.full(len(problem.learning_utility), -1, np.int64)
        gateway_of[devices] = gateways[gateway[used]]
        return gateway_of

    def _settle(self, device: Ints, gateway: Ints, speed: Floats, centres: Floats, devices: int) -> tuple[float, Ints]:
        """Iterate members and centres from these centres; return the total distance to the centres, and the links."""
        used = np.empty(0, np.int64)
        for _ in range(self.turns):
            again = solve_transport(device, gateway, np.abs(speed - centres[gateway]), devices, len(centres))
            if len(used) and (again == used).all():
                break
            used = again
            members = np.bincount(gateway[used], minlength=len(centres))
            total = np.bincount(gateway[used], speed[used], len(centres))
            centres = np.where(members > 0, total / np.maximum(members, 1), centres)
        return float(np.abs(speed[used] - centres[gateway[used]]).sum()), used


def _first_centres(device: Ints, gateway: Ints, speed: Floats, gateways: int) -> Floats:
    best = np.full(int(device.max()) + 1, np.inf)
    np.minimum.at(best, device, speed)
    quantiles = np.quantile(best, (np.arange(gateways) + 0.5) / gateways)
    mean = np.bincount(gateway, speed, gateways) / np.bincount(gateway, minlength=gateways)
    centres = np.empty(gateways)
    centres[np.argsort(mean, kind="stable")] = quantiles
    return centres


def _place_rest(problem: AssociationProblem, gateway_of: Ints) -> None:
    """Place devices without a gateway where the members' mean log latency is nearest to their own."""
    speed = np.log(problem.link_round_latency)
    used = gateway_of[problem.link_device] == problem.link_gateway
    gateways = len(problem.bandwidth)
    members = np.bincount(problem.link_gateway[used], minlength=gateways)
    total = np.bincount(problem.link_gateway[used], speed[used], gateways)
    centre = np.where(members > 0, total / np.maximum(members, 1), float(speed.mean()))
    loose = np.flatnonzero(gateway_of[problem.link_device] == -1)
    misfit = np.abs(speed[loose] - centre[problem.link_gateway[loose]])
    order = loose[np.lexsort((problem.link_gateway[loose], misfit, problem.link_device[loose]))]
    devices, first = np.unique(problem.link_device[order], return_index=True)
    gateway_of[devices] = problem.link_gateway[order[first]]
