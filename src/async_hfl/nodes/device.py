"""A device: it trains one job at a time, and a newer job replaces the current one.

    idle --Train--> training --Trained--> idle         the update is sent
    training --newer Train--> training                 the old job is dropped as superseded
    training --TrainingBroke, Returned--> idle         the job is dropped as device_lost

A job is newer if its association version is higher, or if the version is the same and the job has a higher number from
the same gateway; between gateways, the job that arrives later is newer. An older job is rejected at once, so that its
gateway can end it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from async_hfl.core.compression.model_codec import PLAIN_MODELS, Model, ModelCodec
from async_hfl.core.errors import InvariantViolation
from async_hfl.core.identifiers import GATEWAY_TIER, Address, JobId
from async_hfl.core.learner import ResultEncoding
from async_hfl.core.maths.projection import CountSketch, PcaProjection
from async_hfl.core.protocol import events
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.effects import Effect, Evaluate, Send, StartTraining, StopTraining
from async_hfl.core.serialization import Plain, from_plain, plain, to_plain
from async_hfl.core.vectors import Vector
from async_hfl.core.weights import Weights


@plain
@dataclass(slots=True)
class DeviceState:
    job: JobId | None = None
    download_s: float = 0.0
    version: int = 0
    latest: JobId | None = None
    """The job accepted last."""
    earlier: tuple[JobId, ...] = ()
    """The newest job of each other gateway. A tuple takes less memory than a dict: there are many devices, and each
    knows few gateways."""
    gateway: int = -1
    """The gateway that sent the last job or probe. It is told when the device is back after an outage."""
    projection: PcaProjection | CountSketch | None = None
    """The projection that compresses gradients before they are sent."""
    accepted: int = 0
    """Number of jobs accepted."""
    evaluating: tuple[tuple[int, int], ...] = ()
    """Evaluations in progress: the cloud epoch of the model, and the gateway that asked."""
    warmup: bool = False
    """True if the current job is a warm-up job."""
    unsettled: tuple[JobId, ...] = ()
    """Acknowledged updates that, as far as the device knows, the cloud has not decided on. They are reported when the
    device works for another gateway, or another incarnation of the same, so that every lost update is known."""
    base: Weights | None = None
    """The model that the current job trains from, if updates are encoded as changes of it."""
    rounding_error: Vector | None = None
    """The rounding error of earlier updates, added to the next (error feedback). Losing it costs accuracy only."""


class DeviceNode:
    """One device. A simulation may have a million of them, so its size matters."""

    __slots__ = ("codec", "state")

    def __init__(self, sketch: CountSketch | None = None, codec: ModelCodec = PLAIN_MODELS) -> None:
        self.state = DeviceState(projection=sketch)
        self.codec = codec

    def snapshot(self) -> Plain:
        return to_plain(self.state)

    def restore(self, data: Plain) -> None:
        self.state = from_plain(data)

    def handle(self, event: events.Event) -> list[Effect]:
        if type(event) is events.Received:
            message = event.message
            if type(message) is m.Train:
                return self._train(event, message)
            if type(message) is m.Probe:
                self.state.gateway = event.sender.number
                return [Send(event.sender, m.Alive())]
            if type(message) is m.SettledAck:
                self.state.unsettled = tuple(job for job in self.state.unsettled if job not in message.jobs)
                return []
            if type(message) is m.EvaluateRequest:
                self.state.evaluating += ((message.epoch, event.sender.number),)
                return [Evaluate(message.epoch, self.codec.decode_model(message.weights))]
            raise InvariantViolation(f"a device was sent {type(message).__name__}")
        if type(event) is events.Trained:
            return self._trained(event)
        if type(event) is events.TrainingBroke:
            if event.job != self.state.job:
                return []
            self.state.job = self.state.base = None
            return [self._dropped(event.job, "device_lost")]
        if type(event) is events.Evaluated:
            return self._evaluated(event)
        if type(event) is events.Acknowledged:
            if type(event.message) is m.Update and not event.message.warmup:
                self.state.unsettled += (event.message.job,)
            return []
        if type(event) is events.Returned:
            return self._returned()
        if type(event) in (events.Started, events.PeerJoined, events.PeerLost, events.Progressed):
            return []  # messages to a gateway without a session wait in the delivery layer
        raise InvariantViolation(f"a device got {type(event).__name__}")

    def _train(self, event: events.Received, train: m.Train) -> list[Effect]:
        state, job = self.state, train.job
        if train.basis is not None:
            state.projection = PcaProjection(train.basis)
        if train.settled:
            state.unsettled = tuple(
                known for known in state.unsettled if known[:2] != job[:2] or known.number not in train.settled
            )
        newest = state.latest
        if newest is not None and newest.gateway != job.gateway:
            newest = next((seen for seen in state.earlier if seen.gateway == job.gateway), None)
        if newest is not None and newest.incarnation == job.incarnation and newest.number >= job.number:
            # A repeat of the newest job has been handled already; an older job still needs an end.
            return [] if newest == job else [self._dropped(job, "superseded")]
        if train.version < state.version:
            return [self._dropped(job, "superseded")]
        effects: list[Effect] = []
        if state.job is not None:
            effects += [StopTraining(state.job), self._dropped(state.job, "superseded")]
        state.job = job
        if state.latest is not None and state.latest.gateway != job.gateway:
            state.earlier = (state.latest, *(seen for seen in state.earlier if seen.gateway != job.gateway))
        state.latest = job
        state.version = train.version
        state.warmup = train.warmup
        elsewhere = tuple(known for known in state.unsettled if known[:2] != job[:2])
        for start in range(0, len(elsewhere), m.MOST_UNSETTLED):
            part = elsewhere[start : start + m.MOST_UNSETTLED]
            effects.append(Send(event.sender, m.Unsettled(None, part)))
        state.gateway = job.gateway
        state.download_s = event.transfer_s
        weights = self.codec.decode_model(train.weights)
        state.base = weights if self.codec.encodes_up else None
        effects.append(StartTraining(job, weights, state.accepted))
        state.accepted += 1
        return effects

    def _trained(self, event: events.Trained) -> list[Effect]:
        state, result = self.state, event.result
        if event.job != state.job:
            return []
        state.job = None
        encoding = self.result_encoding(event.job, warmup=state.warmup)
        model: Model = result.weights if encoding is None else self._encoded(event.job, result.weights, encoding)
        projection = state.projection
        gradient: Model | None = result.gradient
        compressed = False
        if result.gradient is not None and projection is not None:
            compressed = True
            with np.errstate(over="ignore", invalid="ignore"):  # gateways ignore gradients that are not finite
                gradient = projection.project(result.gradient)
        elif result.gradient is not None and encoding is not None and encoding.gradient_key is not None:
            gradient = self.codec.encode_gradient(result.gradient, "up", encoding.gradient_key)
        update = m.Update(
            event.job,
            model,
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

    def result_encoding(self, job: JobId, *, warmup: bool) -> ResultEncoding | None:
        """Return how the result of a job would be encoded now; None if results travel as float32.

        The result of a warm-up job is not mixed: the error of earlier updates is kept for the next one that is.
        """
        state, codec = self.state, self.codec
        if not codec.encodes_up:
            return None
        whole = state.projection is None and codec.encodes_gradient("up")
        return ResultEncoding(
            codec.up,
            codec.trained,
            codec.key("update", *job),
            None if warmup else state.rounding_error,
            codec.key("gradient", *job) if whole else None,
        )

    def _encoded(self, job: JobId, weights: Weights, encoding: ResultEncoding) -> Model:
        """Return a trained model as it is sent."""
        state = self.state
        base, state.base = state.base, None
        if base is None:
            raise InvariantViolation(f"job {job} has a result, but no model that it was trained from")
        change, left = self.codec.encode_change(weights, base, encoding.memory, encoding.key)
        if not state.warmup:
            state.rounding_error = left
        return change

    def _evaluated(self, event: events.Evaluated) -> list[Effect]:
        """Send the result to the gateways that asked for it."""
        state = self.state
        result = m.EvaluateResult(event.epoch, event.evaluation.metric, event.evaluation.loss)
        asked = [gateway for epoch, gateway in state.evaluating if epoch == event.epoch]
        state.evaluating = tuple(one for one in state.evaluating if one[0] != event.epoch)
        return [Send(Address(GATEWAY_TIER, gateway), result) for gateway in asked]

    def _returned(self) -> list[Effect]:
        state = self.state
        if state.job is not None:
            job, state.job, state.base = state.job, None, None
            return [StopTraining(job), self._dropped(job, "device_lost")]
        return [Send(Address(GATEWAY_TIER, state.gateway), m.Alive())] if state.gateway >= 0 else []

    def _dropped(self, job: JobId, reason: m.DropReason) -> Send:
        return Send(Address(GATEWAY_TIER, job.gateway), m.JobDropped(job, reason, self.state.version))
