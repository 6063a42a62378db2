"""Patience with silent devices.

A device that stays silent beyond its patience is given up: its bandwidth is free, its link counts as infeasible, its
job is overdue but not ended. It is probed after 60 s, doubling to an hour; any word from it makes the link feasible
again, and a late update is welcome within the staleness bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from async_hfl.core import messages as m
from async_hfl.core.effects import Send, SetTimer, Write
from async_hfl.core.identifiers import device_address
from async_hfl.core.latency import patience
from async_hfl.core.records import LifeRecord
from async_hfl.nodes import rights
from async_hfl.nodes.dispatching import dispatch
from async_hfl.nodes.gateway_state import NEVER
from async_hfl.nodes.rules import PROBE_FIRST_S, PROBE_MOST_S

if TYPE_CHECKING:
    from async_hfl.nodes.gateway import GatewayNode

_MOST_DOUBLINGS = 12


def give_up(node: GatewayNode, at: float) -> None:
    """One scan for all: the next is due when the next patience runs out, so it costs O(1) per job in the long run."""
    state, roster = node.state, node.state.roster
    lost: list[int] = []
    given_up: list[int] = []
    for number, flight in state.flights.items():
        if flight.overdue or flight.deadline > at:
            continue
        flight.overdue = True
        given_up.append(number)
        state.active -= 1
        state.load = state.load - flight.rate if state.active else 0.0
        slot = flight.slot
        if roster.job[slot] == number:
            roster.job[slot] = -1
        roster.given_up[slot] = min(roster.given_up[slot] + 1, _MOST_DOUBLINGS)
        if roster.feasible[slot]:
            roster.feasible[slot] = False
            roster.probe_wait[slot] = PROBE_FIRST_S
            roster.probe_at[slot] = at + PROBE_FIRST_S
            lost.append(int(roster.devices[slot]))
        roster.refresh(slot)
        rights.release_if_moved(node, slot)
    state.deadline = min((flight.deadline for flight in state.flights.values() if not flight.overdue), default=NEVER)
    if state.deadline < NEVER:
        node.emit(SetTimer("patience", state.deadline))
    if lost:
        node.report(lost=tuple(lost))
        for device in lost:
            node.emit(Write(LifeRecord(at, "device_given_up", f"d{device}", f"by g{node.rules.number}")))
        _arm_probe(node)
    if given_up:
        node.aggregation.ended(node, tuple(given_up), at)
        dispatch(node, at)


def moving(node: GatewayNode, device: int, at: float) -> None:
    """A transfer with it is under way: patience runs from its last progress. The timer finds the new deadline."""
    state, roster = node.state, node.state.roster
    slot = roster.slot_of.get(device)
    if slot is None:
        return
    rules = node.rules
    wait = patience(float(roster.round_latency[slot]), rules.patience_floor, rules.patience_factor)
    for flight in state.flights.values():
        if flight.slot == slot and not flight.overdue:
            flight.deadline = max(flight.deadline, at + wait * 2.0 ** int(roster.given_up[slot]))


def probe(node: GatewayNode, at: float) -> None:
    roster = node.state.roster
    node.state.probe_at = NEVER
    for slot in np.flatnonzero(roster.probe_at <= at):
        roster.probe_wait[slot] = min(2 * roster.probe_wait[slot], PROBE_MOST_S)
        roster.probe_at[slot] = at + roster.probe_wait[slot]
        node.emit(Send(device_address(int(roster.devices[slot])), m.Probe()))
    _arm_probe(node)


def heard(node: GatewayNode, device: int, at: float) -> None:
    roster = node.state.roster
    slot = roster.slot_of.get(device)
    if slot is None or roster.feasible[slot]:
        return
    roster.feasible[slot] = True
    roster.probe_at[slot] = NEVER
    roster.refresh(slot)
    node.report(heard=(device,))
    node.emit(Write(LifeRecord(at, "device_heard", f"d{device}", f"by g{node.rules.number}")))


def _arm_probe(node: GatewayNode) -> None:
    next_at = float(node.state.roster.probe_at.min(initial=NEVER))
    if next_at < node.state.probe_at:
        node.state.probe_at = next_at
        node.emit(SetTimer("probe", next_at))
