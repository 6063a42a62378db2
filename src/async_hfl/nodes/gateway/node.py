"""A gateway: it triggers devices, aggregates their updates by its rule, and exchanges models with the cloud.

    waiting --GlobalModel--> open --upload--> uploading --Answer--> open --> ...        any --Finish--> over

With `during_upload = "continue"` the phase stays open: the next cycle begins with the upload, and adopts the answer.

Calls go in one direction. `handle` passes an event to one of the methods below. The method changes the state through
the parts (`jobs`, `leases`, `device_timeouts`, `sessions`, `uploads`, ...), calls the aggregation rule (see
`aggregation.rule`), and carries out the `Next` step that the rule returns. Parts and rule never call the node; only the
node assigns the phase, selects devices and uploads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from async_hfl.core.errors import InvariantViolation, PolicyError
from async_hfl.core.identifiers import CLOUD
from async_hfl.core.maths.projection import PcaProjection
from async_hfl.core.policies import SelectionPolicy
from async_hfl.core.protocol import events
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.effects import Effect, SetTimer, Stop, Write
from async_hfl.core.protocol.message_vectors import decode_update
from async_hfl.core.protocol.records import JobEnd, LifecycleRecord
from async_hfl.core.serialization import Plain, from_plain, to_plain
from async_hfl.nodes.config import GatewayConfig
from async_hfl.nodes.gateway import closing, conduct, device_timeouts, forwarding, jobs, leases, sessions, uploads
from async_hfl.nodes.gateway.aggregation.rule import GatewayAggregation, Next
from async_hfl.nodes.gateway.context import Gateway
from async_hfl.nodes.gateway.selection_step import select
from async_hfl.nodes.gateway.state import AGGREGATION_TIMER, NEVER, GatewayState, HeldUpdate


class GatewayNode:
    def __init__(
        self, config: GatewayConfig, selection: SelectionPolicy, aggregation: GatewayAggregation, incarnation: int = 1
    ) -> None:
        self.gateway = Gateway(config, incarnation)
        self.selection = selection
        self.aggregation = aggregation
        self._messages: dict[type, Callable[[Any, Any], None]] = {
            m.Update: self._update,
            m.JobDropped: self._job_dropped,
            m.Alive: self._alive,
            m.Unsettled: lambda event, lists: forwarding.unsettled(self.gateway, event, lists),
            m.SettledAck: lambda _, ack: forwarding.settled(self.gateway, ack),
            m.EvaluateRequest: lambda _, request: forwarding.evaluate_request(self.gateway, request),
            m.EvaluateResult: lambda event, result: forwarding.evaluate_result(self.gateway, event, result),
            m.Answer: self._answer,
            m.UploadHeld: lambda event, held: uploads.held(self.gateway, held.upload, event.at),
            m.GlobalModel: self._global_model,
            m.WarmUp: self._warm_up,
            m.Assignment: self._assignment,
            m.LeaseGranted: self._lease_granted,
            m.Finish: self._finish,
            m.Fenced: self._fenced,
            m.LeasesRevoked: self._leases_revoked,
            m.Refused: self._refused,
        }
        self._timers: dict[str, Callable[[float], None]] = {
            "patience": self._expire_jobs,
            "probe": lambda at: device_timeouts.probe(self.gateway, at),
            "reply": lambda at: uploads.resend(self.gateway, at),
            "idle": self._upload_if_idle,
            sessions.RECONNECT_TIMER: self._expire_reconnecting,
            sessions.CLOUD_TIMER: lambda at: sessions.cloud_timed_out(self.gateway, at),
            AGGREGATION_TIMER: self._aggregation_timer,
        }

    @property
    def config(self) -> GatewayConfig:
        return self.gateway.config

    @property
    def state(self) -> GatewayState:
        return self.gateway.state

    def handle(self, event: events.Event) -> list[Effect]:
        self.gateway.effects.clear()
        over = self.gateway.state.phase == "over"
        if isinstance(event, events.Received):
            if not over:
                self._messages[type(event.message)](event, event.message)
            elif isinstance(event.message, m.Update):
                closing.update_after_end(self.gateway, event, event.message)
        elif isinstance(event, events.TimerFired):
            if not over:
                self._timers[event.key](event.at)
        elif isinstance(event, events.PeerLost):
            self._peer_lost(event)
        elif isinstance(event, events.PeerJoined):
            self._peer_joined(event)
        elif isinstance(event, events.Progressed) and event.peer == CLOUD:
            uploads.progressed(self.gateway, event.at)
        elif isinstance(event, events.Progressed):
            device_timeouts.progressed(self.gateway, event.peer.number, event.at)
        elif isinstance(event, events.Returned):
            self.gateway.hello()
            sessions.restarted(self.gateway, event.at)
        elif isinstance(event, events.Started):
            self.gateway.state.noise_secret = event.secret
        else:
            raise InvariantViolation(f"a gateway got {type(event).__name__}")
        return self.gateway.effects.copy()

    def snapshot(self) -> Plain:
        return {"state": to_plain(self.gateway.state), "aggregation": self.aggregation.snapshot()}

    def restore(self, data: Plain) -> None:
        self.gateway.state = from_plain(data["state"])
        self.gateway.state.device_table.complete()
        self.aggregation.restore(data["aggregation"])

    # Steps -------------------------------------------------------------------------------------------------------

    def _follow(self, method: str, step: Next, at: float, held: HeldUpdate | None = None) -> None:
        """Carry out the step that a method of the aggregation rule has returned."""
        if step is Next.SELECT:
            self._select(at, asked=True)
        elif step is Next.UPLOAD:
            self._upload(at)
        elif step is Next.RELAY and held is not None:
            self.gateway.note_processed(held.number, held.in_flight.slot)
            uploads.upload(self.gateway, 1, held.update.samples, at, relayed=held)
        elif step is not Next.NOTHING:
            raise PolicyError(
                f"aggregation rule {type(self.aggregation).__name__}: {method} returned {step!r}; it must return "
                f"{'a Next' if held is not None else 'Next.NOTHING, Next.SELECT or Next.UPLOAD'}"
            )
        if self.aggregation.due != self.state.aggregation_timer_at:
            self._arm_aggregation_timer()

    def _select(self, at: float, *, asked: bool = False) -> None:
        """Select and trigger idle devices if the phase and the rule allow it. `asked`: the rule returned `SELECT`."""
        gateway, state, rule = self.gateway, self.gateway.state, self.aggregation
        triggered: tuple[int, ...] = ()
        if state.phase == "open" and not state.cut_off and rule.may_select(gateway):
            slots = rule.eligible(gateway, state.device_table.candidate.nonzero()[0])
            if len(slots):
                triggered = select(gateway, self.selection, slots, at, rule.cycle_round)
            elif state.active == 0 and state.idle_upload_at == NEVER and rule.may_upload_early(gateway):
                state.idle_upload_at = at + gateway.config.cycle_patience
                gateway.emit(SetTimer("idle", state.idle_upload_at))
        if triggered or asked:
            rule.selected(gateway, triggered, at)
            if rule.due != state.aggregation_timer_at:
                self._arm_aggregation_timer()

    def _arm_aggregation_timer(self) -> None:
        self.state.aggregation_timer_at = self.aggregation.due
        if self.aggregation.due < NEVER:
            self.gateway.emit(SetTimer(AGGREGATION_TIMER, self.aggregation.due))

    def _begin_cycle(self, model: m.GlobalModel | m.Answer | None, at: float) -> None:
        """Adopt this model, or a newer one that was broadcast, and begin the next cycle; None: with the own model."""
        gateway, state, rule = self.gateway, self.gateway.state, self.aggregation
        if model is not None:
            gateway.adopt_newest(model)
        state.updates = state.samples = 0
        state.phase = "open"
        rule.adopted(gateway, at)
        step = Next.NOTHING
        while state.pending and step is not Next.UPLOAD:
            held = state.pending.pop(0)
            step = rule.received(gateway, held, at)
            if step is not Next.UPLOAD and step is not Next.SELECT:
                self._follow("received", step, at, held)
        self._select(at, asked=True)  # even if an upload follows: idle devices need not wait for its answer
        if step is Next.UPLOAD:
            self._follow("received", step, at)

    def _upload(self, at: float, *, early: bool = False) -> None:
        """Upload the gateway's model and wait for the answer, or begin the next cycle. At most one upload of the model
        is under way: the next one waits for its answer."""
        gateway, state = self.gateway, self.gateway.state
        state.upload_due = state.uploaded is not None
        if state.upload_due:
            self._select(at, asked=True)
            return
        uploads.upload(gateway, state.updates, self.aggregation.samples(gateway), at, early=early)
        self.aggregation.due = state.aggregation_timer_at = NEVER
        if gateway.config.during_upload == "continue":
            state.uploaded = state.weights
            self._begin_cycle(None, at)
        else:
            state.phase = "uploading"
            if gateway.config.in_flight == "discard":
                jobs.discard_all(gateway, at)

    # From devices ------------------------------------------------------------------------------------------------

    def _update(self, event: events.Received, update: m.Update) -> None:
        gateway, state, at, job = self.gateway, self.gateway.state, event.at, update.job
        device_table = state.device_table
        in_flight = jobs.ended(gateway, event, job)
        if in_flight is None:  # the job has ended already (it was discarded, say), but the device may be idle now
            jobs.note_late(gateway, event.sender.number, job)
            self._select(at)
            return
        slot = in_flight.slot
        device_table.measure(slot, at - in_flight.sent_at)
        model, update = update.weights, decode_update(gateway.config.codec, update, in_flight.sent)
        if conduct.refuses(gateway, in_flight, update, at):
            self._job_failed(job.number, slot, at)
            return
        jobs.learn(gateway, slot, in_flight, update)
        if in_flight.warmup:
            gateway.end_job(job.number, in_flight, "warmup", at, update)
            if not leases.release_if_moved(gateway, slot, warmup=True):
                gateway.report(answered_warmup=(gateway.knowledge(slot),))
            self._select(at)
            return
        if device_table.associated[slot] or not leases.release_if_moved(gateway, slot):
            device_table.unreported[slot] = None
        held = HeldUpdate(job.number, in_flight, update, model)
        if not self.aggregation.accepts(gateway, job.number):
            gateway.end_job(job.number, in_flight, "round_closed", at, update)
            self._select(at)
        elif state.phase == "open":
            self._follow("received", self.aggregation.received(gateway, held, at), at, held)
        else:
            state.pending.append(held)

    def _job_dropped(self, event: events.Received, dropped: m.JobDropped) -> None:
        gateway, at, job = self.gateway, event.at, dropped.job
        in_flight = jobs.ended(gateway, event, job)
        if in_flight is None:
            self._select(at)
            return
        gateway.end_job(job.number, in_flight, dropped.reason, at)
        if not in_flight.overdue:  # otherwise it has failed already, by timing out
            conduct.failed(gateway, in_flight.slot, at)
        if dropped.version > self.state.version:
            # The device has seen a newer association, in which it may belong to another gateway.
            leases.release(gateway, in_flight.slot)
        self._job_failed(job.number, in_flight.slot, at)

    def _job_failed(self, number: int, slot: int, at: float) -> None:
        if self.gateway.state.phase == "open":
            self._follow("failed", self.aggregation.failed(self.gateway, (number,), at), at)
        leases.release_if_moved(self.gateway, slot)
        self._select(at)

    def _alive(self, event: events.Received, _: m.Alive) -> None:
        device_timeouts.heard(self.gateway, event.sender.number, event.at)
        self._select(event.at)

    # From the cloud ----------------------------------------------------------------------------------------------

    def _global_model(self, event: events.Received, model: m.GlobalModel) -> None:
        state = self.state
        if model.bandwidth > 0:
            state.bandwidth = model.bandwidth
        if model.basis is not None:
            state.device_table.project_with(PcaProjection(model.basis))
        if state.phase == "waiting":
            self._begin_cycle(model, event.at)
        elif model.epoch > (state.base_epoch if state.newest is None else state.newest.epoch):
            state.newest = model
            between = state.phase == "open" and not state.updates and state.uploaded is None
            if between and self.aggregation.may_adopt(self.gateway):
                self._begin_cycle(model, event.at)

    def _answer(self, event: events.Received, answer: m.Answer) -> None:
        gateway, state, at = self.gateway, self.gateway.state, event.at
        upload = uploads.answered(gateway, answer, at)
        if upload is None:
            return
        if upload.relayed is not None:
            closing.end_relayed(gateway, upload.relayed, answer.outcome, at)
            if state.phase == "open" and not state.updates:
                gateway.adopt_if_newer(answer)
            self._select(at)
        elif state.uploaded is None:
            self._begin_cycle(answer, at)
        else:
            gateway.adopt_newest(answer)
            if state.upload_due:
                self._upload(at)

    def _warm_up(self, event: events.Received, warm_up: m.WarmUp) -> None:
        if warm_up.incarnation == self.state.incarnation:
            for slot in leases.take(self.gateway, warm_up.leases, warm_up.knowledge):
                jobs.trigger(self.gateway, slot, 0.0, event.at, warm_up)

    def _assignment(self, event: events.Received, assignment: m.Assignment) -> None:
        state = self.state
        if assignment.incarnation != state.incarnation:
            return  # leases of a former incarnation were revoked when it was declared lost
        if assignment.version > state.version:
            state.version = assignment.version
            state.device_table.associate(assignment.devices)
        # Leases are taken even if a newer assignment has overtaken this one, because they must be released.
        leases.take(self.gateway, assignment.leases, assignment.knowledge)
        leases.release_all_moved(self.gateway)
        self._select(event.at)

    def _lease_granted(self, event: events.Received, granted: m.LeaseGranted) -> None:
        if granted.incarnation == self.state.incarnation:
            leases.take(self.gateway, (granted.lease,), (granted.knowledge,))
            leases.release_if_moved(self.gateway, self.state.device_table.slot_of[granted.lease.device])
            self._select(event.at)

    def _leases_revoked(self, event: events.Received, revoked: m.LeasesRevoked) -> None:
        """Upload the model at once: this gateway was away for too long, and its devices were reassigned."""
        state = self.state
        if revoked.incarnation == state.incarnation:
            leases.revoke(self.gateway, revoked.leases)
            uploads.resend_all(self.gateway, event.at)
            if state.phase == "open" and not state.active and self.aggregation.may_upload_early(self.gateway):
                self._upload(event.at, early=True)

    def _finish(self, event: events.Received, finish: m.Finish) -> None:
        self._close("run_ended", event.at, finish.outcomes)
        self.state.final_model = finish.model
        self.gateway.emit(Stop())

    def _refused(self, event: events.Received, refused: m.Refused) -> None:
        self._close("run_ended", event.at)
        self.gateway.emit(Write(LifecycleRecord(event.at, "refused", f"g{self.config.number}", refused.reason)))
        self.gateway.emit(Stop(refused.reason))

    def _fenced(self, event: events.Received, fenced: m.Fenced) -> None:
        """Restart as a new incarnation: the cloud has declared this one lost and reassigned its devices."""
        incarnation, connected = self.state.incarnation, self.state.connected
        if fenced.incarnation == incarnation:
            self._close("gateway_lost", event.at, fenced.outcomes)
            self.gateway.restart(incarnation + 1, self.state.noise_secret)
            self.gateway.hello()
            for device in sorted(connected):
                sessions.device_joined(self.gateway, device, event.at)

    def _close(self, reason: JobEnd, at: float, outcomes: tuple[tuple[int, m.Outcome], ...] = ()) -> None:
        closing.end_all(self.gateway, reason, at, dict(outcomes))
        self.state.phase = "over"
        self.aggregation.reset()

    # Timers and sessions -----------------------------------------------------------------------------------------

    def _expire_jobs(self, at: float) -> None:
        expired, freed = device_timeouts.expire(self.gateway, at)
        if expired and self.state.phase == "open":
            self._follow("failed", self.aggregation.failed(self.gateway, expired, at), at)
        if expired or freed:
            self._select(at)

    def _upload_if_idle(self, at: float) -> None:
        state = self.state
        if at < state.idle_upload_at:
            return  # a device has been triggered since the timer was set
        state.idle_upload_at = NEVER
        if state.phase != "open" or state.active or not self.aggregation.may_upload_early(self.gateway):
            return
        if state.device_table.candidate.any():
            self._select(at)
        else:
            self._upload(at, early=True)

    def _aggregation_timer(self, at: float) -> None:
        if at >= self.aggregation.due and self.state.phase == "open":
            self.aggregation.due = self.state.aggregation_timer_at = NEVER
            self._follow("timer", self.aggregation.timer(self.gateway, at), at)

    def _expire_reconnecting(self, at: float) -> None:
        for device in sorted(self.state.reconnecting):
            sessions.device_lost(self.gateway, device, at)
            self._select(at)

    def _peer_lost(self, event: events.PeerLost) -> None:
        if event.peer == CLOUD:
            self.gateway.hello()
            sessions.cloud_lost(self.gateway, event.at)
        elif self.state.phase != "over":
            sessions.device_lost(self.gateway, event.peer.number, event.at)
            self._select(event.at)

    def _peer_joined(self, event: events.PeerJoined) -> None:
        if event.peer == CLOUD:
            if sessions.cloud_joined(self.gateway):
                self._select(event.at)
            self.gateway.hello()
        elif self.state.phase != "over":
            sessions.device_joined(self.gateway, event.peer.number, event.at)
            self._select(event.at)
