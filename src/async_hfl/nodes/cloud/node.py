"""The cloud: warms up, associates devices with gateways, aggregates the gateways' models, knows when to stop.

    new --Started--> warmup --quorum--> (first association solved) --> running --target or H--> over

An upload is answered before the model is evaluated, and nothing that may take long happens inside: solving and
evaluating are effects whose answers come back as events.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from async_hfl.core.arrays import Ints
from async_hfl.core.identifiers import GATEWAY_TIER, gateway_address
from async_hfl.core.learner import Evaluation
from async_hfl.core.maths.projection import PcaProjection
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.effects import Effect, Evaluate, Send, SetTimer, Solve, Stop, Write
from async_hfl.core.protocol.events import (
    DeviceJoined,
    DrainAsked,
    Evaluated,
    Event,
    PeerJoined,
    PeerLost,
    Progressed,
    Received,
    Returned,
    Solved,
    Started,
    TimerFired,
)
from async_hfl.core.protocol.records import AssociationRecord, EpochRecord, LifecycleRecord, UploadRecord
from async_hfl.core.serialization import Plain, from_plain, to_plain
from async_hfl.core.topology import FeasibleLinks
from async_hfl.core.weights import Weights, digest
from async_hfl.nodes import update_ledger
from async_hfl.nodes.cloud import device_evaluation as assessment
from async_hfl.nodes.cloud import membership as joining
from async_hfl.nodes.cloud import warmup
from async_hfl.nodes.cloud.aggregation.protocol import CloudAggregation
from async_hfl.nodes.cloud.association_table import Registry, new_directory
from async_hfl.nodes.cloud.state import CloudState, Membership
from async_hfl.nodes.config import CloudConfig

NEVER = float("inf")
ASSOCIATION_TIMER = "association"


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
        self.config = config
        self._built_links = links
        self.registry = Registry(links, config)
        self.aggregation = aggregation
        self.revisits = revisits
        members = [Membership(incarnation) for _ in range(config.gateways)]
        self.state = CloudState(weights, members, new_directory(links, config, samples))
        self._effects: list[Effect] = []
        self._events: dict[type, Callable[[Any], None]] = {
            Received: self._received,
            Started: self._started,
            TimerFired: self._timer,
            Solved: self._solved,
            Evaluated: self._evaluated,
            PeerLost: self._peer_lost,
            PeerJoined: self._peer_joined,
            Progressed: self._nothing,
            DeviceJoined: self._device_joined,
            DrainAsked: self._drain,
            Returned: self._returned,
        }
        self._messages: dict[type, Callable[[Any, Any], None]] = {
            m.Upload: self._upload,
            m.LeaseReleased: self._released,
            m.Report: self._report,
            m.Hello: self._hello,
            m.EvaluateResult: self._assessed,
            m.Unsettled: self._unsettled,
        }

    def handle(self, event: Event) -> list[Effect]:
        self._effects = []
        self._events[type(event)](event)
        return self._effects

    def snapshot(self) -> Plain:
        return {"state": to_plain(self.state), "aggregation": self.aggregation.snapshot()}

    def restore(self, data: Plain) -> None:
        self.state = from_plain(data["state"])
        self.registry.links = self._built_links if self.state.links is None else self.state.links
        self.aggregation.restore(data["aggregation"])

    # What the parts of the cloud share --------------------------------------------------------------------------------

    def emit(self, effect: Effect) -> None:
        self._effects.append(effect)

    def close_upload(self, upload: m.Upload, outcome: m.Outcome, at: float) -> None:
        """Write the upload's end, remember it for repeats, and answer."""
        number = upload.upload.gateway
        member = self.state.members[number]
        member.pending.discard(upload.upload.number)
        member.outcomes[upload.upload.number] = outcome
        update_ledger.decide(self, upload)
        self.emit(
            Write(
                UploadRecord(
                    at,
                    upload.upload,
                    "mixed" if outcome.accepted else "dropped",
                    upload.base_epoch,
                    outcome.staleness,
                    outcome.weight,
                    upload.updates,
                    upload.early,
                )
            )
        )
        self._answer(upload, outcome)

    def hold_upload(self, upload: m.Upload) -> None:
        """Tell its gateway that it is here and that the answer will take a while."""
        self.send(upload.upload.gateway, m.UploadHeld(upload.upload))

    def set_global(self, weights: Weights, updates: int) -> None:
        """The next cloud epoch; `epoch_made` follows once its uploads are answered."""
        self.state.weights = weights
        self.state.epoch += 1
        self.state.updates += updates

    def epoch_made(self, at: float, *answered: int) -> None:
        """Pass the new global model on (to the gateways not answered with it), evaluate, associate, each when due."""
        state, config, weights = self.state, self.config, self.state.weights
        if config.delivery == "broadcast":
            for gateway, member in enumerate(state.members):
                if member.live and gateway not in answered:
                    self.send_global(gateway)
        if (state.epoch % config.evaluate_every == 0 or self.enough()) and assessment.is_due(self):
            state.awaiting[state.epoch] = (state.updates, at)
            if config.assessors:
                assessment.begin(self, at)
            else:
                self.emit(Evaluate(state.epoch, weights))
        if self.revisits and state.epoch - state.revisited_epoch >= config.association_period:
            # Counted apart from the solutions that a lost gateway asks for: those do not put the next one off.
            state.revisited_epoch = state.epoch
            self.solve()

    # Uploads -----------------------------------------------------------------------------------------------------

    def _upload(self, event: Received, upload: m.Upload) -> None:
        state, gateway = self.state, upload.upload.gateway
        member = state.members[gateway]
        if member.suspended and upload.upload.incarnation == member.incarnation:
            joining.reinstate(self, gateway, event.at)
        if upload.upload.incarnation != member.incarnation or not member.live:
            self._send_fenced(gateway, upload.upload.incarnation)
            return
        known = member.outcomes.get(upload.upload.number)
        if known is not None:
            self._answer(upload, known)
            return
        if upload.base_epoch > state.epoch:
            reason = (
                f"the gateway works from cloud epoch {upload.base_epoch}, the cloud is at {state.epoch}: "
                "the cloud has lost its state; start a new run, or give the cloud its run directory back"
            )
            self.emit(Write(LifecycleRecord(event.at, "refused", f"g{gateway}", reason)))
            self.send(gateway, m.Refused(reason))
            return
        if upload.upload.number in member.pending:
            self.hold_upload(upload)  # a repeat: it seems not to have heard
            return
        if upload.upload.number < member.answered_below:
            return
        member.answered_below = max(member.answered_below, upload.answered_below)
        for number in [number for number in member.outcomes if number < member.answered_below]:
            del member.outcomes[number]
        for known_device in upload.knowledge:
            self.registry.absorb(state.directory, known_device, gateway)
        if self.enough():
            return  # the last evaluation is under way; the finish that follows is the answer
        member.pending.add(upload.upload.number)
        self.aggregation.received(self, upload, event.at)

    def _answer(self, upload: m.Upload, outcome: m.Outcome) -> None:
        state = self.state
        state.members[upload.upload.gateway].newest_sent = state.epoch
        self.send(
            upload.upload.gateway,
            m.Answer(upload.upload, state.epoch, state.weights, outcome),
        )

    def enough(self) -> bool:
        return self.state.epoch >= self.config.epochs

    # Evaluation and the end --------------------------------------------------------------------------------------

    def _evaluated(self, event: Evaluated) -> None:
        self.evaluated(event.epoch, event.evaluation, event.at)

    def evaluated(self, number: int, evaluation: Evaluation, at: float) -> None:
        """Evaluations count in the order of their epochs and at the time the model was made, however long they took."""
        state = self.state
        if state.phase == "over" or number not in state.awaiting:
            return
        state.evaluated[number] = evaluation
        while state.awaiting and (epoch := min(state.awaiting)) in state.evaluated:
            updates, made_at = state.awaiting.pop(epoch)
            if self._counted(epoch, updates, made_at, state.evaluated.pop(epoch)):
                self._finish(at)
                return

    def _assessed(self, event: Received, answer: m.EvaluateResult) -> None:
        assessment.answered(self, answer, event.at)

    def _counted(self, epoch: int, updates: int, made_at: float, evaluation: Evaluation) -> bool:
        """Note one evaluation; is the run over with it?"""
        state, config = self.state, self.config
        before = state.progress.reached_at
        state.progress = state.progress.after(config.target, evaluation.metric, made_at)
        reached = state.progress.reached_at is not None
        self.emit(
            Write(
                EpochRecord(
                    made_at, epoch, updates, evaluation.metric, evaluation.loss, dict(evaluation.details), reached
                )
            )
        )
        if reached and before is None:
            self.emit(Write(LifecycleRecord(made_at, "target_reached", "cloud", f"epoch {epoch}")))
        elif reached:
            state.evaluations_after_target += 1
        return (reached and state.evaluations_after_target >= config.epochs_after_target) or (
            self.enough() and not state.awaiting
        )

    def goes_on_anyway(self) -> bool:
        """Is there one evaluation that has not been counted, and will the run go on whatever it finds?"""
        state, config = self.state, self.config
        if self.enough() or len(state.awaiting) != 1:
            return False  # several might reach the target together
        if state.progress.reached_at is not None:
            return state.evaluations_after_target + 1 < config.epochs_after_target
        return config.epochs_after_target > 0 or not state.progress.may_reach(config.target)

    def _finish(self, at: float) -> None:
        state = self.state
        for gateway in sorted(state.suspended):
            joining.hold_for_lost(self, gateway, at)
        state.phase = "over"
        self.emit(Write(LifecycleRecord(at, "finished", "cloud", f"epoch {state.epoch}")))
        for gateway, member in enumerate(state.members):
            if member.live:
                self._send_finish(gateway, member.incarnation)
        self.emit(Stop())

    # Association -------------------------------------------------------------------------------------------------

    def solve(self) -> None:
        state = self.state
        state.solve_at = NEVER  # whoever waits for one is in this one
        if state.solving:
            state.solve_again = True
            return
        state.solving = True
        state.solves += 1
        problem = self.registry.problem(state.directory, state.members, state.memory, state.solves, state.epoch)
        self.emit(Solve(state.solves, problem))

    def _solved(self, event: Solved) -> None:
        state = self.state
        if not state.solving or event.number != state.solves or state.phase == "over":
            return
        state.solving = False
        association = event.association
        state.memory = dict(association.memory)
        moved, messages = self.registry.apply(state.directory, state.members, association)
        bound = association.bound if np.isfinite(association.bound) else None
        self.emit(
            Write(AssociationRecord(event.at, state.directory.version, association.objective, bound, tuple(moved)))
        )
        for gateway, message in messages.items():
            self.send(gateway, message)
        for gateway, member in enumerate(state.members):
            if member.live and not member.begun:
                member.begun = True
                self.send_global(gateway, basis=True)
        self.aggregation.changed(self, event.at)
        if state.solve_again:
            state.solve_again = False
            self.solve()

    def _released(self, event: Received, released: m.LeaseReleased) -> None:
        state, gateway = self.state, event.sender.number
        self.registry.absorb(state.directory, released.knowledge, gateway)
        granted = self.registry.released(state.directory, state.members, released.lease, gateway)
        if granted is not None:
            self.send(int(state.directory.holder[released.lease.device]), granted)
        # Given back without an answer: the device lost its warm-up job, and nobody will send it another.
        warmup.counted(self, [released.lease.device], event.at, answered=released.warmup)

    def _report(self, event: Received, report: m.Report) -> None:
        state, gateway, directory = self.state, event.sender.number, self.state.directory
        joining.room_for_gateway(self, gateway)
        if report.incarnation != state.members[gateway].incarnation:
            if report.incarnation in state.members[gateway].fenced:
                return
            self._hello(event, m.Hello(report.incarnation))  # which it has overtaken
        elif state.members[gateway].suspended:
            joining.reinstate(self, gateway, event.at)
        for known in report.answered_warmup:
            self.registry.absorb(directory, known, gateway)
        if report.answered_warmup:
            warmup.counted(self, [known.device for known in report.answered_warmup], event.at, answered=True)
        self.registry.observe(directory, gateway, report)
        if report.lost:
            warmup.counted(self, list(report.lost), event.at, answered=False)
        if report.lost or report.heard:
            self.aggregation.changed(self, event.at)
        if state.phase == "running" and (
            any(self._stranded(device) for device in (*report.lost, *report.heard))
            or (report.heard and self._idle(gateway))
        ):
            self._solve_soon(event.at)
        if report.heard:
            joining.begin_if_due(self, event.at)

    def _unsettled(self, event: Received, unsettled: m.Unsettled) -> None:
        update_ledger.reported(self, event.sender.number, unsettled, event.at)

    def _solve_soon(self, at: float) -> None:
        """Devices are rarely lost alone: one solution for all that are, not one for each."""
        if self.state.solve_at == NEVER:
            self.state.solve_at = at + self.config.association_patience
            self.emit(SetTimer(ASSOCIATION_TIMER, self.state.solve_at))

    def _stranded(self, device: int) -> bool:
        """Is it without a working gateway though another link would do?"""
        directory, links = self.state.directory, self.registry.links
        row = links.of(device)
        live = np.array([self.state.members[int(gateway)].live for gateway in links.link_gateway[row]])
        working = directory.usable[row] & live
        own = links.link_gateway[row] == directory.gateway_of[device]
        return bool(working.any() and not (working & own).any())

    def _idle(self, gateway: int) -> bool:
        """Has nobody, where devices join by themselves: a gateway that came back without its disk was nobody's choice
        as it said hello, for no device was in touch with it yet. While that is being solved nobody can tell."""
        has_some = (self.state.directory.gateway_of == gateway).any()
        return self.config.start_devices > 0 and (self.state.solving or not has_some)

    # Gateways that come and go -----------------------------------------------------------------------------------

    def _peer_lost(self, event: PeerLost) -> None:
        if event.peer.tier == GATEWAY_TIER:
            joining.gateway_gone(self, event.peer.number, event.at)

    def _peer_joined(self, event: PeerJoined) -> None:
        joining.gateway_back(self, event.peer.number)

    def _returned(self, event: Returned) -> None:
        joining.sessions_gone(self, event.at)

    def _device_joined(self, event: DeviceJoined) -> None:
        if self.state.phase != "over":
            joining.device_joined(self, event)

    def lose(self, gateway: int, at: float) -> None:
        state = self.state
        member = state.members[gateway]
        if not member.live or state.phase == "over":
            return
        member.fenced.add(member.incarnation)
        member.begun = False
        update_ledger.lose(self, gateway, member.incarnation, at)
        self.take_away(gateway, at)

    def take_away(self, gateway: int, at: float) -> None:
        """Its devices are for others to trigger from now on."""
        state = self.state
        state.members[gateway].live = False
        self.emit(Write(LifecycleRecord(at, "gateway_lost", f"g{gateway}")))
        devices = self.registry.lose(state.directory, gateway)
        self.aggregation.lost(self, gateway, at)
        if state.phase == "warmup":
            warmup.counted(self, devices, at, answered=False)
        elif state.phase == "running":
            self.solve()

    def _hello(self, event: Received, hello: m.Hello) -> None:
        state, gateway = self.state, event.sender.number
        joining.room_for_gateway(self, gateway)
        member = state.members[gateway]
        if hello.incarnation in member.fenced:
            self._send_fenced(gateway, hello.incarnation)
            return
        if hello.incarnation == member.incarnation and member.live:
            return  # it restarted with its disk: nothing was lost
        if member.suspended:
            if hello.incarnation == member.incarnation:
                joining.reinstate(self, gateway, event.at)
                return
            joining.replace(self, gateway, event.at)
        if member.live:
            self.lose(gateway, event.at)  # another incarnation: the old one came to its end unnoticed
        state.members[gateway] = Membership(hello.incarnation, fenced=member.fenced)
        self.registry.joined(state.directory, gateway)
        self.emit(Write(LifecycleRecord(event.at, "gateway_joined", f"g{gateway}")))
        if state.phase == "running":
            self.send(gateway, self.registry.full_assignment(state.directory, state.members, gateway))
            self.solve()
        joining.begin_if_due(self, event.at)

    # The rest ------------------------------------------------------------------------------------------------

    def _received(self, event: Received) -> None:
        if self.state.phase == "over":
            if isinstance(event.message, (m.Upload, m.Hello)):
                gateway, said = event.sender.number, event.message
                joining.room_for_gateway(self, gateway)
                incarnation = said.incarnation if isinstance(said, m.Hello) else said.upload.incarnation
                if joining.is_back_too_late(self, gateway, incarnation, event.at):
                    self._send_finish(gateway, incarnation)
            return
        self._messages[type(event.message)](event, event.message)

    def _started(self, event: Started) -> None:
        if self.state.phase == "new":
            joining.started(self, event.at)

    def begin(self, at: float) -> None:
        if self.config.warmup:
            warmup.begin(self, at)
        else:
            self.state.phase = "running"
            joining.fix_bandwidth(self)
            self.solve()

    def _drain(self, event: DrainAsked) -> None:
        if self.state.phase != "over":
            self._finish(event.at)

    def _timer(self, event: TimerFired) -> None:
        if event.key == joining.START_TIMER:
            self.state.start_due = True
            joining.begin_if_due(self, event.at)
        elif event.key == assessment.TIMER:
            assessment.close_due(self, event.at)
        elif event.key == joining.GONE_TIMER:
            joining.give_up_gateways(self, event.at)
        elif event.key in ("warmup_patience", "warmup_limit"):
            warmup.end_if_due(self, event.at)
        elif event.key == ASSOCIATION_TIMER and event.at >= self.state.solve_at and self.state.phase == "running":
            self.solve()

    def send(self, gateway: int, message: m.CloudToGateway) -> None:
        self.emit(Send(gateway_address(gateway), message))

    def send_global(self, gateway: int, *, basis: bool = False) -> None:
        """The newest global model, unasked: it begins a gateway's first cycle; later it is stored or taken up."""
        state = self.state
        projection = state.directory.projection if basis else None
        components = projection.components if isinstance(projection, PcaProjection) else None
        state.members[gateway].newest_sent = state.epoch
        bandwidth = state.directory.bandwidth if basis else 0.0
        self.send(gateway, m.GlobalModel(state.epoch, state.weights, components, bandwidth))

    def _send_finish(self, gateway: int, incarnation: int) -> None:
        outcomes = self._outcomes(gateway, incarnation)
        self.send(gateway, m.Finish(self.state.epoch, outcomes, digest(self.state.weights)))

    def _send_fenced(self, gateway: int, incarnation: int) -> None:
        self.send(gateway, m.Fenced(incarnation, self._outcomes(gateway, incarnation)))

    def _outcomes(self, gateway: int, incarnation: int) -> tuple[tuple[int, m.Outcome], ...]:
        """Of uploads whose answers may not have arrived; another incarnation's numbers mean others."""
        member = self.state.members[gateway]
        return tuple(member.outcomes.items()) if member.incarnation == incarnation else ()

    def _nothing(self, _: Event) -> None:
        return
