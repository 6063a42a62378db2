"""Uploads of a gateway: numbered, and resent with exponential back-off until the cloud answers."""

from __future__ import annotations

from async_hfl.core.identifiers import CLOUD, UploadId
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.effects import Send, SetTimer
from async_hfl.nodes.gateway.context import Gateway
from async_hfl.nodes.gateway.state import NEVER, HeldUpdate, OutstandingUpload

RESEND_MOST_S = 3600.0


def upload(
    gateway: Gateway, updates: int, samples: int, at: float, *, early: bool = False, relayed: HeldUpdate | None = None
) -> None:
    """Upload the gateway's model, or relay a device's, with the knowledge about devices that is new since the last
    upload."""
    state = gateway.state
    number = state.next_upload
    state.next_upload += 1
    processed = tuple(state.processed)
    state.processed.clear()
    sent = UploadId(gateway.config.number, state.incarnation, number)
    answered_below = next(iter(state.outstanding), number)  # the lowest number: they are in rising order
    knowledge = tuple(gateway.knowledge(slot) for slot in state.device_table.take_unreported())
    jobs = tuple(job for job, _ in processed)
    bases: tuple[int, ...] = ()
    if relayed is None:
        model, base_epoch = gateway.model_for_cloud(sent), state.base_epoch
    else:
        model, base_epoch, state.relays = relayed.model, relayed.in_flight.base_epoch, True
    if state.relays and gateway.config.codec.encodes_up:
        bases = _bases(gateway, base_epoch)
    message = m.Upload(sent, model, base_epoch, updates, samples, early, answered_below, knowledge, jobs, bases)
    resend_at = at + _patience(gateway, 1)
    state.outstanding[number] = OutstandingUpload(message, at, resend_at, 1, processed=processed, relayed=relayed)
    gateway.emit(Send(CLOUD, message))
    if resend_at < state.resend_at:
        state.resend_at = resend_at
        gateway.emit(SetTimer("reply", resend_at))


def _bases(gateway: Gateway, relayed: int) -> tuple[int, ...]:
    """Return the cloud epochs of all models that this or a later upload may be a change of."""
    state = gateway.state
    in_flight = (job.base_epoch for job in state.in_flight_jobs.values())
    outstanding = (waiting.message.base_epoch for waiting in state.outstanding.values())
    held = (held.in_flight.base_epoch for held in state.held_updates())
    return tuple(sorted({state.base_epoch, relayed, *in_flight, *outstanding, *held}))


def resend(gateway: Gateway, at: float) -> None:
    """Resend the uploads whose answer is overdue."""
    outstanding = gateway.state.outstanding
    for waiting in outstanding.values():
        if waiting.resend_at > at:
            continue
        waiting.attempts += 1
        if waiting.held:
            # The cloud has the upload. A hello makes it answer if it has declared this gateway lost meanwhile.
            waiting.resend_at = at + RESEND_MOST_S
            gateway.hello()
        else:
            waiting.resend_at = at + _patience(gateway, waiting.attempts)
            gateway.emit(Send(CLOUD, waiting.message))
    gateway.state.resend_at = min((waiting.resend_at for waiting in outstanding.values()), default=NEVER)
    if outstanding:
        gateway.emit(SetTimer("reply", gateway.state.resend_at))


def resend_all(gateway: Gateway, at: float) -> None:
    """Resend every outstanding upload at once: the cloud may have discarded those that it held."""
    for waiting in gateway.state.outstanding.values():
        waiting.held = False
        waiting.resend_at = at + _patience(gateway, waiting.attempts)
        gateway.emit(Send(CLOUD, waiting.message))
        if waiting.resend_at < gateway.state.resend_at:
            gateway.state.resend_at = waiting.resend_at
            gateway.emit(SetTimer("reply", waiting.resend_at))


def progressed(gateway: Gateway, at: float) -> None:
    """Postpone resending: the transfer of an upload or of its answer is making progress."""
    for waiting in gateway.state.outstanding.values():
        waiting.resend_at = max(waiting.resend_at, at + _patience(gateway, waiting.attempts))


def held(gateway: Gateway, upload: UploadId, at: float) -> None:
    """Stop resending an upload that the cloud has received and will answer later."""
    state = gateway.state
    waiting = state.outstanding.get(upload.number) if upload.incarnation == state.incarnation else None
    if waiting is not None and not waiting.held:
        waiting.held = True
        waiting.resend_at = max(waiting.resend_at, at + RESEND_MOST_S)
        state.reply_s = max(state.reply_s, at - waiting.sent_at)


def answered(gateway: Gateway, answer: m.Answer, at: float) -> OutstandingUpload | None:
    """Remove the upload that was answered and return it; None if it is not outstanding (an answer to a resend)."""
    state = gateway.state
    if answer.upload.incarnation != state.incarnation:
        return None
    answered = state.outstanding.pop(answer.upload.number, None)
    if answered is None:
        return None
    for number, slot in answered.processed:
        state.settled.setdefault(slot, []).append(number)
    if not answered.held:  # otherwise the time includes the cloud's wait for other gateways
        state.reply_s = max(state.reply_s, at - answered.sent_at)
    return answered


def _patience(gateway: Gateway, attempts: int) -> float:
    # On a slow link, a wait as long as earlier ones is no sign of a loss.
    base = max(gateway.config.reply_patience, 3 * gateway.state.reply_s)
    return min(base * 2.0 ** min(attempts - 1, 30), max(base, RESEND_MOST_S))
