"""The end of a gateway's jobs and uploads when the run is over, or when the cloud has declared its incarnation lost.

If losses are tracked, the gateway also records each update that it has acknowledged but that is in no upload which the
cloud has decided on: these updates are late, not lost.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from async_hfl.core.identifiers import JobId, UploadId
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.effects import Write
from async_hfl.core.protocol.events import Received
from async_hfl.core.protocol.records import JobEnd, LateRecord, UploadEnd, UploadRecord
from async_hfl.nodes.gateway.context import Gateway
from async_hfl.nodes.gateway.jobs import remove
from async_hfl.nodes.gateway.state import GatewayState, HeldUpdate


def end_all(gateway: Gateway, reason: JobEnd, at: float, decided: Mapping[int, m.Outcome]) -> None:
    """End every open job and upload. `decided` contains, by upload number, the outcomes of uploads that the cloud has
    decided on and whose answers may not have arrived."""
    state, number = gateway.state, gateway.config.number
    if reason == "run_ended" and gateway.config.deployment.track_losses:
        for job, slot in _late_updates(state, decided):
            device = int(state.device_table.devices[slot])
            gateway.emit(Write(LateRecord(at, JobId(number, state.incarnation, job), device)))
    for held in (*state.buffer, *state.pending):
        gateway.end_job(held.number, held.in_flight, reason, at, held.update)
    for upload_number, outstanding in state.outstanding.items():
        relayed = outstanding.relayed
        if relayed is not None and upload_number in decided:
            end_relayed(gateway, relayed, decided[upload_number], at)
        elif relayed is not None:
            gateway.end_job(relayed.number, relayed.in_flight, reason, at, relayed.update)
    end: UploadEnd = "lost" if reason == "gateway_lost" else "run_ended"
    if state.updates and state.phase == "open":
        # The model contains updates whose jobs have ended as aggregated, but it will not be uploaded.
        upload = UploadId(number, state.incarnation, state.next_upload)
        gateway.emit(Write(UploadRecord(at, upload, end, state.base_epoch, 0, 0.0, state.updates, False)))
    for job, in_flight in list(state.in_flight_jobs.items()):
        remove(gateway, job, at)
        gateway.end_job(job, in_flight, reason, at)
        gateway.note_discarded(job, in_flight.slot)
    for upload_number, outstanding in state.outstanding.items():
        sent = outstanding.message
        if upload_number not in decided:
            record = UploadRecord(at, sent.upload, end, sent.base_epoch, 0, 0.0, sent.updates, sent.early)
            gateway.emit(Write(record))
    state.buffer, state.pending, state.updates, state.samples = [], [], 0, 0
    state.outstanding.clear()


def _late_updates(state: GatewayState, decided: Container[int]) -> list[tuple[int, int]]:
    """Return (job number, slot) of each acknowledged update that is in no decided upload."""
    late = {held.number: held.in_flight.slot for held in state.held_updates()}
    late.update(state.processed)
    for number, outstanding in state.outstanding.items():
        late.update(outstanding.processed)
        if number in decided:
            for job, _ in outstanding.processed:
                del late[job]
    for job in late:
        state.ever_processed.add(job)
    return sorted(late.items())


def end_relayed(gateway: Gateway, held: HeldUpdate, outcome: m.Outcome, at: float) -> None:
    """End the job of a relayed update according to the cloud's decision."""
    reason: JobEnd = "aggregated" if outcome.accepted else "stale"
    gateway.end_job(held.number, held.in_flight, reason, at, held.update, outcome.staleness, outcome.weight)


def update_after_end(gateway: Gateway, event: Received, update: m.Update) -> None:
    """Record an update that arrives, and is acknowledged, after the run is over."""
    state = gateway.state
    slot, job = state.device_table.slot_of.get(event.sender.number), update.job
    if slot is None or job.incarnation != state.incarnation or not gateway.take_discarded(job.number, slot):
        return
    if not update.warmup and state.ever_processed.add(job.number):
        gateway.emit(Write(LateRecord(event.at, job, event.sender.number)))
