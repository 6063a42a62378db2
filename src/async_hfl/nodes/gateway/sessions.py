"""Sessions of a gateway with its devices and with the cloud, in a shell that has sessions.

A gateway observes J_t through its sessions: a link is infeasible from the moment its session breaks. A job in flight on
it stays open, since a link outage only delays its update. After a restart of the gateway, its devices have some time to
reconnect before their links count as infeasible. Without a session to the cloud the gateway continues; it stops
triggering devices after `cloud_patience`.
"""

from __future__ import annotations

from async_hfl.core.protocol.effects import SetTimer, Write
from async_hfl.core.protocol.records import LifecycleRecord
from async_hfl.nodes.gateway.context import Gateway
from async_hfl.nodes.gateway.device_timeouts import restore_link
from async_hfl.nodes.gateway.state import NEVER

RECONNECT_TIMER = "reconnect"
CLOUD_TIMER = "cloud"


def device_joined(gateway: Gateway, device: int, at: float) -> None:
    gateway.state.connected.add(device)
    gateway.state.reconnecting.discard(device)
    restore_link(gateway, device, at)


def device_lost(gateway: Gateway, device: int, at: float) -> None:
    state, device_table = gateway.state, gateway.state.device_table
    state.connected.discard(device)
    state.reconnecting.discard(device)
    slot = device_table.slot_of.get(device)
    if slot is not None:
        device_table.feasible[slot] = False
        device_table.refresh(slot)
    gateway.report(lost=(device,))
    who = f"by g{gateway.config.number}: no session"
    gateway.emit(Write(LifecycleRecord(at, "device_given_up", f"d{device}", who)))


def restarted(gateway: Gateway, at: float) -> None:
    """Wait for the devices to reconnect after a restart of this gateway, which has ended all its sessions."""
    state = gateway.state
    state.reconnecting |= state.connected
    state.connected.clear()
    if state.reconnecting and state.phase != "over":
        gateway.emit(SetTimer(RECONNECT_TIMER, at + gateway.config.deployment.reconnect_patience))
    cloud_lost(gateway, at)


def cloud_lost(gateway: Gateway, at: float) -> None:
    state, patience = gateway.state, gateway.config.deployment.cloud_patience
    if state.cut_off or state.cut_off_at < NEVER or patience == NEVER:
        return
    state.cut_off_at = at + patience
    gateway.emit(SetTimer(CLOUD_TIMER, state.cut_off_at))


def cloud_joined(gateway: Gateway) -> bool:
    """Note that the session with the cloud is restored; return True if that allows devices to be triggered again."""
    state = gateway.state
    state.cut_off_at, was_cut_off = NEVER, state.cut_off
    state.cut_off = False
    return was_cut_off


def cloud_timed_out(gateway: Gateway, at: float) -> None:
    """Stop triggering devices, unless the session with the cloud was restored in time."""
    if at >= gateway.state.cut_off_at:
        gateway.state.cut_off_at = NEVER
        gateway.state.cut_off = True
