"""Uploads from a gateway to the cloud: numbered, and resent until they are answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from async_hfl.core.identifiers import CLOUD, UploadId
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.effects import Send, SetTimer
from async_hfl.core.weights import Weights
from async_hfl.nodes import update_ledger
from async_hfl.nodes.gateway.state import NEVER, OutstandingUpload

if TYPE_CHECKING:
    from async_hfl.nodes.gateway.node import GatewayNode

RESEND_MOST_S = 3600.0


def upload(
    node: GatewayNode,
    weights: Weights,
    base_epoch: int,
    updates: int,
    samples: int,
    at: float,
    *,
    early: bool = False,
) -> int:
    """Send a model with what was learnt of the devices since the last one; returns its number."""
    state = node.state
    number = state.next_upload
    state.next_upload += 1
    landed = update_ledger.take_landed(node)
    message = m.Upload(
        UploadId(node.config.number, state.incarnation, number),
        weights,
        base_epoch,
        updates,
        samples,
        early,
        next(iter(state.outstanding), number),  # numbers go in rising order, so the first is the least
        state.device_table.news(),
        tuple(job for job, _ in landed),
    )
    resend_at = at + _patience(node, 1)
    state.outstanding[number] = OutstandingUpload(message, at, resend_at, 1, landed=landed)
    node.emit(Send(CLOUD, message))
    if resend_at < state.resend_at:
        state.resend_at = resend_at
        node.emit(SetTimer("reply", resend_at))
    return number


def resend(node: GatewayNode, at: float) -> None:
    outstanding = node.state.outstanding
    for waiting in outstanding.values():
        if waiting.resend_at > at:
            continue
        waiting.attempts += 1
        if waiting.held:
            # The cloud has it: only make sure that we have not been declared lost without hearing of it.
            waiting.resend_at = at + RESEND_MOST_S
            node.emit(Send(CLOUD, m.Hello(node.state.incarnation)))
        else:
            waiting.resend_at = at + _patience(node, waiting.attempts)
            node.emit(Send(CLOUD, waiting.message))
    node.state.resend_at = min((waiting.resend_at for waiting in outstanding.values()), default=NEVER)
    if outstanding:
        node.emit(SetTimer("reply", node.state.resend_at))


def send_again(node: GatewayNode, at: float) -> None:
    """The cloud may have let go of what it held of us."""
    for waiting in node.state.outstanding.values():
        waiting.held = False
        waiting.resend_at = at + _patience(node, waiting.attempts)
        node.emit(Send(CLOUD, waiting.message))
        if waiting.resend_at < node.state.resend_at:
            node.state.resend_at = waiting.resend_at
            node.emit(SetTimer("reply", waiting.resend_at))


def moving(node: GatewayNode, at: float) -> None:
    """An upload or its answer is under way: it is not sent again before nothing has moved for the patience."""
    for waiting in node.state.outstanding.values():
        waiting.resend_at = max(waiting.resend_at, at + _patience(node, waiting.attempts))


def held(node: GatewayNode, upload: UploadId, at: float) -> None:
    """The cloud has an upload and waits for others before it answers: resending it would only cost bytes."""
    waiting = node.state.outstanding.get(upload.number) if upload.incarnation == node.state.incarnation else None
    if waiting is not None and not waiting.held:
        waiting.held = True
        waiting.resend_at = max(waiting.resend_at, at + RESEND_MOST_S)  # never sooner: the timer is set already
        node.state.reply_s = max(node.state.reply_s, at - waiting.sent_at)


def answered(node: GatewayNode, answer: m.Answer, at: float) -> bool:
    """Is this the answer to something outstanding? Another is ignored (it answers a repeat)."""
    if answer.upload.incarnation != node.state.incarnation:
        return False
    waiting = node.state.outstanding.pop(answer.upload.number, None)
    if waiting is None:
        return False
    update_ledger.settled(node, waiting.landed)
    if not waiting.held:  # how long the cloud waited for others says nothing about the link
        node.state.reply_s = max(node.state.reply_s, at - waiting.sent_at)
    return True


def _patience(node: GatewayNode, attempts: int) -> float:
    # A transfer may be slow: what was waited before is no sign of loss. Repeats back off.
    base = max(node.config.reply_patience, 3 * node.state.reply_s)
    return min(base * 2.0 ** min(attempts - 1, 30), max(base, RESEND_MOST_S))
