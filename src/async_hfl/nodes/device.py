"""A device: it trains one job at a time, and a newer job supersedes it.

    idle --Train--> training --Trained--> idle (the update is sent)
    training --Train (newer)--> training (the old job is dropped as superseded)
    training --Returned--> idle (the job died in the outage: dropped as device_lost)

A job is newer if it has a higher association version, or the same version and a higher number from the same gateway;
between gateways the later arrival is newer. An older job is declined, so that its gateway can end it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from async_hfl.core.errors import InvariantViolation
from async_hfl.core.identifiers import GATEWAY_TIER, Address, JobId
from async_hfl.core.maths.projection import CountSketch, PcaProjection
from async_hfl.core.protocol.effects import Effect, Evaluate, Send, StartTraining, StopTraining
from async_hfl.core.protocol.events import (
    Acknowledged,
    Evaluated,
    Event,
    PeerJoined,
    PeerLost,
    Progressed,
    Received,
    Returned,
    Started,
    Trained,
    TrainingBroke,
)
from async_hfl.core.protocol.messages import (
    Alive,
    DropReason,
    EvaluateRequest,
    EvaluateResult,
    JobDropped,
    Probe,
    SettledAck,
    Train,
    Unsettled,
    Update,
)
from async_hfl.core.serialization import Plain, from_plain, plain, to_plain


@plain
@dataclass(slots=True)
class DeviceState:
    job: JobId | None = None
    download_s: float = 0.0
    version: int = 0
    latest: JobId | None = None
    """The job that was accepted last."""
    earlier: tuple[JobId, ...] = ()
    """The newest job accepted from each other gateway. A tuple takes less memory than a dict: there are many devices,
    and each knows few gateways."""
    gateway: int = -1
    """The gateway that sent the last message: it is told when the device is back after an outage."""
    projection: PcaProjection | CountSketch | None = None
    """The projection that compresses gradients before they are sent."""
    accepted: int = 0
    """Number of jobs begun."""
    evaluating: tuple[tuple[int, int], ...] = ()
    """Evaluations requested: the cloud epoch of the model, and the gateway that asked."""
    warmup: bool = False
    """The job is a warm-up job."""
    unsettled: tuple[JobId, ...] = ()
    """Updates that were acknowledged and that the cloud, as far as known here, has not decided on. They are reported
    when the device works for another gateway, or another incarnation of the same, so that losses are known by name."""


class DeviceNode:
    """One device; there may be a million of them in a simulation."""

    __slots__ = ("state",)

    def __init__(self, sketch: CountSketch | None = None) -> None:
        self.state = DeviceState(projection=sketch)

    def snapshot(self) -> Plain:
        return to_plain(self.state)

    def restore(self, data: Plain) -> None:
        self.state = from_plain(data)

    def handle(self, event: Event) -> list[Effect]:
        if type(event) is Received:
            message = event.message
            if type(message) is Train:
                return self._train(event, message)
            if type(message) is Probe:
                self.state.gateway = event.sender.number
                return [Send(event.sender, Alive())]
            if type(message) is SettledAck:
                self.state.unsettled = tuple(job for job in self.state.unsettled if job not in message.jobs)
                return []
            if type(message) is EvaluateRequest:
                self.state.evaluating += ((message.epoch, event.sender.number),)
                return [Evaluate(message.epoch, message.weights)]
            raise InvariantViolation(f"a device was sent {type(message).__name__}")
        if type(event) is Trained:
            return self._trained(event)
        if type(event) is TrainingBroke:
            return self._broke(event)
        if type(event) is Evaluated:
            return self._evaluated(event)
        if type(event) is Acknowledged:
            if type(event.message) is Update and not event.message.warmup:
                self.state.unsettled += (event.message.job,)
            return []
        if type(event) is Returned:
            return self._returned()
        if type(event) in (Started, PeerJoined, PeerLost, Progressed):
            return []  # messages to a gateway without a session wait in the delivery layer
        raise InvariantViolation(f"a device got {type(event).__name__}")

    def _train(self, event: Received, train: Train) -> list[Effect]:
        state, job = self.state, train.job
        if train.basis is not None:
            state.projection = PcaProjection(train.basis)
        if train.settled:
            # The gateway names jobs of its own incarnation that the cloud has decided on.
            state.unsettled = tuple(
                known for known in state.unsettled if known[:2] != job[:2] or known.number not in train.settled
            )
        newest = state.latest
        if newest is not None and newest.gateway != job.gateway:
            newest = next((seen for seen in state.earlier if seen.gateway == job.gateway), None)
        if newest is not None and newest.incarnation == job.incarnation and newest.number >= job.number:
            # A repeat of the newest job was handled when it first came; any older one still needs an end.
            return [] if newest == job else [self._dropped(event.sender, job, "superseded")]
        if train.version < state.version:
            return [self._dropped(event.sender, job, "superseded")]
        effects: list[Effect] = []
        if state.job is not None:
            effects.append(StopTraining(state.job))
            effects.append(self._dropped(Address(GATEWAY_TIER, state.job.gateway), state.job, "superseded"))
        state.job = job
        if state.latest is not None and state.latest.gateway != job.gateway:
            state.earlier = (state.latest, *(seen for seen in state.earlier if seen.gateway != job.gateway))
        state.latest = job
        state.version = train.version
        state.warmup = train.warmup
        if state.unsettled:
            elsewhere = tuple(known for known in state.unsettled if known[:2] != job[:2])
            if elsewhere:
                effects.append(Send(event.sender, Unsettled(None, elsewhere)))
        state.gateway = job.gateway
        state.download_s = event.transfer_s
        effects.append(StartTraining(job, train.weights, state.accepted))
        state.accepted += 1
        return effects

    def _trained(self, event: Trained) -> list[Effect]:
        state, result = self.state, event.result
        if event.job != state.job:
            return []
        state.job = None
        gradient, projection = result.gradient, state.projection
        compressed = gradient is not None and projection is not None
        if gradient is not None and projection is not None:
            with np.errstate(over="ignore", invalid="ignore"):  # a gradient that is not finite is dropped later
                gradient = projection.project(gradient)
        update = Update(
            event.job,
            result.weights,
            result.samples,
            result.steps,
            result.loss,
            result.squared_loss,
            gradient,
            state.download_s,
            event.training_s,
            compressed,
            state.warmup,
        )
        return [Send(Address(GATEWAY_TIER, event.job.gateway), update)]

    def _broke(self, event: TrainingBroke) -> list[Effect]:
        job = self.state.job
        if event.job != job:
            return []
        self.state.job = None
        return [self._dropped(Address(GATEWAY_TIER, job.gateway), job, "device_lost")]

    def _evaluated(self, event: Evaluated) -> list[Effect]:
        """Send the result through the gateway that asked; NaN if the device has no test samples."""
        state, found = self.state, event.evaluation
        asked = [gateway for epoch, gateway in state.evaluating if epoch == event.epoch]
        state.evaluating = tuple(one for one in state.evaluating if one[0] != event.epoch)
        return [
            Send(Address(GATEWAY_TIER, gateway), EvaluateResult(event.epoch, found.metric, found.loss))
            for gateway in asked
        ]

    def _returned(self) -> list[Effect]:
        state = self.state
        if state.job is not None:
            job, state.job = state.job, None
            return [StopTraining(job), self._dropped(Address(GATEWAY_TIER, job.gateway), job, "device_lost")]
        if state.gateway >= 0:
            return [Send(Address(GATEWAY_TIER, state.gateway), Alive())]
        return []

    def _dropped(self, to: Address, job: JobId, reason: DropReason) -> Send:
        return Send(to, JobDropped(job, reason, self.state.version))
