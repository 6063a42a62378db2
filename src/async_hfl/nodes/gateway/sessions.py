"""Sessions with devices and with the cloud, in a shell that has sessions.

A gateway observes J_t through its sessions: when one breaks, the link is infeasible at once. The job on it stays open,
since a link outage only delays it. After a restart of the gateway its devices have some time to reconnect before their
links count as infeasible. A gateway without a session to the cloud goes on with the devices that it has, and triggers
none after `cloud_patience`.
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
    """Wait for the devices to reconnect: this gateway has restarted, and all its sessions are gone."""
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
    """Return True if devices may be triggered again that could not be without the cloud."""
    state = gateway.state
    state.cut_off_at, was_cut_off = NEVER, state.cut_off
    state.cut_off = False
    return was_cut_off


def cloud_timed_out(gateway: Gateway, at: float) -> None:
    """Stop triggering devices, unless the cloud's session is back."""
    if at >= gateway.state.cut_off_at:
        gateway.state.cut_off_at = NEVER
        gateway.state.cut_off = True
