"""Who can be spoken to, where there are sessions: this is how a gateway observes J_t, and its own way to the cloud.

A session that breaks makes a link infeasible at once; the job on it stays, since a link outage only delays it. After a
restart of the gateway its devices have some time to come back before they are held for gone. A gateway without the
cloud goes on with what it may do alone, and triggers nothing new after `cloud_patience`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from async_hfl.core.protocol.effects import SetTimer, Write
from async_hfl.core.protocol.records import LifecycleRecord
from async_hfl.nodes.gateway.selection_step import dispatch
from async_hfl.nodes.gateway.state import NEVER

if TYPE_CHECKING:
    from async_hfl.nodes.gateway.node import GatewayNode

PRESENCE_TIMER = "presence"
CLOUD_TIMER = "cloud"


def device_joined(node: GatewayNode, device: int, at: float) -> None:
    state, device_table = node.state, node.state.device_table
    state.present.add(device)
    state.awaited.discard(device)
    slot = device_table.slot_of.get(device)
    if slot is not None:
        device_table.feasible[slot] = True
        device_table.probe_at[slot] = NEVER
        device_table.refresh(slot)
    node.report(heard=(device,))
    node.emit(Write(LifecycleRecord(at, "device_heard", f"d{device}", f"by g{node.config.number}")))
    dispatch(node, at)


def device_lost(node: GatewayNode, device: int, at: float) -> None:
    state, device_table = node.state, node.state.device_table
    state.present.discard(device)
    state.awaited.discard(device)
    slot = device_table.slot_of.get(device)
    if slot is not None:
        device_table.feasible[slot] = False
        device_table.refresh(slot)
    node.report(lost=(device,))
    node.emit(Write(LifecycleRecord(at, "device_given_up", f"d{device}", f"by g{node.config.number}: no session")))
    dispatch(node, at)


def sessions_gone(node: GatewayNode, at: float) -> None:
    """After a restart of our own."""
    state = node.state
    state.awaited |= state.present
    state.present.clear()
    if state.awaited and state.phase != "over":
        node.emit(SetTimer(PRESENCE_TIMER, at + node.config.presence_patience))
    cloud_lost(node, at)


def give_up_awaited(node: GatewayNode, at: float) -> None:
    for device in sorted(node.state.awaited):
        device_lost(node, device, at)


def cloud_lost(node: GatewayNode, at: float) -> None:
    state = node.state
    if state.cut_off or state.cut_off_at < NEVER or node.config.cloud_patience == NEVER:
        return
    state.cut_off_at = at + node.config.cloud_patience
    node.emit(SetTimer(CLOUD_TIMER, state.cut_off_at))


def cloud_joined(node: GatewayNode, at: float) -> None:
    state = node.state
    state.cut_off_at, was = NEVER, state.cut_off
    state.cut_off = False
    if was and state.phase != "over":
        dispatch(node, at)


def cloud_stayed_away(node: GatewayNode, at: float) -> None:
    if at >= node.state.cut_off_at:
        node.state.cut_off_at = NEVER
        node.state.cut_off = True
