"""The context shared by the parts of a gateway and its aggregation rule: configuration, state and effects.

`GatewayNode` handles an event by calling parts (leases, timeouts, sessions, uploads, selection) and the rule with a
`Gateway`. They read and change its state and emit effects, but never call the node, which alone decides what happens
next.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from async_hfl.core.compression.model_codec import Model
from async_hfl.core.errors import InvariantViolation
from async_hfl.core.identifiers import CLOUD, JobId, UploadId
from async_hfl.core.maths.aggregation import carried_over
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.effects import Effect, Send, Write
from async_hfl.core.protocol.message_vectors import encode_knowledge
from async_hfl.core.protocol.records import JobEnd, JobRecord
from async_hfl.core.weights import Weights, is_finite
from async_hfl.nodes.config import GatewayConfig
from async_hfl.nodes.gateway.device_table import DeviceTable
from async_hfl.nodes.gateway.state import NEVER, GatewayState, HeldUpdate, InFlightJob

_MOST_DISCARDED = 16
"""Jobs of one device that are remembered after they were discarded. A device trains one job at a time."""


class Gateway:
    def __init__(self, config: GatewayConfig, incarnation: int) -> None:
        self.config = config
        self.effects: list[Effect] = []
        """The effects of the event being handled, in order."""
        self.emit = self.effects.append
        self.state: GatewayState
        self.restart(incarnation)

    def restart(self, incarnation: int, noise_secret: int = 0) -> None:
        """Discard the state and begin as another incarnation."""
        config = self.config
        device_table = DeviceTable(share_gradients=config.share_gradients, projection=config.sketch)
        if config.gradient != "none":
            device_table.gradients = config.gradient_table(0)
        self.state = GatewayState(
            incarnation, device_table=device_table, bandwidth=config.bandwidth, noise_secret=noise_secret
        )

    # For aggregation rules ---------------------------------------------------------------------------------------

    @property
    def weights(self) -> Weights:
        """The gateway's model."""
        if self.state.weights is None:
            raise InvariantViolation(f"gateway {self.config.number} is used before it has a model")
        return self.state.weights

    @weights.setter
    def weights(self, weights: Weights) -> None:
        self.state.weights, self.state.encoded = weights, None

    @property
    def max_staleness(self) -> int:
        """The staleness beyond which an update is dropped."""
        limit = self.config.max_staleness
        return max(200, 100 * self.state.device_table.associated_count) if limit is None else limit

    def part_of(self, share: float) -> int:
        """Return this gateway's part, at least one, of a number that is given as a share of all devices."""
        return max(1, math.floor(share * self.state.device_table.associated_count + 0.5))

    def aggregated(self, held: HeldUpdate, at: float, *, staleness: int, weight: float) -> None:
        """Record that the gateway's model now contains this update; the next upload counts it."""
        self.state.updates += 1
        self.state.samples += held.update.samples
        self.end_job(held.number, held.in_flight, "aggregated", at, held.update, staleness, weight)

    def drop_stale(self, held: HeldUpdate, at: float, *, staleness: int) -> None:
        """Record that this update was too stale to be used."""
        self.end_job(held.number, held.in_flight, "stale", at, held.update, staleness)

    # Models ------------------------------------------------------------------------------------------------------

    def adopt_newest(self, model: m.GlobalModel | m.Answer) -> None:
        """Adopt this model, or a newer one that was broadcast. A gateway that has continued during its upload keeps the
        changes made since: w <- G + (w - u), unless these have diverged."""
        state = self.state
        if state.newest is not None and state.newest.epoch > model.epoch:
            model = state.newest
        if model.epoch < state.base_epoch:
            raise InvariantViolation(f"gateway {self.config.number}: model {model.epoch} after {state.base_epoch}")
        current, uploaded = state.weights, state.uploaded
        self.adopt(model)
        state.newest = state.uploaded = None
        if current is not None and uploaded is not None and state.updates:
            weights = carried_over(self.weights, current, uploaded, trained=self.config.gradient_size)
            if not isinstance(weights, np.ndarray) or is_finite(weights):  # an accelerator need not be waited for
                self.weights = weights

    def adopt_if_newer(self, answer: m.Answer) -> None:
        """Adopt the newer one of the answer to a relayed update and a model that was broadcast, if it is newer than the
        gateway's own: answers may overtake each other."""
        for model in (answer, self.state.newest):
            if model is not None and model.epoch > self.state.base_epoch:
                self.adopt(model)
        self.state.newest = None

    def adopt(self, model: m.GlobalModel | m.Answer) -> None:
        """Replace the gateway's model by a global one. Until it changes, devices are sent the bytes that arrived."""
        state, codec = self.state, self.config.codec
        self.weights, state.base_epoch = codec.decode_model(model.weights), model.epoch
        state.reference_latency, state.tiers = model.reference_latency, model.tiers
        if codec.encodes_down:
            state.encoded = model.weights
        if codec.encodes_up:
            state.base = state.weights

    def model_for_devices(self) -> tuple[Model, Weights]:
        """Return the gateway's model as it travels, and as a device will have it."""
        state, codec, weights = self.state, self.config.codec, self.weights
        if not codec.encodes_down:
            return weights, weights
        if state.encoded is None:
            state.versions += 1
            key = codec.key("model", self.config.number, state.incarnation, state.versions)
            state.encoded = codec.encode_model(weights, key)
        return state.encoded, codec.decode_model(state.encoded)

    def model_for_cloud(self, upload: UploadId) -> Model:
        """Return the gateway's model as it is uploaded: the change since the global model that it started from."""
        state, codec, weights = self.state, self.config.codec, self.weights
        if not codec.encodes_up:
            return weights
        if state.base is None:
            raise InvariantViolation(f"gateway {self.config.number} uploads before it has a global model")
        key = codec.key("upload", *upload)
        change, state.rounding_error = codec.encode_change(weights, state.base, state.rounding_error, key)
        return change

    def knowledge(self, slot: int) -> m.DeviceKnowledge:
        """Return everything that is known about a device, for the cloud. Privacy keeps its losses here."""
        known, state, codec = self.state.device_table.knowledge(slot), self.state, self.config.codec
        if self.config.privacy.noise > 0.0:
            known = replace(known, loss=math.nan, squared_loss=math.nan)
        key = codec.key("gradient", self.config.number, state.incarnation, known.device, state.next_job)
        return encode_knowledge(codec, known, "up", key)

    # For the parts of a gateway ----------------------------------------------------------------------------------

    def device_patience(self, slot: int) -> float:
        """Return the seconds without a message after which a job of this device times out."""
        table, config = self.state.device_table, self.config
        patience = max(config.patience_floor, config.patience_factor * float(table.round_latency[slot]))
        return patience * 2.0 ** int(table.timeouts[slot])

    def usual_time(self, slot: int) -> float:
        """Return the seconds after which a job of this device frees its bandwidth."""
        deployment, latency = self.config.deployment, float(self.state.device_table.round_latency[slot])
        if deployment.overdue_factor == NEVER:
            return NEVER
        return max(deployment.overdue_floor, deployment.overdue_factor * latency)

    def end_job(
        self,
        number: int,
        in_flight: InFlightJob,
        reason: JobEnd,
        at: float,
        update: m.Update | None = None,
        staleness: int = 0,
        weight: float = 0.0,
    ) -> None:
        """Write the end of a job that is no longer in flight. If it has an update, the update is processed."""
        state, slot = self.state, in_flight.slot
        download_s, training_s, loss = 0.0, 0.0, None
        if update is not None:
            download_s, training_s, loss = update.download_s, update.training_s, update.loss
            if self.config.deployment.track_losses and reason != "warmup":
                self.note_processed(number, slot)
        job, device = JobId(self.config.number, state.incarnation, number), int(state.device_table.devices[slot])
        times = (in_flight.sent_at, download_s, training_s)
        self.emit(Write(JobRecord(at, job, device, reason, *times, staleness, weight, state.gateway_epoch, loss)))

    def note_processed(self, number: int, slot: int) -> None:
        """Let the next upload name this job, if losses are tracked: its update was aggregated, relayed or dropped. A
        device that has lost its disk may repeat a job; it is named only once."""
        if self.config.deployment.track_losses and self.state.ever_processed.add(number):
            self.state.processed.append((number, slot))

    def note_discarded(self, number: int, slot: int) -> None:
        """Note a job that ended without an update, if losses are tracked: its update may still arrive."""
        if self.config.deployment.track_losses:
            jobs = self.state.discarded.setdefault(slot, [])
            jobs.append(number)
            del jobs[:-_MOST_DISCARDED]

    def take_discarded(self, number: int, slot: int) -> bool:
        """True if a job of this device ended without an update. The update that has arrived is the only one."""
        jobs = self.state.discarded.get(slot, [])
        if number not in jobs:
            return False
        jobs.remove(number)
        return True

    def hello(self) -> None:
        """Tell the cloud which incarnation this is; the cloud may have declared it lost during an outage."""
        self.emit(Send(CLOUD, m.Hello(self.state.incarnation)))

    def report(
        self,
        answered_warmup: tuple[m.DeviceKnowledge, ...] = (),
        lost: tuple[int, ...] = (),
        heard: tuple[int, ...] = (),
    ) -> None:
        """Report completed warm-up jobs, and links that failed or were restored, to the cloud."""
        state = self.state
        self.emit(Send(CLOUD, m.Report(state.incarnation, state.next_report, answered_warmup, lost, heard)))
        state.next_report += 1
