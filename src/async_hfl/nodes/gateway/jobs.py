"""Jobs of a gateway: sending them to devices, removing them from those in flight, and learning from their updates."""

from __future__ import annotations

import numpy as np

from async_hfl.core.compression.model_codec import plain_vector
from async_hfl.core.identifiers import DEVICE_TIER, Address, JobId
from async_hfl.core.maths.projection import PcaProjection
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.effects import Send, SetTimer
from async_hfl.core.protocol.events import Received
from async_hfl.core.weights import is_finite, mean_step
from async_hfl.nodes.gateway import conduct, device_timeouts, forwarding, leases
from async_hfl.nodes.gateway.context import Gateway
from async_hfl.nodes.gateway.device_table import DeviceTable
from async_hfl.nodes.gateway.state import NEVER, InFlightJob


def trigger(gateway: Gateway, slot: int, rate: float, at: float, warm_up: m.WarmUp | None = None) -> None:
    """Send a job to a device. A warm-up job starts from the initial model and takes no bandwidth."""
    state, config, device_table = gateway.state, gateway.config, gateway.state.device_table
    if warm_up is None:
        (model, weights), base = gateway.model_for_devices(), state.base_epoch
    else:
        model, weights, base = warm_up.weights, config.codec.decode_model(warm_up.weights), 0
    number = state.next_job
    state.next_job += 1
    deadline = at + gateway.device_patience(slot)
    in_flight = InFlightJob(slot, at, state.gateway_epoch, base, rate, weights, deadline, False, warm_up is not None)
    if warm_up is None:
        in_flight.free_at = at + gateway.usual_time(slot)
    state.in_flight_jobs[number] = in_flight
    state.active += 1
    state.load += rate
    state.idle_upload_at = NEVER
    device_table.job[slot] = number
    device_table.last_selected[slot] = state.gateway_epoch
    device_table.candidate[slot] = False
    basis = None
    if config.gradient == "last" and not device_table.has_basis[slot]:
        projection = device_table.projection
        if isinstance(projection, PcaProjection):
            basis = projection.components
            device_table.has_basis[slot] = True
    job, settled = JobId(config.number, state.incarnation, number), tuple(state.settled.pop(slot, ()))
    train = m.Train(job, model, state.gateway_epoch, base, state.version, basis, warm_up is not None, settled)
    device = int(device_table.devices[slot])
    forwarding.allow_lists(gateway, device)
    gateway.emit(Send(Address(DEVICE_TIER, device), train))
    due = min(in_flight.free_at, deadline)
    if due < state.deadline:
        state.deadline = due
        gateway.emit(SetTimer("patience", due))


def remove(gateway: Gateway, number: int, at: float) -> InFlightJob | None:
    """Remove a job from those in flight and free its bandwidth and its device; return None if it is not in flight."""
    state, device_table = gateway.state, gateway.state.device_table
    in_flight = state.in_flight_jobs.pop(number, None)
    if in_flight is None:
        return None
    slot = in_flight.slot
    if not in_flight.overdue:
        device_timeouts.free(gateway, in_flight)
        state.active -= 1
        state.freed -= 1
    if device_table.job[slot] == number:
        device_table.job[slot] = -1
        device_table.idle_since[slot] = at
        device_table.refresh(slot)
    return in_flight


def ended(gateway: Gateway, event: Received, job: JobId) -> InFlightJob | None:
    """Remove the job that a device's message ends; return None if it is not in flight, or not the device's."""
    if not conduct.owns(gateway, event.sender.number, job, event.at):
        return None
    device_timeouts.heard(gateway, event.sender.number, event.at)
    return remove(gateway, job.number, event.at) if job.incarnation == gateway.state.incarnation else None


def discard_all(gateway: Gateway, at: float) -> None:
    """End every job in flight except warm-up jobs, although devices may still be training."""
    for number, in_flight in list(gateway.state.in_flight_jobs.items()):
        if not in_flight.warmup:
            remove(gateway, number, at)
            gateway.end_job(number, in_flight, "round_closed", at)
            gateway.note_discarded(number, in_flight.slot)
            leases.release_if_moved(gateway, in_flight.slot)


def note_late(gateway: Gateway, device: int, job: JobId) -> None:
    """Note an update whose job has ended already. If that was without an update, the device has now been
    acknowledged one, which the next upload must name."""
    slot = gateway.state.device_table.slot_of.get(device)
    own = job.incarnation == gateway.state.incarnation
    if own and slot is not None and gateway.take_discarded(job.number, slot):
        gateway.note_processed(job.number, slot)


def learn(gateway: Gateway, slot: int, in_flight: InFlightJob, update: m.Update) -> None:
    """Store the loss, the gradient and the other properties of a device that its (decoded) update contains."""
    device_table = gateway.state.device_table
    device_table.timeouts[slot] = device_table.failures[slot] = 0
    device_table.samples[slot] = update.samples
    device_table.loss[slot] = update.loss
    device_table.squared_loss[slot] = update.squared_loss
    device_table.last_seen[slot] = gateway.state.gateway_epoch + 1
    if device_table.gradients is None or not _fits(device_table, update):
        return
    if update.gradient is not None:
        gradient = plain_vector(update.gradient)
    elif update.steps == 0:
        return
    else:
        # gradient = "update": the mean step, computed from the weights, need not be sent by the device.
        config = gateway.config
        divisor = np.float32(config.learning_rate * update.steps)
        gradient = mean_step(in_flight.sent, plain_vector(update.weights), config.gradient_size, divisor)
    # The table ignores gradients that are not finite, but a compressed one would first convert the table.
    if not update.compressed or is_finite(gradient):
        device_table.gradients.offer(slot, gradient, update.compressed, device_table.projection)


def _fits(device_table: DeviceTable, update: m.Update) -> bool:
    """False if the update has a projected gradient that was projected in another way than those of the table."""
    if not update.compressed or update.gradient is None:
        return True
    projection, gradients = device_table.projection, device_table.gradients
    if projection is None and (gradients is None or not gradients.compressed):
        return True  # the first one, at a gateway that has not been told the projection
    size = projection.size if projection is not None else gradients.size if gradients is not None else 0
    return len(plain_vector(update.gradient)) == size
