"""One selection at a gateway (Eq. 10): the policy chooses among the idle devices, and those chosen are triggered.

Devices are selected at the start of a cycle, after every aggregation, and when a device joins, returns or times out,
unless the aggregation rule forbids it. If nothing is in flight and no device fits the bandwidth, the best one is
triggered alone (`SelectionRecord.lone`), so that a run never stalls.

`selection.min_participation` guarantees each device a share p of participation, whatever the policy chooses. A device
that takes part for the share p of its time waits (1 - p) / p round latencies after each round; one that has waited
longer is *due*. Due devices are triggered before all others, longest wait first, measured in their own latencies. If
the next one does not fit the free bandwidth, nothing else is triggered until it does; otherwise small jobs would
overtake it for ever. If the bandwidth is too small for all due devices, they take turns. A new device counts as waiting
since the run began.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from async_hfl.core.arrays import Bools, Floats, Ints
from async_hfl.core.errors import PolicyError
from async_hfl.core.gradient_table import Gradients
from async_hfl.core.maths.utility import scaled
from async_hfl.core.policies import Need, Peers, SelectionPolicy, SelectionProblem, needs_gradients
from async_hfl.core.protocol.effects import Write
from async_hfl.core.protocol.records import SelectionRecord
from async_hfl.core.randomness import scramble
from async_hfl.nodes.gateway import jobs
from async_hfl.nodes.gateway.context import Gateway

_ROUNDING = 1e-9


def select(gateway: Gateway, policy: SelectionPolicy, slots: Ints, at: float, cycle_round: int = 0) -> tuple[int, ...]:
    """Select among the candidates in these slots, trigger the devices chosen, and return their job numbers."""
    state, config, device_table = gateway.state, gateway.config, gateway.state.device_table
    state.selections += 1
    chosen: tuple[int, ...] = ()
    gap: float | None = None
    rest, taken, blocking = slots, 0.0, -1
    most = most_devices(gateway)
    if config.min_participation > 0.0:
        due, rest, blocking = _due(gateway, slots, at)
        due = due[:most]
        chosen = tuple(device_table.devices[due].tolist())
        taken = float((config.model_bytes / device_table.round_latency[due]).sum())
    if blocking < 0 and len(rest):
        selection = policy.choose(_problem(gateway, policy.needs, rest, taken, at, cycle_round))
        if selection.memory is not None:
            state.memory = dict(selection.memory)
        chosen += selection.devices if most is None else selection.devices[: max(0, most - len(chosen))]
        gap = selection.gap
    lone = not chosen and state.active == state.freed
    if lone:
        chosen = (int(device_table.devices[blocking if blocking >= 0 else _best(gateway, policy.needs, slots)]),)
    first = state.next_job
    for device in chosen:
        slot = device_table.slot_of.get(device, -1)
        if slot < 0 or not device_table.candidate[slot]:
            raise PolicyError(f"selection at gateway {config.number}: chose device {device}, which is not a candidate")
        jobs.trigger(gateway, slot, config.model_bytes / float(device_table.round_latency[slot]), at)
    if chosen and not lone and state.load > state.bandwidth * (1 + _ROUNDING):
        raise PolicyError(
            f"selection at gateway {config.number}: the devices chosen raise the load to {state.load:.6g} bytes/s, "
            f"beyond the bandwidth of {state.bandwidth:.6g}"
        )
    limited = len(chosen) < len(slots) and _limited(gateway, slots)
    gateway.emit(Write(SelectionRecord(at, config.number, len(slots), chosen, limited, lone, gap)))
    return tuple(range(first, state.next_job))


def most_devices(gateway: Gateway) -> int | None:
    """Return the number of devices that a round selects: its participants and as many more as over-selection asks for;
    None: as many as the bandwidth allows."""
    config = gateway.config
    if config.participation == 0.0:
        return None
    return math.floor(gateway.part_of(config.participation) * config.over_selection + 0.5)


def _limited(gateway: Gateway, slots: Ints) -> bool:
    """True if a candidate was not chosen and does not fit the free bandwidth."""
    state, device_table = gateway.state, gateway.state.device_table
    left = slots[device_table.candidate[slots]]
    if len(left) == 0:
        return False
    latency = device_table.round_latency[left]
    quickest = float(latency[latency.argmin()])  # for few candidates, min() takes seven times as long
    return gateway.config.model_bytes / quickest > state.bandwidth - state.load


def _due(gateway: Gateway, slots: Ints, at: float) -> tuple[Ints, Ints, int]:
    """Return the due slots that fit, the other slots, and the first due slot that does not fit (-1 for none)."""
    state, config, device_table = gateway.state, gateway.config, gateway.state.device_table
    latency = device_table.round_latency[slots]
    waited = at - device_table.idle_since[slots]
    free = state.bandwidth - state.load
    places, blocking = due_first(waited, latency, config.model_bytes / latency, free, config.min_participation)
    return slots[places], np.delete(slots, places), int(slots[blocking]) if blocking >= 0 else -1


def due_first(waited: Floats, latency: Floats, rate: Floats, free: float, share: float) -> tuple[Ints, int]:
    """Return the indices of the due devices that fit, in order, and of the first that does not (-1 for none)."""
    rounds = waited / latency
    due = np.flatnonzero(rounds * share >= 1.0 - share)
    due = due[np.argsort(-rounds[due], kind="stable")]
    taken = np.cumsum(rate[due])
    fits = int(np.searchsorted(taken, free * (1 + _ROUNDING), side="right"))
    return due[:fits], int(due[fits]) if fits < len(due) else -1


def _best(gateway: Gateway, needs: frozenset[Need], slots: Ints) -> int:
    """Return the slot with the highest u_i (1 / tau_i)^kappa."""
    latency = gateway.state.device_table.round_latency[slots]
    utility, _, _ = _utility(gateway, needs, slots)
    return int(slots[int(np.argmax(utility * (1.0 / latency) ** gateway.config.latency_exponent))])


def _problem(
    gateway: Gateway, needs: frozenset[Need], slots: Ints, taken: float, at: float, cycle_round: int
) -> SelectionProblem:
    state, config, device_table = gateway.state, gateway.config, gateway.state.device_table
    latency = device_table.round_latency[slots]
    rates, capacity = config.model_bytes / latency, state.bandwidth - state.load - taken
    # Utilities are expensive. If no device fits, as is common under a tight limit, they make no difference.
    utility, gradients, known = _utility(gateway, needs, slots, computed=bool((rates <= capacity).any()))
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
        _peers(gateway, needs, slots) if "peers" in needs else None,
        most_devices(gateway),
        state.tiers if "tiers" in needs else None,
        cycle_round,
    )


def _utility(
    gateway: Gateway, needs: frozenset[Need], slots: Ints, *, computed: bool = True
) -> tuple[Floats, Gradients | None, Bools | None]:
    """Return the candidates' scaled utilities (ones unless `computed`), their gradients if the policy needs them, and
    a mask of the known gradients."""
    table, config = gateway.state.device_table.gradients, gateway.config
    if table is None or not needs_gradients(needs):
        return _ones(len(slots)), None, None
    known, utility = table.row_of[slots] >= 0, _ones(len(slots))
    if computed and "utility" in needs:
        utility = scaled(table.utility(slots), known, config.utility_scale, config.utility_floor)
    return utility, table.gradients(slots) if "gradients" in needs else None, known


def _peers(gateway: Gateway, needs: frozenset[Need], slots: Ints) -> Peers:
    """Return the associated devices that are not among the candidates in these slots."""
    device_table, table = gateway.state.device_table, gateway.state.device_table.gradients
    other = device_table.associated.copy()
    other[slots] = False
    others = np.flatnonzero(other)
    gradients = None
    if table is not None and "gradients" in needs:
        gradients = table.gradients(others[table.row_of[others] >= 0])
    return Peers(device_table.round_latency[others], device_table.loss[others], gradients)


@cache
def _ones(count: int) -> Floats:
    """Return a shared, read-only array of ones."""
    ones = np.ones(count)
    ones.flags.writeable = False
    return ones
