"""Devices that fail again and again, or send what no correct device would send: they are set aside for a while.

A job belongs to the device that it was sent to. A message about a job of another device, or about one that was never
sent, is dropped and recorded, and its sender is set aside. So is, in a deployment, a device that has failed several
times in a row: its jobs timed out, were interrupted, or had results that were refused.

A device that is set aside gets no job, whatever it sends. When the pause is over it is probed, and its answer restores
the link. Every further failure doubles the pause, up to an hour; only an update that is accepted ends the series.
"""

from __future__ import annotations

from async_hfl.core.identifiers import JobId
from async_hfl.core.protocol.effects import SetTimer, Write
from async_hfl.core.protocol.messages import Update
from async_hfl.core.protocol.records import LifecycleRecord
from async_hfl.nodes.gateway import change_bound
from async_hfl.nodes.gateway.context import Gateway
from async_hfl.nodes.gateway.state import InFlightJob

PAUSE_FIRST_S = 60.0
PAUSE_MOST_S = 3600.0
_MOST_FAILURES = 100


def owns(gateway: Gateway, device: int, job: JobId, at: float) -> bool:
    """True if a message of this device about this job may be handled. Otherwise it is recorded, and the device is set
    aside. Jobs of another incarnation of this gateway are unknown here, but they may be the device's."""
    state, device_table = gateway.state, gateway.state.device_table
    if job.gateway != gateway.config.number:
        why = "another gateway's job"
    elif job.incarnation != state.incarnation:
        return True
    elif not 0 < job.number < state.next_job:
        why = "a job that was never sent"
    else:
        in_flight = state.in_flight_jobs.get(job.number)
        if in_flight is None or int(device_table.devices[in_flight.slot]) == device:
            return True
        why = "the job of another device"
    refuse(gateway, device, f"a message about {job}: {why}", at)
    return False


def refuse(gateway: Gateway, device: int, why: str, at: float) -> None:
    """Record a message that no correct device would send, and set its sender aside."""
    gateway.emit(Write(LifecycleRecord(at, "refused", f"d{device}", f"by g{gateway.config.number}: {why}")))
    slot = gateway.state.device_table.slot_of.get(device)
    if slot is not None:
        failures = gateway.state.device_table.failures
        failures[slot] = max(int(failures[slot]), gateway.config.deployment.failures - 1)
        failed(gateway, slot, at)


def refuses(gateway: Gateway, in_flight: InFlightJob, update: Update, at: float) -> bool:
    """True if a decoded update must not be used; its job then ends as refused. A training that has diverged is no
    fault of the device, and only its job's end is recorded."""
    why = change_bound.refusal(gateway, in_flight, update)
    if not why:
        return False
    gateway.end_job(update.job.number, in_flight, "refused", at, update)
    if why != change_bound.DIVERGED:
        device = int(gateway.state.device_table.devices[in_flight.slot])
        detail = f"by g{gateway.config.number}: the update of {update.job} {why}"
        gateway.emit(Write(LifecycleRecord(at, "refused", f"d{device}", detail)))
    failed(gateway, in_flight.slot, at)
    return True


def failed(gateway: Gateway, slot: int, at: float) -> None:
    """Count a failure of a device, and set it aside if there were too many in a row."""
    state, device_table, most = gateway.state, gateway.state.device_table, gateway.config.deployment.failures
    if most == 0:
        return
    failures = device_table.failures[slot] = min(int(device_table.failures[slot]) + 1, _MOST_FAILURES)
    if failures < most:
        return
    pause = min(PAUSE_FIRST_S * 2.0 ** (failures - most), PAUSE_MOST_S)
    device = int(device_table.devices[slot])
    if device_table.feasible[slot]:
        device_table.feasible[slot] = False
        gateway.report(lost=(device,))
    device_table.aside_until[slot] = device_table.probe_at[slot] = at + pause
    device_table.probe_wait[slot] = pause / 2.0  # the probe doubles it
    device_table.refresh(slot)
    detail = f"by g{gateway.config.number}: set aside for {pause:.0f} s after {failures} failures"
    gateway.emit(Write(LifecycleRecord(at, "device_given_up", f"d{device}", detail)))
    if at + pause < state.probe_at:
        state.probe_at = at + pause
        gateway.emit(SetTimer("probe", state.probe_at))


def is_aside(gateway: Gateway, slot: int, at: float) -> bool:
    return at < float(gateway.state.device_table.aside_until[slot])
