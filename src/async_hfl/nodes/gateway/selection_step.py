"""Selection at a gateway (Eq. 10) and the triggering of those chosen.

Asked for at the start of a cycle, after every aggregation, and when a device joins, returns or is given up; a method
that thinks in rounds lets it run only when a round begins. If nothing is in flight and nobody fits the bandwidth, the
best one is sent alone, recorded: a run never stalls.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from async_hfl.core.arrays import Bools, Floats, Ints
from async_hfl.core.errors import InvariantViolation, PolicyError
from async_hfl.core.gradient_table import Gradients
from async_hfl.core.identifiers import JobId, device_address
from async_hfl.core.maths.latency import data_rate, patience
from async_hfl.core.maths.projection import PcaProjection
from async_hfl.core.maths.utility import scaled
from async_hfl.core.policies import Peers, Selection, SelectionProblem, needs_gradients
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.effects import Send, SetTimer, Write
from async_hfl.core.protocol.records import SelectionRecord
from async_hfl.core.randomness import scramble
from async_hfl.nodes import update_ledger
from async_hfl.nodes.gateway.participation import due_first
from async_hfl.nodes.gateway.state import NEVER, InFlightJob

if TYPE_CHECKING:
    from async_hfl.nodes.gateway.node import GatewayNode

_ROUNDING = 1e-9


def dispatch(node: GatewayNode, at: float) -> None:
    """Select among the idle devices and trigger those chosen."""
    state, config, device_table = node.state, node.config, node.state.device_table
    if state.phase != "open" or state.cut_off or not node.aggregation.dispatches(node):
        return
    slots = device_table.candidate.nonzero()[0]
    if len(slots) == 0:
        node.watch_idleness(at)
        return
    state.selections += 1
    chosen: tuple[int, ...] = ()
    gap: float | None = None
    rest, taken, awaited = slots, 0.0, -1
    if config.min_participation > 0.0:
        due, rest, awaited = _due(node, slots, at)
        chosen = tuple(device_table.devices[due].tolist())
        taken = float((config.model_bytes / device_table.round_latency[due]).sum())
    if awaited < 0 and len(rest):
        selection = _asked(node, rest, taken, at)
        chosen += selection.devices
        gap = None if selection.bound is None else selection.gap
    lone = not chosen and state.active == 0
    if lone:
        chosen = (int(device_table.devices[awaited if awaited >= 0 else _best(node, slots)]),)
    first = state.next_job
    for device in chosen:
        slot = device_table.slot_of.get(device, -1)
        if slot < 0 or not device_table.candidate[slot]:
            raise PolicyError(f"selection at gateway {config.number}: device {device} was chosen and is no candidate")
        trigger(node, slot, data_rate(config.model_bytes, float(device_table.round_latency[slot])), at)
    if chosen and not lone and state.load > state.bandwidth * (1 + _ROUNDING):
        raise PolicyError(
            f"selection at gateway {config.number}: what was chosen takes the load to {state.load:.6g} bytes/s, "
            f"beyond the bandwidth of {state.bandwidth:.6g}"
        )
    limited = len(chosen) < len(slots) and _limited(node, slots)
    node.emit(Write(SelectionRecord(at, config.number, len(slots), chosen, limited, lone, gap)))
    if chosen:
        node.aggregation.dispatched(node, tuple(range(first, state.next_job)), at)


def _limited(node: GatewayNode, slots: Ints) -> bool:
    """Is there a candidate left out that what is left of the bandwidth could not take?"""
    state, device_table = node.state, node.state.device_table
    left = slots[device_table.candidate[slots]]
    if len(left) == 0:
        return False
    latency = device_table.round_latency[left]
    quickest = float(latency[latency.argmin()])  # min() takes seven times as long for so few
    return data_rate(node.config.model_bytes, quickest) > state.bandwidth - state.load


def _due(node: GatewayNode, slots: Ints, at: float) -> tuple[Ints, Ints, int]:
    """Slots that go first, the others, and the one that all must wait for (-1: none)."""
    device_table = node.state.device_table
    latency = device_table.round_latency[slots]
    free = node.state.bandwidth - node.state.load
    waited = at - device_table.idle_since[slots]
    places, awaited = due_first(waited, latency, node.config.model_bytes / latency, free, node.config.min_participation)
    return slots[places], np.delete(slots, places), int(slots[awaited]) if awaited >= 0 else -1


def _asked(node: GatewayNode, slots: Ints, taken: float, at: float) -> Selection:
    """Whom the policy chooses, with what is left of the bandwidth."""
    selection = node.selection.choose(_problem(node, slots, taken, at))
    if selection.memory is not None:
        node.state.memory = dict(selection.memory)
    return selection


def _best(node: GatewayNode, slots: Ints) -> int:
    """The slot of the highest u_i (1 / tau_i)^kappa."""
    latency = node.state.device_table.round_latency[slots]
    utility, _, _ = _utility(node, slots)
    return int(slots[int(np.argmax(utility * (1.0 / latency) ** node.config.latency_exponent))])


def _problem(node: GatewayNode, slots: Ints, taken: float, at: float) -> SelectionProblem:
    state, config, device_table, needs = node.state, node.config, node.state.device_table, node.selection.needs
    latency = device_table.round_latency[slots]
    rates, capacity = config.model_bytes / latency, state.bandwidth - state.load - taken
    # Where nobody fits, as often under a tight limit, no utility can change that, and they are dear.
    utility, gradients, known = _utility(node, slots, matter=bool((rates <= capacity).any()))
    return SelectionProblem(
        config.number,
        device_table.devices[slots],
        utility,
        latency,
        rates,
        device_table.loss[slots],
        device_table.squared_loss[slots],
        device_table.samples[slots],
        device_table.idle_since[slots],
        device_table.last_selected[slots],
        capacity,
        config.latency_exponent,
        state.gateway_epoch,
        at,
        scramble(config.seed ^ state.selections),
        gradients,
        state.memory,
        known,
        device_table.last_seen[slots] if needs else None,
        _peers(node) if "peers" in needs else None,
    )


def _utility(node: GatewayNode, slots: Ints, *, matter: bool = True) -> tuple[Floats, Gradients | None, Bools | None]:
    """Scaled utilities of the candidates, ones where they do not matter; their gradients, and which are known, for a
    policy that wants those."""
    table, needs, config = node.state.device_table.gradients, node.selection.needs, node.config
    if table is None or not needs_gradients(needs):
        return _ones(len(slots)), None, None
    known, utility = table.row_of[slots] >= 0, _ones(len(slots))
    if matter and "utility" in needs:
        utility = scaled(table.utility(slots), known, config.utility_scale, config.utility_floor)
    return utility, table.gradients(slots) if "gradients" in needs else None, known


def _peers(node: GatewayNode) -> Peers:
    """The associated devices that are no candidates now."""
    device_table, table = node.state.device_table, node.state.device_table.gradients
    others = np.flatnonzero(device_table.associated & ~device_table.candidate)
    gradients = None
    if table is not None and "gradients" in node.selection.needs:
        gradients = table.gradients(others[table.row_of[others] >= 0])
    return Peers(device_table.round_latency[others], device_table.loss[others], gradients)


@cache
def _ones(count: int) -> Floats:
    """As many ones; shared, so read-only."""
    ones = np.ones(count)
    ones.flags.writeable = False
    return ones


def trigger(node: GatewayNode, slot: int, rate: float, at: float, warm_up: m.WarmUp | None = None) -> None:
    """Send a job. A warm-up job starts from the initial model and takes no bandwidth."""
    state, config, device_table = node.state, node.config, node.state.device_table
    weights, base = (state.weights, state.base_epoch) if warm_up is None else (warm_up.weights, 0)
    if weights is None:
        raise InvariantViolation(f"gateway {config.number} dispatches before it has a model")
    number = state.next_job
    state.next_job += 1
    latency = float(device_table.round_latency[slot])
    deadline = at + patience(latency, config.patience_floor, config.patience_factor) * 2.0 ** int(
        device_table.given_up[slot]
    )
    state.in_flight_jobs[number] = InFlightJob(
        slot, at, state.gateway_epoch, base, rate, weights, deadline, False, warm_up is not None
    )
    state.active += 1
    state.load += rate
    state.idle_upload_at = NEVER
    device_table.job[slot] = number
    device_table.last_selected[slot] = state.gateway_epoch
    device_table.candidate[slot] = False
    job = JobId(config.number, state.incarnation, number)
    basis = _basis(node, slot) if config.gradient == "last" else None
    train = m.Train(
        job,
        weights,
        state.gateway_epoch,
        base,
        state.version,
        basis,
        warm_up is not None,
        update_ledger.take_settled(node, slot),
    )
    node.emit(Send(device_address(int(device_table.devices[slot])), train))
    if deadline < state.deadline:
        state.deadline = deadline
        node.emit(SetTimer("patience", deadline))


def _basis(node: GatewayNode, slot: int) -> m.Basis | None:
    """What a device that sends its gradient needs to project it, unless it was given that before."""
    device_table = node.state.device_table
    if device_table.has_basis[slot] or not isinstance(device_table.projection, PcaProjection):
        return None
    device_table.has_basis[slot] = True
    return device_table.projection.components
