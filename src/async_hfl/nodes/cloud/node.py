"""The cloud: it runs the warm-up, associates devices with gateways, aggregates their uploads and ends the run.

    new --nodes have joined--> warmup --quorum has answered--> running --target, H epochs or time limit--> over

Calls go in one direction: an event reaches the node, the node calls a part or the aggregation rule, and acts on what it
returns. Only the node changes the phase. Slow computations are effects (`Solve`, `Evaluate`) whose results arrive as
events, so that an upload is answered before its model is evaluated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from async_hfl.core.arrays import Ints
from async_hfl.core.identifiers import GATEWAY_TIER
from async_hfl.core.learner import Evaluation
from async_hfl.core.protocol import events
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.effects import Effect, SetTimer, Stop, Write
from async_hfl.core.protocol.records import LifecycleRecord
from async_hfl.core.serialization import Plain, from_plain, to_plain
from async_hfl.core.topology import FeasibleLinks
from async_hfl.core.weights import Weights, digest
from async_hfl.nodes.cloud import (
    association_step,
    device_evaluation,
    evaluations,
    membership,
    reference_latency,
    restored,
    tier_draws,
    update_ledger,
    uploads,
    warmup,
)
from async_hfl.nodes.cloud.aggregation.rule import CloudAggregation, Next
from async_hfl.nodes.cloud.association_table import observe_links, pass_on_lease, revoke_leases, store_knowledge
from async_hfl.nodes.cloud.context import Cloud
from async_hfl.nodes.cloud.state import CloudState
from async_hfl.nodes.config import CloudConfig


class CloudNode:
    def __init__(
        self,
        config: CloudConfig,
        links: FeasibleLinks,
        samples: Ints,
        weights: Weights,
        aggregation: CloudAggregation,
        *,
        revisits: bool,
        incarnation: int = 1,
    ) -> None:
        """`revisits`: the association is solved again every `association_period` cloud epochs."""
        self.config = config
        self.cloud = Cloud(config, links, samples, weights, incarnation)
        self.aggregation = aggregation
        self.revisits = revisits
        self._events: dict[type, Callable[[Any], None]] = {
            events.Received: self._received,
            events.Started: self._started,
            events.TimerFired: self._timer,
            events.Solved: self._solved,
            events.Evaluated: lambda event: self._evaluated(event.epoch, event.evaluation, event.at),
            events.PeerLost: self._peer_lost,
            events.PeerJoined: lambda event: membership.session_restored(self.cloud, event.peer.number),
            events.Progressed: lambda event: None,
            events.DeviceJoined: self._device_joined,
            events.DrainAsked: self._drain,
            events.Returned: self._returned,
            events.Restored: self._restored,
        }
        self._messages: dict[type, Callable[[Any, Any], None]] = {
            m.Upload: self._upload,
            m.LeaseReleased: self._lease_released,
            m.Report: self._report,
            m.Hello: self._hello,
            m.EvaluateResult: self._evaluate_result,
            m.Unsettled: self._unsettled,
        }

    @property
    def state(self) -> CloudState:
        return self.cloud.state

    @property
    def links(self) -> FeasibleLinks:
        return self.cloud.links

    def handle(self, event: events.Event) -> list[Effect]:
        self.cloud.effects = []
        self._events[type(event)](event)
        return self.cloud.effects

    def snapshot(self) -> Plain:
        return {"state": to_plain(self.state), "aggregation": self.aggregation.snapshot()}

    def restore(self, data: Plain) -> None:
        self.cloud.state = from_plain(data["state"])
        self.aggregation.restore(data["aggregation"])

    def _received(self, event: events.Received) -> None:
        message = event.message
        if self.state.phase != "over":
            if not restored.is_outdated(self.cloud, event):
                self._messages[type(message)](event, message)
        elif isinstance(message, (m.Upload, m.Hello)):
            gateway = event.sender.number
            membership.make_room(self.cloud, gateway)
            incarnation = message.incarnation if isinstance(message, m.Hello) else message.upload.incarnation
            if membership.accept_after_end(self.cloud, gateway, incarnation, event.at):
                self._send_finish(gateway, incarnation)

    def _timer(self, event: events.TimerFired) -> None:
        key, at, cloud = event.key, event.at, self.cloud
        if key == membership.START_TIMER:
            self.state.start_due = True
            self._begin_if_ready(at)
        elif key == device_evaluation.TIMER:
            for epoch, evaluation in device_evaluation.close_due(cloud, at):
                self._evaluated(epoch, evaluation, at)
            device_evaluation.arm(cloud)
        elif key == membership.ABSENCE_TIMER:
            self._absence_timer(at)
        elif key in warmup.TIMERS:
            self._end_warmup_if_over(at)
        elif key in evaluations.TIMERS and self.state.phase != "over":
            evaluations.timer_fired(cloud, key, at)
            self._end_if_over(at)
        elif key == association_step.ASSOCIATION_TIMER and at >= self.state.solve_at and self.state.phase == "running":
            association_step.solve(cloud)

    # Start and warm-up -------------------------------------------------------------------------------------------

    def _started(self, event: events.Started) -> None:
        if self.state.phase != "new":
            return
        if self.config.membership.start_devices == 0:
            self._begin(event.at)
        else:
            self.cloud.emit(SetTimer(membership.START_TIMER, event.at + self.config.membership.start_patience))

    def _begin_if_ready(self, at: float) -> None:
        if self.state.phase == "new" and self.config.membership.start_devices > 0 and membership.is_ready(self.cloud):
            self._begin(at)

    def _begin(self, at: float) -> None:
        evaluations.limit_time(self.cloud, at)
        if self.config.warmup:
            self.state.phase = "warmup"
            warmup.begin(self.cloud, at)
        else:
            self.state.phase = "running"
            membership.fix_bandwidth(self.cloud)
            association_step.solve(self.cloud)

    def _warmup_answered(self, devices: list[int], at: float, *, answered: bool) -> None:
        warmup.count(self.cloud, devices, answered=answered)
        self._end_warmup_if_over(at)

    def _end_warmup_if_over(self, at: float) -> None:
        cloud = self.cloud
        if self.state.phase == "warmup" and warmup.is_over(cloud, at):
            self.state.phase = "running"
            warmup.fit_basis(cloud)
            membership.fix_bandwidth(cloud)
            warmup.record_end(cloud, at)
            association_step.solve(cloud)

    # Uploads -----------------------------------------------------------------------------------------------------

    def _upload(self, event: events.Received, upload: m.Upload) -> None:
        member, at = self.state.members[upload.upload.gateway], event.at
        if member.suspended and upload.upload.incarnation == member.incarnation:
            self._reinstate(upload.upload.gateway, at)
        if uploads.admit(self.cloud, upload, at):
            staleness = self.state.epoch + 1 - upload.base_epoch
            decoded = uploads.decode(self.cloud, upload, at)
            if decoded is None:
                self._proceed(Next(decided=((upload, m.Outcome(False, staleness, 0.0)),)), at)
            else:
                self._proceed(self.aggregation.received(self.cloud, decoded, staleness, at), at)

    def _proceed(self, step: Next, at: float) -> None:
        """Carry out what the aggregation rule has decided."""
        state, cloud = self.state, self.cloud
        for gateway in step.wake:
            cloud.send_model(gateway)
        step = uploads.without_diverged_model(cloud, step, at)
        if step.model is not None:
            state.weights, state.encoded = step.model, None
            state.epoch += 1
            uploads.forget_old_bases(cloud)
            reference_latency.update(cloud)
            tier_draws.update(cloud)
            state.updates += sum(upload.updates for upload, outcome in step.decided if outcome.accepted)
        for upload, outcome in step.decided:
            uploads.close(cloud, upload, outcome, at)
        if step.model is not None:
            self._epoch_made({upload.upload.gateway for upload, _ in step.decided}, at)
        for upload in step.held:
            cloud.send(upload.upload.gateway, m.UploadHeld(upload.upload))

    def _epoch_made(self, answered: set[int], at: float) -> None:
        """Broadcast a new global model to the gateways that were not answered with it; evaluate and re-associate if
        due."""
        state, config, cloud = self.state, self.config, self.cloud
        if config.delivery == "broadcast":
            for gateway, member in enumerate(state.members):
                if member.live and gateway not in answered:
                    cloud.send_model(gateway)
        evaluations.model_made(cloud, at)
        if self.revisits and state.epoch - state.revisited_epoch >= config.association_period:
            # Solutions requested for other reasons do not postpone the next periodic one.
            state.revisited_epoch = state.epoch
            association_step.solve(cloud)

    # Evaluation and the end --------------------------------------------------------------------------------------

    def _evaluate_result(self, event: events.Received, answer: m.EvaluateResult) -> None:
        evaluation = device_evaluation.note_answer(self.cloud, answer)
        if evaluation is not None:
            self._evaluated(answer.epoch, evaluation, event.at)

    def _evaluated(self, number: int, evaluation: Evaluation, at: float) -> None:
        if self.state.phase != "over":
            evaluations.answered(self.cloud, number, evaluation, at)
            self._end_if_over(at)

    def _end_if_over(self, at: float) -> None:
        if self.state.phase != "over" and evaluations.run_ends(self.cloud, at):
            self._finish(at)

    def _drain(self, event: events.DrainAsked) -> None:
        if self.state.phase != "over":
            self._finish(event.at)

    def _finish(self, at: float) -> None:
        state, cloud = self.state, self.cloud
        for gateway in sorted(state.declare_lost_at):
            membership.record_loss(cloud, gateway, at)
        state.phase = "over"
        cloud.emit(Write(LifecycleRecord(at, "finished", "cloud", f"epoch {state.epoch}")))
        for gateway, member in enumerate(state.members):
            if member.live:
                self._send_finish(gateway, member.incarnation)
        cloud.emit(Stop())

    def _send_finish(self, gateway: int, incarnation: int) -> None:
        outcomes = uploads.unanswered_outcomes(self.cloud, gateway, incarnation)
        self.cloud.send(gateway, m.Finish(self.state.epoch, outcomes, digest(self.state.weights)))

    # Association, reports and leases -----------------------------------------------------------------------------

    def _solved(self, event: events.Solved) -> None:
        state, cloud = self.state, self.cloud
        if not state.solving or event.number != state.solves or state.phase == "over":
            return
        association_step.adopt(cloud, event)
        self._proceed(self.aggregation.changed(cloud, event.at), event.at)
        if state.solve_again:
            state.solve_again = False
            association_step.solve(cloud)

    def _lease_released(self, event: events.Received, released: m.LeaseReleased) -> None:
        gateway, device = event.sender.number, released.lease.device
        store_knowledge(self.cloud, released.knowledge, gateway)
        granted = pass_on_lease(self.cloud, released.lease, gateway)
        if granted is not None:
            self.cloud.send(int(self.state.association.holder[device]), granted)
        # A device that is released without having completed its warm-up job will not be sent another.
        self._warmup_answered([device], event.at, answered=released.warmup)

    def _report(self, event: events.Received, report: m.Report) -> None:
        state, cloud, gateway, at = self.state, self.cloud, event.sender.number, event.at
        membership.make_room(cloud, gateway)
        if report.incarnation != state.members[gateway].incarnation:
            if report.incarnation in state.members[gateway].fenced:
                return
            self._hello(event, m.Hello(report.incarnation))  # the report has overtaken the hello
        elif state.members[gateway].suspended:
            self._reinstate(gateway, at)
        for known in report.answered_warmup:
            store_knowledge(cloud, known, gateway)
        if report.answered_warmup:
            self._warmup_answered([known.device for known in report.answered_warmup], at, answered=True)
        observe_links(cloud, gateway, report)
        if report.lost:
            self._warmup_answered(list(report.lost), at, answered=False)
        if report.lost or report.heard:
            self._proceed(self.aggregation.changed(cloud, at), at)
        if state.phase == "running" and association_step.needed_after(cloud, gateway, report):
            association_step.solve_soon(cloud, at)
        if report.heard:
            self._begin_if_ready(at)

    def _unsettled(self, event: events.Received, unsettled: m.Unsettled) -> None:
        update_ledger.note_unsettled(self.cloud, event.sender.number, unsettled, event.at)

    # Gateways that come and go -----------------------------------------------------------------------------------

    def _hello(self, event: events.Received, hello: m.Hello) -> None:
        cloud, gateway, at = self.cloud, event.sender.number, event.at
        membership.make_room(cloud, gateway)
        member = self.state.members[gateway]
        if hello.incarnation in member.fenced:
            uploads.send_fenced(cloud, gateway, hello.incarnation)
            return
        if hello.incarnation == member.incarnation and member.live:
            return  # it restarted with its state: nothing was lost
        if member.suspended:
            if hello.incarnation == member.incarnation:
                self._reinstate(gateway, at)
                return
            membership.replace(cloud, gateway, at)
        if member.live:
            self._lose(gateway, at)  # its former incarnation was lost without the cloud noticing
        membership.gateway_joined(cloud, gateway, hello.incarnation, at)
        self._begin_if_ready(at)

    def _reinstate(self, gateway: int, at: float) -> None:
        membership.reinstate(self.cloud, gateway, at)
        self._begin_if_ready(at)

    def _device_joined(self, event: events.DeviceJoined) -> None:
        if self.state.phase != "over":
            membership.device_joined(self.cloud, event)

    def _peer_lost(self, event: events.PeerLost) -> None:
        if event.peer.tier == GATEWAY_TIER:
            if self.config.membership.gateway_patience == 0.0:
                self._lose(event.peer.number, event.at)
            else:
                membership.session_lost(self.cloud, event.peer.number, event.at)

    def _returned(self, event: events.Returned) -> None:
        """Treat all sessions as lost after a restart of the cloud."""
        if self.config.membership.gateway_patience > 0.0:
            for gateway in range(len(self.state.members)):
                membership.session_lost(self.cloud, gateway, event.at)

    def _restored(self, event: events.Restored) -> None:
        for gateway in restored.begin(self.cloud, event):
            self._lose(gateway, event.at)

    def _absence_timer(self, at: float) -> None:
        """Suspend one gateway; for the next one the timer fires again at once. Suspending a gateway may close a round
        that others wait for, so each suspension is an event of its own."""
        gateway = membership.suspend_next(self.cloud, at)
        if gateway is None:
            membership.record_overdue_losses(self.cloud, at)
        elif self.state.members[gateway].suspended:
            self._take_devices(gateway, at)
        membership.arm(self.cloud)

    def _lose(self, gateway: int, at: float) -> None:
        """Declare a gateway lost and fence its incarnation."""
        member = self.state.members[gateway]
        if member.live and self.state.phase != "over":
            member.fenced.add(member.incarnation)
            member.begun = False
            update_ledger.declare_lost(self.cloud, gateway, member.incarnation, at)
            self._take_devices(gateway, at)

    def _take_devices(self, gateway: int, at: float) -> None:
        """Revoke a gateway's leases and reassign its devices."""
        state, cloud = self.state, self.cloud
        state.members[gateway].live = False
        cloud.emit(Write(LifecycleRecord(at, "gateway_lost", f"g{gateway}")))
        devices = revoke_leases(cloud, gateway)
        self._proceed(self.aggregation.gateway_lost(cloud, gateway, at), at)
        if state.phase == "warmup":
            self._warmup_answered(devices, at, answered=False)
        elif state.phase == "running":
            association_step.solve(cloud)
