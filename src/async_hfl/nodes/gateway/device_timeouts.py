"""Patience with silent devices.

A device that stays silent beyond its patience is given up: its bandwidth is free, its link counts as infeasible, its
job is overdue but not ended. It is probed after 60 s, doubling to an hour; any word from it makes the link feasible
again, and a late update is welcome within the staleness bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from async_hfl.core.identifiers import device_address
from async_hfl.core.maths.latency import patience
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.effects import Send, SetTimer, Write
from async_hfl.core.protocol.records import LifecycleRecord
from async_hfl.nodes.config import PROBE_FIRST_S, PROBE_MOST_S
from async_hfl.nodes.gateway import leases
from async_hfl.nodes.gateway.selection_step import dispatch
from async_hfl.nodes.gateway.state import NEVER

if TYPE_CHECKING:
    from async_hfl.nodes.gateway.node import GatewayNode

_MOST_DOUBLINGS = 12


def give_up(node: GatewayNode, at: float) -> None:
    """One scan for all: the next is due when the next patience runs out, so it costs O(1) per job in the long run."""
    state, device_table = node.state, node.state.device_table
    lost: list[int] = []
    given_up: list[int] = []
    for number, in_flight in state.in_flight_jobs.items():
        if in_flight.overdue or in_flight.deadline > at:
            continue
        in_flight.overdue = True
        given_up.append(number)
        state.active -= 1
        state.load = state.load - in_flight.rate if state.active else 0.0
        slot = in_flight.slot
        if device_table.job[slot] == number:
            device_table.job[slot] = -1
        device_table.given_up[slot] = min(device_table.given_up[slot] + 1, _MOST_DOUBLINGS)
        if device_table.feasible[slot]:
            device_table.feasible[slot] = False
            device_table.probe_wait[slot] = PROBE_FIRST_S
            device_table.probe_at[slot] = at + PROBE_FIRST_S
            lost.append(int(device_table.devices[slot]))
        device_table.refresh(slot)
        leases.release_if_moved(node, slot)
    state.deadline = min(
        (in_flight.deadline for in_flight in state.in_flight_jobs.values() if not in_flight.overdue), default=NEVER
    )
    if state.deadline < NEVER:
        node.emit(SetTimer("patience", state.deadline))
    if lost:
        node.report(lost=tuple(lost))
        for device in lost:
            node.emit(Write(LifecycleRecord(at, "device_given_up", f"d{device}", f"by g{node.config.number}")))
        _arm_probe(node)
    if given_up:
        node.aggregation.ended(node, tuple(given_up), at)
        dispatch(node, at)


def moving(node: GatewayNode, device: int, at: float) -> None:
    """A transfer with it is under way: patience runs from its last progress. The timer finds the new deadline."""
    state, device_table = node.state, node.state.device_table
    slot = device_table.slot_of.get(device)
    if slot is None:
        return
    config = node.config
    wait = patience(float(device_table.round_latency[slot]), config.patience_floor, config.patience_factor)
    for in_flight in state.in_flight_jobs.values():
        if in_flight.slot == slot and not in_flight.overdue:
            in_flight.deadline = max(in_flight.deadline, at + wait * 2.0 ** int(device_table.given_up[slot]))


def probe(node: GatewayNode, at: float) -> None:
    device_table = node.state.device_table
    node.state.probe_at = NEVER
    for slot in np.flatnonzero(device_table.probe_at <= at):
        device_table.probe_wait[slot] = min(2 * device_table.probe_wait[slot], PROBE_MOST_S)
        device_table.probe_at[slot] = at + device_table.probe_wait[slot]
        node.emit(Send(device_address(int(device_table.devices[slot])), m.Probe()))
    _arm_probe(node)


def heard(node: GatewayNode, device: int, at: float) -> None:
    device_table = node.state.device_table
    slot = device_table.slot_of.get(device)
    if slot is None or device_table.feasible[slot]:
        return
    device_table.feasible[slot] = True
    device_table.probe_at[slot] = NEVER
    device_table.refresh(slot)
    node.report(heard=(device,))
    node.emit(Write(LifecycleRecord(at, "device_heard", f"d{device}", f"by g{node.config.number}")))


def _arm_probe(node: GatewayNode) -> None:
    next_at = float(node.state.device_table.probe_at.min(initial=NEVER))
    if next_at < node.state.probe_at:
        node.state.probe_at = next_at
        node.emit(SetTimer("probe", next_at))
