"""The base classes of checkers: independent second computations of what an aggregation rule does.

A checker sees the history of a fault simulation (messages sent, records written) and the node after each event. It
computes weights, staleness, epochs and models by itself, and raises InvariantViolation if the node has something else.
It shares no code with the rule. `assembly.build.aggregation_rules` registers each rule with its checker. The base
classes check nothing: a rule without a checker is held to the general invariants only.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from async_hfl.core.arrays import Floats
from async_hfl.core.maths.staleness import StalenessDiscount
from async_hfl.core.protocol.records import JobRecord, UploadRecord
from async_hfl.core.weights import Weights
from async_hfl.faults.checkers.defences import Defences
from async_hfl.faults.history import History, require
from async_hfl.nodes.cloud.node import CloudNode
from async_hfl.nodes.gateway.node import GatewayNode

SLACK = 1e-6
"""Relative error allowed to weights and rates."""
_MODEL_SLACK = 1e-4
"""Models are single precision; checkers compute in double."""


class GatewayChecker:
    """Checks the aggregation rule of one gateway."""

    scenario_share: ClassVar[float] = 0.2
    """Share of the fault scenarios in which gateways have this rule."""
    cloud_average_share: ClassVar[float] = 0.0
    """Share of those in which the cloud averages uploads. A rule that relays does not work with that."""

    may_relay: ClassVar[bool] = True
    """The rule may pass updates on to the cloud."""

    def __init__(self, history: History) -> None:
        self.history = history

    def aggregated(self, gateway: GatewayNode, record: JobRecord) -> None:
        """Check the record of an aggregated job when it is written; the gateway has handled the event."""

    def check(self, gateway: GatewayNode, records: Sequence[JobRecord]) -> None:
        """Check the gateway after an event, given the jobs aggregated since the last check."""


class ModelChecker(GatewayChecker, ABC):
    """A gateway checker that computes the model again, from the global model at the beginning of each cycle."""

    may_relay = False
    cloud_average_share = 0.3

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._last: tuple[int, int, Weights] | None = None
        """Incarnation, base epoch and model at the last check."""
        self._uploads = UploadCheck()
        self._defences = Defences()

    @abstractmethod
    def model_after(self, gateway: GatewayNode, model: Floats, records: Sequence[JobRecord]) -> Floats:
        """Return the model that these aggregated jobs make of `model`."""

    def check(self, gateway: GatewayNode, records: Sequence[JobRecord]) -> None:
        state, last = gateway.state, self._last
        if state.weights is None:
            return
        if last is None or last[:2] != (state.incarnation, state.base_epoch):
            start = double(self.history.global_models[state.base_epoch])
            if last is not None and last[0] == state.incarnation:
                start = self._with_changes_since_upload(gateway, start, double(last[2]))
        else:
            start = double(last[2])
        if last is None or records or last[2] is not state.weights:
            expected = self.model_after(gateway, start, records)
            violation = f"gateway {gateway.config.number}: its model is not what its updates make it"
            require(models_agree(expected, state.weights), violation)
        self._last = (state.incarnation, state.base_epoch, state.weights)
        samples = sum(self.history.updates[record.job].samples for record in records)
        self._uploads.check(gateway, samples, len(records), self.samples_to_weigh(gateway))

    def _with_changes_since_upload(self, gateway: GatewayNode, adopted: Floats, model: Floats) -> Floats:
        """Return what a gateway that continues during uploads makes of a global model that it adopts."""
        uploaded = self._uploads.model
        if gateway.config.during_upload == "wait" or uploaded is None or self._uploads.updates == 0:
            return adopted
        return trained_and_statistics(gateway, adopted + (model - uploaded), (adopted + model) / 2)

    def samples_to_weigh(self, gateway: GatewayNode) -> int | None:
        """Return the samples by which an upload is to be weighed; None: those of the updates since the one before."""
        return None

    def new_and_sent(self, gateway: GatewayNode, together: Sequence[JobRecord]) -> list[tuple[Floats, Floats]]:
        """Return for each job the model to aggregate and the one that the device was sent. It is the model that the
        device returned, unless aggregation is robust or private. `together`: jobs that are aggregated together."""
        pairs = [
            (double(self.history.trained(one.job)), double(self.history.sent_to_device(one.job))) for one in together
        ]
        models = self._defences.models(gateway, together, pairs)
        return [(model, sent) for model, (_, sent) in zip(models, pairs, strict=True)]

    def with_noise(self, gateway: GatewayNode, model: Floats, together: Sequence[JobRecord], epoch: int) -> Floats:
        """Return the model of a gateway epoch with the noise of private aggregation."""
        return model + self._defences.noise(gateway, together, epoch)

    def by_epoch(self, records: Sequence[JobRecord]) -> list[list[JobRecord]]:
        """Return the records in groups that were aggregated together, oldest first."""
        together: dict[int, list[JobRecord]] = {}
        for record in records:
            together.setdefault(record.gateway_epoch, []).append(record)
        return list(together.values())

    def sample_shares(self, records: Sequence[JobRecord]) -> list[float]:
        """Return the share of each job in the samples of all."""
        samples = [self.history.updates[record.job].samples for record in records]
        return [count / sum(samples) for count in samples]


class UploadCheck:
    """Checks that an upload counts the updates since the one before, and that one is under way at a time."""

    def __init__(self) -> None:
        self.model: Floats | None = None
        """The model of the last upload."""
        self.updates = self.samples = 0
        """Since the last upload."""
        self._next = (0, 1)
        """Incarnation and number of the next upload."""

    def check(self, gateway: GatewayNode, samples: int, updates: int, weighed: int | None) -> None:
        """Check the gateway after an event in which it has aggregated so many updates, before it uploaded if it did.
        `weighed`: see `ModelChecker.samples_to_weigh`."""
        state, name = gateway.state, f"gateway {gateway.config.number}"
        if self._next[0] != state.incarnation:
            self.model, self.updates, self.samples, self._next = None, 0, 0, (state.incarnation, 1)
        self.updates, self.samples = self.updates + updates, self.samples + samples
        require(len(state.outstanding) <= 1, f"{name}: {len(state.outstanding)} uploads of its model are under way")
        require(bool(state.outstanding) or not state.upload_due, f"{name}: an upload that was put off does not follow")
        if state.next_upload == self._next[1]:
            return
        require(state.next_upload == self._next[1] + 1, f"{name}: uploads twice in one event")
        message = state.outstanding[self._next[1]].message
        counted = (message.updates, message.samples)
        found = (self.updates, self.samples if weighed is None else weighed)
        require(counted == found, f"{name}: upload {message.upload} counts {counted} updates and samples, not {found}")
        assert state.weights is not None
        self.model, self.updates, self.samples = double(state.weights), 0, 0
        self._next = (state.incarnation, state.next_upload)


class CloudChecker:
    """Checks the aggregation rule of the cloud."""

    def __init__(self, history: History) -> None:
        self.history = history

    def mixed(self, cloud: CloudNode, record: UploadRecord) -> None:
        """Check the record of an accepted upload when it is written; the cloud has handled the event."""

    def check(self, cloud: CloudNode, records: Sequence[UploadRecord]) -> None:
        """Check the cloud after an event, given the uploads accepted since the last check."""


def double(weights: Weights) -> Floats:
    return np.asarray(weights).astype(np.float64)


def models_agree(expected: Floats, weights: Weights) -> bool:
    return float(np.abs(expected - double(weights)).max()) <= _MODEL_SLACK * max(1.0, float(np.abs(expected).max()))


def trained_and_statistics(gateway: GatewayNode, trained: Floats, statistics: Floats) -> Floats:
    """Return the first numbers of one model, which devices train, and the last of the other, which they measure."""
    number = gateway.config.gradient_size
    return np.concatenate([trained[:number], statistics[number:]])


def discount(function: StalenessDiscount, staleness: int) -> float:
    """Return s(staleness), from the formulas."""
    formulas = {
        "polynomial": lambda: 1.0 / math.pow(staleness + 1, function.exponent),
        "constant": lambda: 1.0,
        "hinge": lambda: 1.0 / (1.0 + max(0.0, staleness - function.offset) * function.slope),
        "exponential": lambda: math.exp(-staleness * function.rate),
    }
    return formulas[function.kind]()


def check_weight(record: JobRecord | UploadRecord, staleness: int, weight: float) -> None:
    """Compare the staleness and the weight on record with those that the checker has found."""
    require(record.staleness == staleness, f"{record}: its staleness is {staleness}")
    require(abs(record.weight - weight) <= SLACK * max(weight, SLACK), f"{record}: its weight should be {weight}")
