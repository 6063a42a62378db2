"""Timeouts of devices that do not answer.

A device that has sent nothing by its job's deadline times out: its bandwidth is released, its link counts as
infeasible, and its job is overdue, but does not end. The device is probed after 60 s, then at intervals that double up
to an hour. Any message from it makes the link feasible again, unless it is set aside (`conduct`), and a late update is
used unless it is too stale.

In a deployment a job frees its bandwidth earlier, as soon as it takes a few times the usual round latency. A device
that accepts a job and sends nothing would otherwise keep the bandwidth from others for a minute and more.
"""

from __future__ import annotations

import numpy as np

from async_hfl.core.identifiers import DEVICE_TIER, Address
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.effects import Send, SetTimer, Write
from async_hfl.core.protocol.records import LifecycleRecord
from async_hfl.nodes.gateway import conduct, leases
from async_hfl.nodes.gateway.context import Gateway
from async_hfl.nodes.gateway.state import NEVER, InFlightJob

PROBE_FIRST_S = 60.0
PROBE_MOST_S = 3600.0
_MOST_DOUBLINGS = 12


def expire(gateway: Gateway, at: float) -> tuple[tuple[int, ...], bool]:
    """Time out every job whose deadline has passed; return their numbers, and whether bandwidth was freed.

    One timer serves all jobs; it is set to the earliest deadline, or time at which a job frees its bandwidth.
    """
    state, device_table = gateway.state, gateway.state.device_table
    lost: list[int] = []
    expired: list[int] = []
    failed: list[int] = []
    freed = False
    for number, in_flight in state.in_flight_jobs.items():
        if in_flight.free_at <= at:
            freed |= free(gateway, in_flight)
        if in_flight.overdue or in_flight.deadline > at:
            continue
        freed |= free(gateway, in_flight)
        in_flight.overdue = True
        state.active -= 1
        state.freed -= 1
        expired.append(number)
        slot = in_flight.slot
        if device_table.job[slot] == number:
            device_table.job[slot] = -1
        device_table.timeouts[slot] = min(device_table.timeouts[slot] + 1, _MOST_DOUBLINGS)
        if device_table.feasible[slot]:
            device_table.feasible[slot] = False
            device_table.probe_wait[slot] = PROBE_FIRST_S
            device_table.probe_at[slot] = at + PROBE_FIRST_S
            lost.append(int(device_table.devices[slot]))
        failed.append(slot)
        device_table.refresh(slot)
        leases.release_if_moved(gateway, slot)
    state.deadline = min(map(next_due, state.in_flight_jobs.values()), default=NEVER)
    if state.deadline < NEVER:
        gateway.emit(SetTimer("patience", state.deadline))
    if lost:
        gateway.report(lost=tuple(lost))
        for device in lost:
            gateway.emit(Write(LifecycleRecord(at, "device_given_up", f"d{device}", f"by g{gateway.config.number}")))
        _arm_probe(gateway)
    for slot in failed:
        conduct.failed(gateway, slot, at)
    return tuple(expired), freed


def next_due(in_flight: InFlightJob) -> float:
    """Return the time at which a job frees its bandwidth or times out."""
    if in_flight.overdue:
        return NEVER
    return in_flight.deadline if in_flight.freed else min(in_flight.free_at, in_flight.deadline)


def free(gateway: Gateway, in_flight: InFlightJob) -> bool:
    """Free the bandwidth of a job; return False if it was free already."""
    if in_flight.overdue or in_flight.freed:
        return False
    state = gateway.state
    in_flight.freed = True
    state.freed += 1
    state.load = state.load - in_flight.rate if state.active > state.freed else 0.0
    return True


def progressed(gateway: Gateway, device: int, at: float) -> None:
    """Extend the deadlines of a device's jobs: its transfer is making progress."""
    slot = gateway.state.device_table.slot_of.get(device)
    for in_flight in gateway.state.in_flight_jobs.values():
        if in_flight.slot == slot and not in_flight.overdue:
            in_flight.deadline = max(in_flight.deadline, at + gateway.device_patience(in_flight.slot))


def probe(gateway: Gateway, at: float) -> None:
    """Probe the devices whose next probe is due."""
    device_table = gateway.state.device_table
    gateway.state.probe_at = NEVER
    for slot in np.flatnonzero(device_table.probe_at <= at):
        device_table.probe_wait[slot] = min(2 * device_table.probe_wait[slot], PROBE_MOST_S)
        device_table.probe_at[slot] = at + device_table.probe_wait[slot]
        gateway.emit(Send(Address(DEVICE_TIER, int(device_table.devices[slot])), m.Probe()))
    _arm_probe(gateway)


def heard(gateway: Gateway, device: int, at: float) -> None:
    """Restore the link of a device that has just sent a message, if it was infeasible."""
    slot = gateway.state.device_table.slot_of.get(device)
    if slot is not None and not gateway.state.device_table.feasible[slot]:
        restore_link(gateway, device, at)


def restore_link(gateway: Gateway, device: int, at: float) -> None:
    """Make a device's link feasible, and report and record that, unless the device is set aside."""
    device_table = gateway.state.device_table
    slot = device_table.slot_of.get(device)
    if slot is not None:
        if conduct.is_aside(gateway, slot, at):
            return
        device_table.feasible[slot] = True
        device_table.probe_at[slot] = NEVER
        device_table.refresh(slot)
    gateway.report(heard=(device,))
    gateway.emit(Write(LifecycleRecord(at, "device_heard", f"d{device}", f"by g{gateway.config.number}")))


def _arm_probe(gateway: Gateway) -> None:
    next_at = float(gateway.state.device_table.probe_at.min(initial=NEVER))
    if next_at < gateway.state.probe_at:
        gateway.state.probe_at = next_at
        gateway.emit(SetTimer("probe", next_at))
