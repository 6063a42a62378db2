"""A gateway cycle, as every method that aggregates at gateways has it: adopt a global model, work, upload, wait."""

from __future__ import annotations

from async_hfl.core.errors import InvariantViolation
from async_hfl.core.identifiers import UploadId
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.effects import Write
from async_hfl.core.protocol.records import JobEnd, UploadEnd, UploadRecord
from async_hfl.nodes.gateway import uploads
from async_hfl.nodes.gateway.node import GatewayNode


def adopt(node: GatewayNode, model: m.GlobalModel | m.Answer) -> None:
    """This model, or a newer one that was stored meanwhile, begins the next cycle."""
    state = node.state
    newest = state.newest
    if newest is not None and newest.epoch > model.epoch:
        model = newest
    if model.epoch < state.base_epoch:
        raise InvariantViolation(f"gateway {node.config.number} adopts epoch {model.epoch} after {state.base_epoch}")
    state.weights = model.weights
    state.base_epoch = model.epoch
    state.newest = None
    state.phase = "open"


def upload(node: GatewayNode, updates: int, samples: int, at: float, *, early: bool = False) -> None:
    """Send the model up. Until the answer is adopted nothing new is dispatched."""
    state = node.state
    assert state.weights is not None
    uploads.upload(node, state.weights, state.base_epoch, updates, samples, at, early=early)
    state.phase = "uploading"
    if node.config.in_flight == "discard":
        node.discard_flights(at)


def abandon(node: GatewayNode, updates: int, reason: JobEnd, at: float) -> None:
    """The gateway's model ends here, with updates in it that no upload holds: write that end down."""
    state = node.state
    if updates and state.phase == "open":
        number = UploadId(node.config.number, state.incarnation, state.next_upload)
        end: UploadEnd = "lost" if reason == "gateway_lost" else "run_ended"
        node.emit(Write(UploadRecord(at, number, end, state.base_epoch, 0, 0.0, updates, False)))
