"""The two decisions of Async-HFL as data, and the protocols of the policies that make them.

A policy is a pure function. Its problem contains everything that it may use, including the memory that it returned with
its last answer. `seed` is different for every problem, so a random policy needs no generator.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

from async_hfl.core.arrays import Bools, Float32s, Floats, Ints
from async_hfl.core.maths.latency_tiers import Tiers
from async_hfl.core.serialization import fast_init, value

Need = Literal["utility", "gradients", "peers", "tiers"]
"""Data that a policy needs in addition to the columns that are always there. If no policy needs utility or gradients,
the nodes keep no gradients. `peers` are the associated devices that are not candidates now. `tiers` are drawn by the
cloud for all gateways."""


def needs_gradients(needs: frozenset[Need]) -> bool:
    """Return True if a policy with these needs requires gradients to be computed, sent and kept."""
    return not needs.isdisjoint({"utility", "gradients"})


@fast_init
@dataclass(frozen=True, slots=True)
class SelectionProblem:
    """The selection problem: the idle devices that gateway j should trigger now (Eq. 10).

    maximise sum d_i u_i (1 / tau_ij)^kappa subject to sum d_i R_ij <= capacity, d binary.
    """

    gateway: int
    candidates: Ints
    """Numbers of the devices that are associated, idle and have a feasible link. All arrays below are parallel."""
    learning_utility: Floats
    """u_i scaled to [utility_floor, 1]; all 1 if the policy does not need utility, or if no device fits."""
    round_latency: Floats
    data_rate: Floats
    loss: Floats
    """Latest mean loss; NaN if none was reported yet."""
    squared_loss: Floats
    samples: Ints
    idle_since: Floats
    last_selected: Ints
    """Gateway epoch at which the device was last triggered, -1 if never."""
    capacity: float
    """B_j minus the rates of the devices in flight."""
    latency_exponent: float
    """kappa."""
    gateway_epoch: int
    at: float
    seed: int
    gradients: Float32s | None = None
    """Latest gradients, only for a policy that needs them; the row of an unknown gradient has no meaning."""
    memory: Mapping[str, Any] = field(default_factory=dict)
    gradient_known: Bools | None = None
    """Parallel to `gradients`; None if all are known."""
    last_seen: Ints | None = None
    """The `round` in which the device's latest update arrived at this gateway, -1 if none did; None if not recorded."""
    peers: Peers | None = None
    """The other associated devices, only for a policy that needs peers."""
    most: int | None = None
    """The number of devices to choose, if it is limited (`selection.participants`); of a longer answer the first are
    taken."""
    tiers: Tiers | None = None
    """The tiers of devices that the cloud has told, only for a policy that needs them."""
    cycle_round: int = 0
    """Number of synchronous rounds that the gateway has completed in this cycle."""

    @property
    def round(self) -> int:
        """Number of the round for policies that count rounds, from 1: the gateway epoch in progress."""
        return self.gateway_epoch + 1


@dataclass(frozen=True, slots=True)
class Peers:
    """Associated devices that are not candidates now (busy or unreachable), as parallel columns."""

    round_latency: Floats
    loss: Floats
    """NaN if none was reported yet."""
    gradients: Float32s | None = None
    """The known gradients, for a policy that needs them; not parallel to the columns above."""


@fast_init
@dataclass(frozen=True, slots=True)
class Selection:
    devices: tuple[int, ...]
    objective: float = 0.0
    bound: float | None = None
    """A proven upper bound of the objective, if the policy has one."""
    memory: Mapping[str, Any] | None = None

    @property
    def gap(self) -> float | None:
        return None if self.bound is None else relative_gap(self.objective, self.bound)


class SelectionPolicy(Protocol):
    @property
    def needs(self) -> frozenset[Need]: ...

    def choose(self, problem: SelectionProblem) -> Selection: ...


@value
class AssociationProblem:
    """The association problem: the gateway of each device (Eq. 11). Links are sparse, sorted by device, then gateway.

    maximise u_slack - phi R_slack  subject to, for each gateway j that any link reaches:
        sum_i I_ij u_i >= u_slack;   sum_i I_ij R_ij / B_j <= R_slack;
        each device at most one gateway (exactly one with `every_device`, if it has a link);   I binary.
    """

    learning_utility: Floats
    """u_i per device, as scaled by `association.utility_scale`."""
    bandwidth: Floats
    """B_j per gateway."""
    link_device: Ints
    link_gateway: Ints
    link_data_rate: Floats
    link_round_latency: Floats
    load_penalty: float
    """phi."""
    every_device: bool
    switching_cost: float
    current: Ints
    """Current gateway of each device, -1 for none."""
    seed: int
    memory: Mapping[str, Any] = field(default_factory=dict)
    link_measured: Bools | None = None
    """True for links whose latency is measured, False for those with an expected one; None if unknown."""
    epoch: int = 0
    """The cloud epoch, by which a periodic policy detects the end of a period."""


@value
class Association:
    gateway_of: Ints
    """Gateway of each device, -1 for none."""
    objective: float
    bound: float = math.inf
    """A proven upper bound of the objective; infinite if the policy proves none."""
    memory: Mapping[str, Any] = field(default_factory=dict)

    @property
    def gap(self) -> float | None:
        return relative_gap(self.objective, self.bound) if np.isfinite(self.bound) else None


class AssociationPolicy(Protocol):
    @property
    def needs(self) -> frozenset[Need]: ...

    @property
    def revisits(self) -> bool:
        """True if the answer can change while the links stay the same, so that the policy is called periodically."""

    def solve(self, problem: AssociationProblem) -> Association: ...


def relative_gap(objective: float, bound: float) -> float:
    return (bound - objective) / max(abs(bound), 1e-9)


def association_objective(problem: AssociationProblem, gateway_of: Ints) -> float:
    """Return u_slack - phi R_slack: the least utility and the highest load among reachable gateways."""
    gateways = len(problem.bandwidth)
    reachable = np.zeros(gateways, bool)
    reachable[problem.link_gateway] = True
    if not reachable.any():
        return 0.0
    used = gateway_of[problem.link_device] == problem.link_gateway
    at = problem.link_gateway[used]
    utility = np.bincount(at, problem.learning_utility[problem.link_device[used]], gateways)
    load = np.bincount(at, problem.link_data_rate[used], gateways) / problem.bandwidth
    return float(utility[reachable].min() - problem.load_penalty * load[reachable].max())
