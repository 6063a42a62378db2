"""Jobs of a gateway: sending them to devices, removing them from those in flight, and learning from their updates."""

from __future__ import annotations

import numpy as np

from async_hfl.core.compression.model_codec import plain_vector
from async_hfl.core.identifiers import DEVICE_TIER, Address, JobId
from async_hfl.core.maths.projection import PcaProjection
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.effects import Send, SetTimer
from async_hfl.core.weights import is_finite, mean_step
from async_hfl.nodes.gateway import leases
from async_hfl.nodes.gateway.context import Gateway
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
    state.in_flight_jobs[number] = InFlightJob(
        slot, at, state.gateway_epoch, base, rate, weights, deadline, False, warm_up is not None
    )
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
    gateway.emit(Send(Address(DEVICE_TIER, int(device_table.devices[slot])), train))
    if deadline < state.deadline:
        state.deadline = deadline
        gateway.emit(SetTimer("patience", deadline))


def remove(gateway: Gateway, number: int, at: float) -> InFlightJob | None:
    """Remove a job from those in flight and free its bandwidth and its device; return None if it is not in flight."""
    state, device_table = gateway.state, gateway.state.device_table
    in_flight = state.in_flight_jobs.pop(number, None)
    if in_flight is None:
        return None
    slot = in_flight.slot
    if not in_flight.overdue:
        state.active -= 1
        state.load = state.load - in_flight.rate if state.active else 0.0
    if device_table.job[slot] == number:
        device_table.job[slot] = -1
        device_table.idle_since[slot] = at
        device_table.refresh(slot)
    return in_flight


def discard_all(gateway: Gateway, at: float) -> None:
    """End every job in flight except warm-up jobs, although devices may still be training."""
    for number, in_flight in list(gateway.state.in_flight_jobs.items()):
        if not in_flight.warmup:
            remove(gateway, number, at)
            gateway.end_job(number, in_flight, "round_closed", at)
            leases.release_if_moved(gateway, in_flight.slot)


def learn(gateway: Gateway, slot: int, in_flight: InFlightJob, update: m.Update) -> None:
    """Store the loss, the gradient and the other properties of a device that its (decoded) update contains."""
    device_table = gateway.state.device_table
    device_table.timeouts[slot] = 0
    device_table.samples[slot] = update.samples
    device_table.loss[slot] = update.loss
    device_table.squared_loss[slot] = update.squared_loss
    device_table.last_seen[slot] = gateway.state.gateway_epoch + 1
    if device_table.gradients is None:
        return
    if update.gradient is not None:
        gradient = plain_vector(update.gradient)
    else:
        # gradient = "update": the mean step, computed from the weights, need not be sent by the device.
        config = gateway.config
        divisor = np.float32(config.learning_rate * update.steps)
        gradient = mean_step(in_flight.sent, plain_vector(update.weights), config.gradient_size, divisor)
    # The table ignores gradients that are not finite, but a compressed one would first convert the table.
    if not update.compressed or is_finite(gradient):
        device_table.gradients.offer(slot, gradient, update.compressed, device_table.projection)
