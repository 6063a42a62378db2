"""A gateway: triggers devices, collects what they learnt, answers to the cloud.

    waiting --GlobalModel--> open --upload--> uploading --Answer--> open --> ...        any --Finish--> over

What it does with an update that arrives is the aggregation's choice (mix it, relay it, ...: `GatewayAggregation`).
Everything else is here and the same for every method: rights to devices, selection within the bandwidth, patience with
silent devices, uploads resent until answered, and one end for every job.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from async_hfl.core import messages as m
from async_hfl.core.effects import Effect, Send, SetTimer, Stop, Write
from async_hfl.core.errors import InvariantViolation, PolicyError
from async_hfl.core.events import Event, PeerLost, Received, Returned, Started, TimerFired
from async_hfl.core.identifiers import CLOUD, JobId, UploadId, device_address
from async_hfl.core.latency import data_rate, patience
from async_hfl.core.plain import Plain, from_plain, to_plain
from async_hfl.core.policies import SelectionPolicy, SelectionProblem
from async_hfl.core.randomness import scramble
from async_hfl.core.records import JobEnd, JobRecord, LifeRecord, SelectionRecord, UploadEnd, UploadRecord
from async_hfl.core.utility import GradientTable, scaled
from async_hfl.core.weights import Weights
from async_hfl.nodes.gateway_state import Flight, GatewayState, OutstandingUpload, SentModel
from async_hfl.nodes.roster import Roster
from async_hfl.nodes.rules import PROBE_FIRST_S, PROBE_MOST_S, GatewayRules

NEVER = float("inf")
RESEND_MOST_S = 3600.0


class GatewayAggregation(Protocol):
    """What to do with updates and global models: the part of a gateway that differs between methods."""

    def received(self, node: GatewayNode, number: int, flight: Flight, update: m.Update, at: float) -> None:
        """An update of ours arrived; its device is already idle."""
        ...

    def answered(self, node: GatewayNode, answer: m.Answer, at: float) -> None: ...

    def began(self, node: GatewayNode, model: m.GlobalModel, at: float) -> None:
        """The first global model of this incarnation."""
        ...

    def idle(self, node: GatewayNode, at: float) -> None:
        """Nothing is in flight, nobody can be triggered, and that has lasted for `cycle_patience`."""
        ...

    def waits(self, node: GatewayNode) -> bool:
        """Would `idle` have something to do?"""
        ...

    def over(self, node: GatewayNode, reason: JobEnd, at: float) -> None:
        """End whatever this aggregation still holds."""
        ...

    def snapshot(self) -> Plain: ...

    def restore(self, data: Plain) -> None: ...


class GatewayNode:
    def __init__(
        self, rules: GatewayRules, selection: SelectionPolicy, aggregation: GatewayAggregation, incarnation: int = 1
    ) -> None:
        self.rules = rules
        self.selection = selection
        self.aggregation = aggregation
        self.state = self._fresh(incarnation)
        self._effects: list[Effect] = []
        self._wants_utility = bool(selection.needs)
        self._events: dict[type, Callable[[Any], None]] = {
            Received: self._received,
            TimerFired: self._timer,
            Started: self._nothing,
            Returned: self._rejoin,
            PeerLost: self._peer_lost,
        }
        self._messages: dict[type, Callable[[Any, Any], None]] = {
            m.Update: self._update,
            m.JobDropped: self._job_dropped,
            m.Alive: self._alive,
            m.Answer: self._answer,
            m.GlobalModel: self._global_model,
            m.WarmUp: self._warm_up,
            m.Assignment: self._assignment,
            m.Granted: self._granted,
            m.Finish: self._finish,
            m.Fenced: self._fenced,
            m.Refused: self._refused,
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

    # What the aggregation may use --------------------------------------------------------------------------------

    def send(self, effect: Effect) -> None:
        self._effects.append(effect)

    def set_model(self, weights: Weights) -> None:
        self.state.weights = weights
        self.state.model_key += 1

    def end_job(
        self,
        number: int,
        flight: Flight,
        reason: JobEnd,
        at: float,
        update: m.Update | None = None,
        staleness: int = 0,
        weight: float = 0.0,
    ) -> None:
        """Write the one end of a job and let go of the model it was sent. The flight is no longer in the table."""
        state = self.state
        sent = state.models[flight.model]
        sent.jobs -= 1
        if sent.jobs == 0:
            del state.models[flight.model]
        download_s, training_s, loss = (
            (update.download_s, update.training_s, update.loss) if update else (0.0, 0.0, None)
        )
        self._effects.append(
            Write(
                JobRecord(
                    at,
                    JobId(self.rules.number, state.incarnation, number),
                    int(state.roster.devices[flight.slot]),
                    reason,
                    flight.sent_at,
                    download_s,
                    training_s,
                    staleness,
                    weight,
                    state.gateway_epoch,
                    loss,
                )
            )
        )

    def upload(
        self, weights: Weights, base_epoch: int, updates: int, samples: int, at: float, early: bool = False
    ) -> int:
        """Send a model to the cloud, again and again until it is answered."""
        state = self.state
        number = state.next_upload
        state.next_upload += 1
        message = m.Upload(
            UploadId(self.rules.number, state.incarnation, number),
            weights,
            base_epoch,
            updates,
            samples,
            early,
            min(state.outstanding, default=number),
            state.roster.news(),
        )
        resend_at = at + self._reply_patience(1)
        state.outstanding[number] = OutstandingUpload(message, at, resend_at, 1)
        self._effects.append(Send(CLOUD, message))
        if resend_at < state.resend_at:
            state.resend_at = resend_at
            self._effects.append(SetTimer("reply", resend_at))
        return number

    def discard_flights(self, at: float) -> None:
        """Forget the work in flight (`gateway.in_flight = "discard"`): its devices are idle again for us."""
        state = self.state
        for number, flight in list(state.flights.items()):
            if not flight.warmup:
                self._land(number, flight, at)
                self.end_job(number, flight, "round_closed", at)
                self._release_if_moved(flight.slot)

    def max_staleness(self) -> int:
        limit = self.rules.max_staleness
        return max(200, 100 * self.state.roster.associated_count) if limit is None else limit

    def dispatch(self, at: float) -> None:
        """Select among the idle devices and trigger those chosen (Eq. 10)."""
        state = self.state
        if state.phase != "open":
            return
        roster = state.roster
        slots = roster.candidate.nonzero()[0]
        if len(slots) == 0:
            self._watch_idleness(at)
            return
        rules = self.rules
        candidates = roster.devices[slots]
        latency = roster.round_latency[slots]
        rates = rules.model_bytes / latency
        capacity = rules.bandwidth - state.load
        state.selections += 1
        gradients = roster.gradients
        if self._wants_utility and gradients is not None:
            utility = scaled(gradients.utility(slots), gradients.known[slots], rules.utility_scale, rules.utility_floor)
            rows = gradients.rows[slots] if "gradients" in self.selection.needs else None
        else:
            utility, rows = np.ones(len(slots)), None
        problem = SelectionProblem(
            rules.number,
            candidates,
            utility,
            latency,
            rates,
            roster.loss[slots],
            roster.squared_loss[slots],
            roster.samples[slots],
            roster.idle_since[slots],
            roster.last_selected[slots],
            capacity,
            rules.latency_exponent,
            state.gateway_epoch,
            at,
            scramble(rules.seed ^ state.selections),
            rows,
            state.memory,
        )
        selection = self.selection.choose(problem)
        chosen = selection.devices
        if selection.memory is not None:
            state.memory = dict(selection.memory)
        lone = False
        if not chosen and state.active == 0:
            # Nothing fits and nothing is in flight: the best one goes alone, so that a run never stalls.
            best = int(np.argmax(utility * (1.0 / latency) ** rules.latency_exponent))
            chosen, lone = (int(candidates[best]),), True
        load = state.load
        for device in chosen:
            slot = roster.slot_of.get(device, -1)
            if slot < 0 or not roster.candidate[slot]:
                raise PolicyError(
                    f"selection at gateway {rules.number}: the policy chose device {device}, which is not a candidate"
                )
            self._trigger(slot, data_rate(rules.model_bytes, float(roster.round_latency[slot])), at)
        if not lone and state.load > rules.bandwidth * (1 + 1e-9) and len(chosen):
            raise PolicyError(
                f"selection at gateway {rules.number}: the policy chose {state.load - load:.6g} bytes/s "
                f"but only {capacity:.6g} were free"
            )
        self._effects.append(
            Write(SelectionRecord(at, rules.number, len(slots), chosen, len(chosen) < len(slots), lone))
        )

    # Devices -----------------------------------------------------------------------------------------------------

    def _trigger(self, slot: int, rate: float, at: float, warmup: m.WarmUp | None = None) -> None:
        state, rules, roster = self.state, self.rules, self.state.roster
        number = state.next_job
        state.next_job += 1
        if warmup is None:
            weights, key, base = state.weights, state.model_key, state.base_epoch
        else:
            weights, key, base = warmup.weights, 0, 0  # before the first global model; model keys begin at 1
        if weights is None:
            raise InvariantViolation(f"gateway {rules.number} dispatches before it has a model")
        sent = state.models.get(key)
        if sent is None:
            state.models[key] = SentModel(weights, 1)
        else:
            sent.jobs += 1
        latency = float(roster.round_latency[slot])
        deadline = at + patience(latency, rules.patience_floor, rules.patience_factor)
        state.flights[number] = Flight(
            slot, at, state.gateway_epoch, base, rate, key, deadline, False, warmup is not None
        )
        state.active += 1
        state.load += rate
        roster.job[slot] = number
        roster.last_selected[slot] = state.gateway_epoch
        roster.candidate[slot] = False
        job = JobId(rules.number, state.incarnation, number)
        self._effects.append(
            Send(
                device_address(int(roster.devices[slot])),
                m.Train(job, weights, state.gateway_epoch, base, state.version),
            )
        )
        if deadline < state.deadline:
            state.deadline = deadline
            self._effects.append(SetTimer("patience", deadline))

    def _land(self, number: int, flight: Flight, at: float) -> None:
        """Take a flight off the table: bandwidth and device are free again."""
        state, roster, slot = self.state, self.state.roster, flight.slot
        del state.flights[number]
        if not flight.overdue:
            state.active -= 1
            state.load = state.load - flight.rate if state.active else 0.0
        if roster.job[slot] == number:
            roster.job[slot] = -1
            roster.idle_since[slot] = at
            roster.refresh(slot)

    def _update(self, event: Received, update: m.Update) -> None:
        state, at, job = self.state, event.at, update.job
        self._heard(event.sender.number, at)
        flight = state.flights.get(job.number) if job.incarnation == state.incarnation else None
        if flight is None:
            return  # ended before: a repeat, or work that was discarded
        self._land(job.number, flight, at)
        roster, slot = state.roster, flight.slot
        roster.measure(slot, at - flight.sent_at)
        if not _finite(update.weights):
            self.end_job(job.number, flight, "refused", at, update)
            self._after_landing(slot, at, warmup=False)
            return
        roster.samples[slot] = update.samples
        roster.loss[slot] = update.loss
        roster.squared_loss[slot] = update.squared_loss
        if roster.gradients is not None:
            gradient = update.gradient
            if gradient is None:
                # gradient = "update": the mean step, from weights the gateway holds anyway: no bytes on the device link
                sent = state.models[flight.model].weights
                gradient = (sent - update.weights) / np.float32(self.rules.learning_rate * update.steps)
            if _finite(gradient):
                roster.gradients.put(slot, gradient)
        if flight.warmup:
            self.end_job(job.number, flight, "warmup", at, update)
            self._after_landing(slot, at, warmup=True)
            return
        if not self._release_if_moved(slot):
            roster.learnt[slot] = None
        self.aggregation.received(self, job.number, flight, update, at)

    def _job_dropped(self, event: Received, dropped: m.JobDropped) -> None:
        state, at, job = self.state, event.at, dropped.job
        self._heard(event.sender.number, at)
        if job.incarnation != state.incarnation:
            return
        flight = state.flights.get(job.number)
        if flight is None:
            return
        self._land(job.number, flight, at)
        self.end_job(job.number, flight, dropped.reason, at)
        if dropped.version > state.version:
            # The device obeys an association that has not reached us yet: it is not ours to trigger.
            self._let_go(flight.slot)
        self._after_landing(flight.slot, at, warmup=False)

    def _after_landing(self, slot: int, at: float, *, warmup: bool) -> None:
        released = self._release_if_moved(slot, warmup=warmup)
        if warmup and not released:
            self._report(answered_warmup=(self.state.roster.knowledge(slot),))
        self.dispatch(at)

    def _alive(self, event: Received, _: m.Alive) -> None:
        self._heard(event.sender.number, event.at)
        self.dispatch(event.at)

    def _heard(self, device: int, at: float) -> None:
        """Any word from a device that was given up makes its link feasible again."""
        roster = self.state.roster
        slot = roster.slot_of.get(device)
        if slot is None or roster.feasible[slot]:
            return
        roster.feasible[slot] = True
        roster.probe_at[slot] = NEVER
        roster.refresh(slot)
        self._report(heard=(device,))
        self._effects.append(Write(LifeRecord(at, "device_heard", f"d{device}", f"by g{self.rules.number}")))

    def _report(
        self,
        answered_warmup: tuple[m.DeviceKnowledge, ...] = (),
        lost: tuple[int, ...] = (),
        heard: tuple[int, ...] = (),
    ) -> None:
        state = self.state
        self._effects.append(Send(CLOUD, m.Report(state.incarnation, state.next_report, answered_warmup, lost, heard)))
        state.next_report += 1

    # Rights to devices -------------------------------------------------------------------------------------------

    def _release_if_moved(self, slot: int, *, warmup: bool = False) -> bool:
        """Give back the right to an idle device that is not associated here (any more)."""
        roster = self.state.roster
        if (
            roster.grant[slot] == 0
            or roster.associated[slot]
            or roster.job[slot] >= 0
            or roster.grant_version[slot] > self.state.version
        ):
            return False
        self._let_go(slot, warmup=warmup)
        return True

    def _let_go(self, slot: int, *, warmup: bool = False) -> None:
        roster = self.state.roster
        if roster.grant[slot] == 0:
            return
        grant = m.Grant(int(roster.devices[slot]), int(roster.grant[slot]), int(roster.grant_version[slot]))
        self._effects.append(Send(CLOUD, m.Released(grant, roster.knowledge(slot), warmup)))
        roster.learnt.pop(slot, None)
        roster.grant[slot] = 0
        roster.refresh(slot)

    def _assignment(self, event: Received, assignment: m.Assignment) -> None:
        state, roster = self.state, self.state.roster
        left: list[int] = []
        if assignment.version > state.version:
            state.version = assignment.version
            left = roster.associate(assignment.devices)
        self._take_all(assignment.grants, assignment.knowledge)
        # A right that came with an assignment overtaken by a newer one still has to go back.
        for slot in dict.fromkeys([*left, *np.flatnonzero((roster.grant > 0) & ~roster.associated).tolist()]):
            self._release_if_moved(slot)
        self.dispatch(event.at)

    def _granted(self, event: Received, granted: m.Granted) -> None:
        self._take_all((granted.grant,), (granted.knowledge,))
        self._release_if_moved(self.state.roster.slot_of[granted.grant.device])
        self.dispatch(event.at)

    def _take_all(self, grants: tuple[m.Grant, ...], knowledge: tuple[m.DeviceKnowledge, ...]) -> list[int]:
        roster = self.state.roster
        roster.add([grant.device for grant in grants])
        return [
            roster.take(grant, known)
            for grant, known in zip(grants, knowledge, strict=True)
            if grant.number > roster.grant[roster.slot_of[grant.device]]
        ]

    def _warm_up(self, event: Received, warm_up: m.WarmUp) -> None:
        for slot in self._take_all(warm_up.grants, warm_up.knowledge):
            self._trigger(slot, 0.0, event.at, warm_up)

    # The cloud ---------------------------------------------------------------------------------------------------

    def _global_model(self, event: Received, model: m.GlobalModel) -> None:
        state = self.state
        if state.phase == "waiting":
            self.aggregation.began(self, model, event.at)
        elif state.newest is None or model.epoch > state.newest.epoch:
            state.newest = model

    def _answer(self, event: Received, answer: m.Answer) -> None:
        state = self.state
        if answer.upload.incarnation != state.incarnation:
            return
        outstanding = state.outstanding.pop(answer.upload.number, None)
        if outstanding is None:
            return  # not waiting for it: an answer to a repeat
        state.reply_s = max(state.reply_s, event.at - outstanding.sent_at)
        self.aggregation.answered(self, answer, event.at)

    def _finish(self, event: Received, _: m.Finish) -> None:
        if self.state.phase != "over":
            self._close("run_ended", event.at)
            self._effects.append(Stop())

    def _fenced(self, event: Received, fenced: m.Fenced) -> None:
        """The cloud took us for dead and gave our devices away. What is open is lost; we begin anew."""
        state = self.state
        if fenced.incarnation != state.incarnation or state.phase == "over":
            return
        self._close("gateway_lost", event.at)
        self.state = self._fresh(state.incarnation + 1)
        self._effects.append(Send(CLOUD, m.Hello(self.state.incarnation)))

    def _refused(self, event: Received, refused: m.Refused) -> None:
        if self.state.phase != "over":
            self._close("run_ended", event.at)
            self._effects.append(Write(LifeRecord(event.at, "refused", f"g{self.rules.number}", refused.reason)))
            self._effects.append(Stop(refused.reason))

    def _close(self, reason: JobEnd, at: float) -> None:
        state = self.state
        self.aggregation.over(self, reason, at)
        for number, flight in list(state.flights.items()):
            self._land(number, flight, at)
            self.end_job(number, flight, reason, at)
        end: UploadEnd = "lost" if reason == "gateway_lost" else "run_ended"
        for outstanding in state.outstanding.values():
            upload = outstanding.message
            self._effects.append(
                Write(UploadRecord(at, upload.upload, end, upload.base_epoch, 0, 0.0, upload.updates, upload.early))
            )
        state.outstanding.clear()
        state.phase = "over"

    # Time --------------------------------------------------------------------------------------------------------

    def _timer(self, event: TimerFired) -> None:
        if self.state.phase == "over":
            return
        if event.key == "patience":
            self._give_up_silent(event.at)
        elif event.key == "probe":
            self._probe(event.at)
        elif event.key == "reply":
            self._resend(event.at)
        elif event.key == "idle":
            self._idle(event.at)

    def _give_up_silent(self, at: float) -> None:
        state, roster = self.state, self.state.roster
        lost: list[int] = []
        for number, flight in state.flights.items():
            if flight.overdue or flight.deadline > at:
                continue
            flight.overdue = True
            state.active -= 1
            state.load = state.load - flight.rate if state.active else 0.0
            slot = flight.slot
            if roster.job[slot] == number:
                roster.job[slot] = -1
            if roster.feasible[slot]:
                roster.feasible[slot] = False
                roster.probe_wait[slot] = PROBE_FIRST_S
                roster.probe_at[slot] = at + PROBE_FIRST_S
                lost.append(int(roster.devices[slot]))
            roster.refresh(slot)
            self._release_if_moved(slot)
        state.deadline = min((f.deadline for f in state.flights.values() if not f.overdue), default=NEVER)
        if state.deadline < NEVER:
            self._effects.append(SetTimer("patience", state.deadline))
        if lost:
            self._report(lost=tuple(lost))
            self._effects.extend(
                Write(LifeRecord(at, "device_given_up", f"d{device}", f"by g{self.rules.number}")) for device in lost
            )
            self._arm_probe()
            self.dispatch(at)

    def _probe(self, at: float) -> None:
        roster = self.state.roster
        self.state.probe_at = NEVER
        for slot in np.flatnonzero(roster.probe_at <= at):
            roster.probe_wait[slot] = min(2 * roster.probe_wait[slot], PROBE_MOST_S)
            roster.probe_at[slot] = at + roster.probe_wait[slot]
            self._effects.append(Send(device_address(int(roster.devices[slot])), m.Probe()))
        self._arm_probe()

    def _arm_probe(self) -> None:
        next_at = float(self.state.roster.probe_at.min(initial=NEVER))
        if next_at < self.state.probe_at:
            self.state.probe_at = next_at
            self._effects.append(SetTimer("probe", next_at))

    def _reply_patience(self, attempts: int) -> float:
        # A transfer may be slow: what was waited before is no sign of loss. Repeats back off.
        base = max(self.rules.reply_patience, 3 * self.state.reply_s)
        return min(base * 2.0 ** (attempts - 1), max(base, RESEND_MOST_S))

    def _resend(self, at: float) -> None:
        outstanding = self.state.outstanding
        for upload in outstanding.values():
            if upload.resend_at <= at:
                upload.attempts += 1
                upload.resend_at = at + self._reply_patience(upload.attempts)
                self._effects.append(Send(CLOUD, upload.message))
        self.state.resend_at = min((upload.resend_at for upload in outstanding.values()), default=NEVER)
        if outstanding:
            self._effects.append(SetTimer("reply", self.state.resend_at))

    def _watch_idleness(self, at: float) -> None:
        state = self.state
        if state.active == 0 and state.idle_upload_at == NEVER and self.aggregation.waits(self):
            state.idle_upload_at = at + self.rules.cycle_patience
            self._effects.append(SetTimer("idle", state.idle_upload_at))

    def _idle(self, at: float) -> None:
        state = self.state
        state.idle_upload_at = NEVER
        if state.phase != "open" or state.active or not self.aggregation.waits(self):
            return
        if state.roster.candidate.any():
            self.dispatch(at)
        else:
            self.aggregation.idle(self, at)

    def _received(self, event: Received) -> None:
        if self.state.phase == "over":
            return
        self._messages[type(event.message)](event, event.message)

    def _peer_lost(self, event: PeerLost) -> None:
        if event.peer == CLOUD:
            self._rejoin(event)

    def _rejoin(self, event: Event) -> None:
        """After an outage of ours or of the session: the cloud may have declared us lost meanwhile."""
        self._effects.append(Send(CLOUD, m.Hello(self.state.incarnation)))

    def _nothing(self, event: Event) -> None:
        return

    def _fresh(self, incarnation: int) -> GatewayState:
        roster = Roster()
        if self.rules.gradient != "none":
            roster.gradients = GradientTable.empty(0, self.rules.gradient_size)
        return GatewayState(incarnation, roster=roster)


def _finite(weights: Weights) -> bool:
    """No NaN, no infinity: one dot product instead of a pass per element."""
    return math.isfinite(np.dot(weights, weights))
