"""A device: one job at a time, a newer one supersedes it.

    idle --Train--> training --Trained--> idle (result sent)
    training --Train (newer)--> training (the old job is dropped as superseded)
    training --Returned--> idle (the outage killed the job: dropped as device_lost)

Newer = a higher association version, or the same and a higher number from the same gateway, or, between gateways,
the one that arrives later. What is older is declined, so its gateway can end the job.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from async_hfl.core.errors import InvariantViolation
from async_hfl.core.identifiers import Address, JobId, gateway_address
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
    Gradient,
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
    """The job accepted last."""
    earlier: tuple[JobId, ...] = ()
    """The newest job accepted from each other gateway; no dict, since devices are many and know few gateways."""
    gateway: int = -1
    """The gateway that spoke last: where a returning device says that it is back."""
    projection: PcaProjection | CountSketch | None = None
    """What the gradient is compressed with before it is sent."""
    accepted: int = 0
    """Jobs begun."""
    assessing: tuple[tuple[int, int], ...] = ()
    """Evaluations asked for: the cloud epoch of the model, and the gateway that asked."""
    warmup: bool = False
    """The job is a warm-up job."""
    unsettled: tuple[JobId, ...] = ()
    """Updates acknowledged and not known to be decided on at the cloud, where accounts are kept."""

    def newest_of(self, gateway: int) -> JobId | None:
        """The newest job accepted from that gateway."""
        if self.latest is not None and self.latest.gateway == gateway:
            return self.latest
        return next((job for job in self.earlier if job.gateway == gateway), None)

    def accept(self, job: JobId) -> None:
        if self.latest is not None and self.latest.gateway != job.gateway:
            self.earlier = (self.latest, *(seen for seen in self.earlier if seen.gateway != job.gateway))
        self.latest = job


class DeviceNode:
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
                self.state.assessing += ((message.epoch, event.sender.number),)
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
            return []  # delivery keeps what is meant for a gateway that is away
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
        newest = state.newest_of(job.gateway)
        if newest is not None and newest.incarnation == job.incarnation and newest.number >= job.number:
            # A repeat of the newest was handled when it first came; anything older must still find its end.
            return [] if newest == job else [self._dropped(event.sender, job, "superseded")]
        if train.version < state.version:
            return [self._dropped(event.sender, job, "superseded")]
        effects: list[Effect] = []
        if state.job is not None:
            effects.append(StopTraining(state.job))
            effects.append(self._dropped(gateway_address(state.job.gateway), state.job, "superseded"))
        state.job = job
        state.accept(job)
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
        compressed = False
        if gradient is not None and projection is not None:
            gradient, compressed = _projected(gradient, projection), True
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
        return [Send(gateway_address(event.job.gateway), update)]

    def _broke(self, event: TrainingBroke) -> list[Effect]:
        job = self.state.job
        if event.job != job:
            return []
        self.state.job = None
        return [self._dropped(gateway_address(job.gateway), job, "device_lost")]

    def _evaluated(self, event: Evaluated) -> list[Effect]:
        """Through the gateway that asked; NaN where there is nothing to judge by."""
        state, found = self.state, event.evaluation
        asked = [gateway for epoch, gateway in state.assessing if epoch == event.epoch]
        state.assessing = tuple(one for one in state.assessing if one[0] != event.epoch)
        return [
            Send(gateway_address(gateway), EvaluateResult(event.epoch, found.metric, found.loss)) for gateway in asked
        ]

    def _returned(self) -> list[Effect]:
        state = self.state
        if state.job is not None:
            job, state.job = state.job, None
            return [StopTraining(job), self._dropped(gateway_address(job.gateway), job, "device_lost")]
        if state.gateway >= 0:
            return [Send(gateway_address(state.gateway), Alive())]
        return []

    def _dropped(self, to: Address, job: JobId, reason: DropReason) -> Send:
        return Send(to, JobDropped(job, reason, self.state.version))


def _projected(gradient: Gradient, projection: PcaProjection | CountSketch) -> Gradient:
    with np.errstate(over="ignore", invalid="ignore"):  # absurd gradients: what is not finite is not kept by anybody
        return projection.project(gradient)
