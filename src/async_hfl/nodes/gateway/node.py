"""A gateway: triggers devices, collects what they learnt, answers to the cloud.

    waiting --GlobalModel--> open --upload--> uploading --Answer--> open --> ...        any --Finish--> over

What it does with an update that arrives is the aggregation's choice (mix it, relay it, ...: `gateway_aggregation`).
The rest is the same for every method, an idea a file: `dispatching` (selection within the bandwidth), `rights` (who may
trigger whom), `silence` (patience with devices), `uploads` (resent until answered). Here: what happens when.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from async_hfl.core.identifiers import CLOUD, JobId, device_address
from async_hfl.core.maths.projection import PcaProjection
from async_hfl.core.policies import SelectionPolicy
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.effects import Effect, Send, SetTimer, Stop, Write
from async_hfl.core.protocol.events import (
    Event,
    PeerJoined,
    PeerLost,
    Progressed,
    Received,
    Returned,
    Started,
    TimerFired,
)
from async_hfl.core.protocol.records import JobEnd, JobRecord, LifecycleRecord, UploadEnd, UploadRecord
from async_hfl.core.serialization import Plain, from_plain, to_plain
from async_hfl.core.weights import is_finite, mean_step
from async_hfl.nodes import update_ledger
from async_hfl.nodes.config import GatewayConfig
from async_hfl.nodes.gateway import device_timeouts, leases, sessions, uploads
from async_hfl.nodes.gateway.aggregation.protocol import GatewayAggregation
from async_hfl.nodes.gateway.device_table import DeviceTable
from async_hfl.nodes.gateway.selection_step import dispatch, trigger
from async_hfl.nodes.gateway.state import AGGREGATION_TIMER, NEVER, GatewayState, InFlightJob


class GatewayNode:
    def __init__(
        self, config: GatewayConfig, selection: SelectionPolicy, aggregation: GatewayAggregation, incarnation: int = 1
    ) -> None:
        self.config = config
        self.selection = selection
        self.aggregation = aggregation
        self.state = self._fresh(incarnation)
        self._effects: list[Effect] = []
        self._events: dict[type, Callable[[Any], None]] = {
            Received: self._received,
            TimerFired: self._timer,
            Started: self._nothing,
            Returned: self._returned,
            PeerLost: self._peer_lost,
            PeerJoined: self._peer_joined,
            Progressed: self._progressed,
        }
        self._messages: dict[type, Callable[[Any, Any], None]] = {
            m.Update: self._update,
            m.JobDropped: self._job_dropped,
            m.Alive: self._alive,
            m.Unsettled: self._unsettled,
            m.SettledAck: self._noted,
            m.EvaluateRequest: self._assess,
            m.EvaluateResult: self._assessed,
            m.Answer: self._answer,
            m.UploadHeld: self._upload_held,
            m.GlobalModel: self._global_model,
            m.WarmUp: self._warm_up,
            m.Assignment: self._assignment,
            m.LeaseGranted: self._granted,
            m.Finish: self._finish,
            m.Fenced: self._fenced,
            m.LeasesRevoked: self._revoked,
            m.Refused: self._refused,
        }
        self._timers: dict[str, Callable[[GatewayNode, float], None]] = {
            "patience": device_timeouts.give_up,
            "probe": device_timeouts.probe,
            "reply": uploads.resend,
            "idle": GatewayNode._idle,
            sessions.PRESENCE_TIMER: sessions.give_up_awaited,
            sessions.CLOUD_TIMER: sessions.cloud_stayed_away,
            AGGREGATION_TIMER: GatewayNode._aggregation_timer,
        }

    def handle(self, event: Event) -> list[Effect]:
        self._effects = []
        self._events[type(event)](event)
        return self._effects

    def snapshot(self) -> Plain:
        return {"state": to_plain(self.state), "aggregation": self.aggregation.snapshot()}

    def restore(self, data: Plain) -> None:
        self.state = from_plain(data["state"])
        self.aggregation.restore(data["aggregation"])

    # What the parts of a gateway share ---------------------------------------------------------------------------

    def emit(self, effect: Effect) -> None:
        self._effects.append(effect)

    def report(
        self,
        answered_warmup: tuple[m.DeviceKnowledge, ...] = (),
        lost: tuple[int, ...] = (),
        heard: tuple[int, ...] = (),
    ) -> None:
        state = self.state
        self.emit(Send(CLOUD, m.Report(state.incarnation, state.next_report, answered_warmup, lost, heard)))
        state.next_report += 1

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
        """Write the one end of a job whose flight is no longer in the table."""
        state = self.state
        download_s, training_s, loss = 0.0, 0.0, None
        if update is not None:
            download_s, training_s, loss = update.download_s, update.training_s, update.loss
        self._effects.append(
            Write(
                JobRecord(
                    at,
                    JobId(self.config.number, state.incarnation, number),
                    int(state.device_table.devices[in_flight.slot]),
                    reason,
                    in_flight.sent_at,
                    download_s,
                    training_s,
                    staleness,
                    weight,
                    state.gateway_epoch,
                    loss,
                )
            )
        )

    def discard_flights(self, at: float) -> None:
        """Forget the work in flight (`gateway.in_flight = "discard"`): its devices are idle again for us."""
        for number, in_flight in list(self.state.in_flight_jobs.items()):
            if not in_flight.warmup:
                self._land(number, in_flight, at)
                self.end_job(number, in_flight, "round_closed", at)
                leases.release_if_moved(self, in_flight.slot)

    def max_staleness(self) -> int:
        limit = self.config.max_staleness
        return max(200, 100 * self.state.device_table.associated_count) if limit is None else limit

    def watch_idleness(self, at: float) -> None:
        """Nobody can be triggered: if that lasts and nothing is in flight, the aggregation may act without them."""
        state = self.state
        if state.active == 0 and state.idle_upload_at == NEVER and self.aggregation.waits(self):
            state.idle_upload_at = at + self.config.cycle_patience
            self.emit(SetTimer("idle", state.idle_upload_at))

    # From devices ------------------------------------------------------------------------------------------------

    def _update(self, event: Received, update: m.Update) -> None:
        state, at, job = self.state, event.at, update.job
        device_timeouts.heard(self, event.sender.number, at)
        in_flight = self._landed(job, at)
        if in_flight is None:
            self._landed_too_late(event.sender.number, job)
            dispatch(self, at)  # ended before (discarded, say), but the device may be heard again
            return
        device_table, slot = state.device_table, in_flight.slot
        device_table.measure(slot, at - in_flight.sent_at)
        if not is_finite(update.weights):
            update_ledger.landed(self, job.number, slot)
            self.end_job(job.number, in_flight, "refused", at, update)
            self.aggregation.ended(self, (job.number,), at)
            self._after_landing(slot, at, warmup=False)
            return
        self._learn(slot, in_flight, update)
        if in_flight.warmup:
            self.end_job(job.number, in_flight, "warmup", at, update)
            self._after_landing(slot, at, warmup=True)
            return
        if not leases.release_if_moved(self, slot):
            device_table.learnt[slot] = None
        self.aggregation.received(self, job.number, in_flight, update, at)

    def _learn(self, slot: int, in_flight: InFlightJob, update: m.Update) -> None:
        device_table = self.state.device_table
        device_table.given_up[slot] = 0
        device_table.samples[slot] = update.samples
        device_table.loss[slot] = update.loss
        device_table.squared_loss[slot] = update.squared_loss
        device_table.last_seen[slot] = self.state.gateway_epoch + 1
        if device_table.gradients is None:
            return
        gradient = update.gradient
        if gradient is None:
            # gradient = "update": the mean step, from weights that are here anyway: no bytes on the device link
            config = self.config
            divisor = np.float32(config.learning_rate * update.steps)
            gradient = mean_step(in_flight.sent, update.weights, config.gradient_size, divisor)
        # The table of gradients looks for NaN itself, but not before it changes over to compressed ones.
        if not update.compressed or is_finite(gradient):
            device_table.learn(slot, gradient, update.compressed)

    def _job_dropped(self, event: Received, dropped: m.JobDropped) -> None:
        at = event.at
        device_timeouts.heard(self, event.sender.number, at)
        in_flight = self._landed(dropped.job, at)
        if in_flight is None:
            dispatch(self, at)
            return
        self.end_job(dropped.job.number, in_flight, dropped.reason, at)
        if dropped.version > self.state.version:
            # The device obeys an association that has not reached us yet: it is not ours to trigger.
            leases.let_go(self, in_flight.slot)
        self.aggregation.ended(self, (dropped.job.number,), at)
        self._after_landing(in_flight.slot, at, warmup=False)

    def _landed_too_late(self, device: int, job: JobId) -> None:
        """Its job has ended, which is on record; so its update is over, too."""
        slot = self.state.device_table.slot_of.get(device)
        if slot is not None and job.incarnation == self.state.incarnation:
            update_ledger.landed(self, job.number, slot)

    def _unsettled(self, event: Received, unsettled: m.Unsettled) -> None:
        update_ledger.pass_on_report(self, event.sender.number, unsettled)

    def _assess(self, _: Received, assess: m.EvaluateRequest) -> None:
        """Ask those that can be asked now; the cloud does not wait for the others for ever."""
        for device in assess.devices:
            if device in self.state.present:
                self.emit(Send(device_address(device), m.EvaluateRequest(assess.epoch, assess.weights)))

    def _assessed(self, event: Received, assessed: m.EvaluateResult) -> None:
        device = event.sender.number
        self.emit(Send(CLOUD, m.EvaluateResult(assessed.epoch, assessed.metric, assessed.loss, device)))

    def _noted(self, _: Received, noted: m.SettledAck) -> None:
        update_ledger.pass_on_note(self, noted)

    def _alive(self, event: Received, _: m.Alive) -> None:
        device_timeouts.heard(self, event.sender.number, event.at)
        dispatch(self, event.at)

    def _landed(self, job: JobId, at: float) -> InFlightJob | None:
        """The flight of a job of ours that came to its end at the device, taken off the table."""
        state = self.state
        in_flight = state.in_flight_jobs.get(job.number) if job.incarnation == state.incarnation else None
        if in_flight is not None:
            self._land(job.number, in_flight, at)
        return in_flight

    def _land(self, number: int, in_flight: InFlightJob, at: float) -> None:
        """Take a flight off the table: bandwidth and device are free again."""
        state, device_table, slot = self.state, self.state.device_table, in_flight.slot
        del state.in_flight_jobs[number]
        if not in_flight.overdue:
            state.active -= 1
            state.load = state.load - in_flight.rate if state.active else 0.0
        if device_table.job[slot] == number:
            device_table.job[slot] = -1
            device_table.idle_since[slot] = at
            device_table.refresh(slot)

    def _after_landing(self, slot: int, at: float, *, warmup: bool) -> None:
        released = leases.release_if_moved(self, slot, warmup=warmup)
        if warmup and not released:
            self.report(answered_warmup=(self.state.device_table.knowledge(slot),))
        dispatch(self, at)

    # From the cloud ----------------------------------------------------------------------------------------------

    def _global_model(self, event: Received, model: m.GlobalModel) -> None:
        state = self.state
        if model.bandwidth > 0:
            state.bandwidth = model.bandwidth
        if model.basis is not None:
            state.device_table.project_with(PcaProjection(model.basis))
        if state.phase == "waiting":
            self.aggregation.began(self, model, event.at)
        elif model.epoch > (state.base_epoch if state.newest is None else state.newest.epoch):
            state.newest = model
            self.aggregation.offered(self, event.at)

    def _answer(self, event: Received, answer: m.Answer) -> None:
        if uploads.answered(self, answer, event.at):
            self.aggregation.answered(self, answer, event.at)

    def _upload_held(self, event: Received, held: m.UploadHeld) -> None:
        uploads.held(self, held.upload, event.at)

    def _warm_up(self, event: Received, warm_up: m.WarmUp) -> None:
        if warm_up.incarnation != self.state.incarnation:
            return
        for slot in leases.take(self, warm_up.leases, warm_up.knowledge):
            trigger(self, slot, 0.0, event.at, warm_up)

    def _assignment(self, event: Received, assignment: m.Assignment) -> None:
        state = self.state
        if assignment.incarnation != state.incarnation:
            return  # rights of a former incarnation were taken back when it was declared lost
        if assignment.version > state.version:
            state.version = assignment.version
            state.device_table.associate(assignment.devices)
        # A right that came with an assignment which a newer one overtook still has to go back.
        leases.take(self, assignment.leases, assignment.knowledge)
        leases.release_all_moved(self)
        dispatch(self, event.at)

    def _granted(self, event: Received, granted: m.LeaseGranted) -> None:
        if granted.incarnation != self.state.incarnation:
            return
        leases.take(self, (granted.lease,), (granted.knowledge,))
        leases.release_if_moved(self, self.state.device_table.slot_of[granted.lease.device])
        dispatch(self, event.at)

    def _finish(self, event: Received, finish: m.Finish) -> None:
        self._close("run_ended", event.at, finish.outcomes)
        self.state.final_model = finish.model
        self.emit(Stop())

    def _refused(self, event: Received, refused: m.Refused) -> None:
        self._close("run_ended", event.at)
        self.emit(Write(LifecycleRecord(event.at, "refused", f"g{self.config.number}", refused.reason)))
        self.emit(Stop(refused.reason))

    def _fenced(self, event: Received, fenced: m.Fenced) -> None:
        """The cloud took us for dead and gave our devices away. What is open is lost; we begin anew."""
        incarnation = self.state.incarnation
        if fenced.incarnation == incarnation:
            self._close("gateway_lost", event.at, fenced.outcomes)
            present = self.state.present
            self.state = self._fresh(incarnation + 1)
            self._rejoin(event)
            for device in sorted(present):
                sessions.device_joined(self, device, event.at)

    def _revoked(self, event: Received, revoked: m.LeasesRevoked) -> None:
        """We stayed away for too long, and our devices were given to others. What we have goes up at once."""
        state, device_table = self.state, self.state.device_table
        if revoked.incarnation != state.incarnation:
            return
        for lease in revoked.leases:
            slot = device_table.slot_of.get(lease.device)
            if slot is not None and 0 < device_table.lease[slot] <= lease.number:
                device_table.lease[slot] = 0
                device_table.refresh(slot)
        uploads.send_again(self, event.at)
        if state.phase == "open" and not state.active and self.aggregation.waits(self):
            self.aggregation.idle(self, event.at)

    def _close(self, reason: JobEnd, at: float, outcomes: tuple[tuple[int, m.Outcome], ...] = ()) -> None:
        """End what is open. `outcomes` are of uploads whose end the cloud has written, though we have not heard it."""
        state = self.state
        decided = dict(outcomes)
        if reason == "run_ended":
            update_ledger.list_late(self, decided, at)
        self.aggregation.over(self, reason, at, decided)
        for number, in_flight in list(state.in_flight_jobs.items()):
            self._land(number, in_flight, at)
            self.end_job(number, in_flight, reason, at)
        end: UploadEnd = "lost" if reason == "gateway_lost" else "run_ended"
        for number, outstanding in state.outstanding.items():
            upload = outstanding.message
            if number in decided:
                continue
            self.emit(
                Write(UploadRecord(at, upload.upload, end, upload.base_epoch, 0, 0.0, upload.updates, upload.early))
            )
        state.outstanding.clear()
        state.phase = "over"

    # Time, and the rest ------------------------------------------------------------------------------------------

    def _timer(self, event: TimerFired) -> None:
        if self.state.phase != "over":
            self._timers[event.key](self, event.at)

    def _idle(self, at: float) -> None:
        state = self.state
        if at < state.idle_upload_at:
            return  # somebody was triggered meanwhile
        state.idle_upload_at = NEVER
        if state.phase != "open" or state.active or not self.aggregation.waits(self):
            return
        if state.device_table.candidate.any():
            dispatch(self, at)
        else:
            self.aggregation.idle(self, at)

    def _aggregation_timer(self, at: float) -> None:
        if at >= self.aggregation.due():
            self.aggregation.timer(self, at)

    def _received(self, event: Received) -> None:
        if self.state.phase != "over":
            self._messages[type(event.message)](event, event.message)
        elif isinstance(event.message, m.Update):
            update_ledger.came_after_the_end(self, event.sender.number, event.message, event.at)

    def _peer_lost(self, event: PeerLost) -> None:
        if event.peer == CLOUD:
            self._rejoin(event)
            sessions.cloud_lost(self, event.at)
        elif self.state.phase != "over":
            sessions.device_lost(self, event.peer.number, event.at)

    def _peer_joined(self, event: PeerJoined) -> None:
        if event.peer == CLOUD:
            sessions.cloud_joined(self, event.at)
            self._rejoin(event)
        elif self.state.phase != "over":
            sessions.device_joined(self, event.peer.number, event.at)

    def _progressed(self, event: Progressed) -> None:
        if event.peer == CLOUD:
            uploads.moving(self, event.at)
        else:
            device_timeouts.moving(self, event.peer.number, event.at)

    def _returned(self, event: Returned) -> None:
        self._rejoin(event)
        sessions.sessions_gone(self, event.at)

    def _rejoin(self, _: Event) -> None:
        """After an outage of ours or of the session: the cloud may have declared us lost meanwhile."""
        self.emit(Send(CLOUD, m.Hello(self.state.incarnation)))

    def _nothing(self, _: Event) -> None:
        return

    def _fresh(self, incarnation: int) -> GatewayState:
        device_table = DeviceTable(share_gradients=self.config.share_gradients, projection=self.config.sketch)
        if self.config.gradient != "none":
            device_table.gradients = self.config.gradient_table(0)
        return GatewayState(incarnation, device_table=device_table, bandwidth=self.config.bandwidth)
