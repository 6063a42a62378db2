"""Merges the journals of a deployment's nodes into one run directory, which reports read like a simulated run."""

from __future__ import annotations

import shutil
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from heapq import merge
from pathlib import Path
from typing import Any

from async_hfl.assembly.deployments.deployed_nodes import TaskFacts
from async_hfl.assembly.settings.schema import Settings
from async_hfl.core.identifiers import Address
from async_hfl.core.protocol.records import RECORD_TYPES, EpochRecord, LifecycleRecord, Record, SentRecord
from async_hfl.core.protocol.traffic import Traffic, subject
from async_hfl.core.serialization import from_plain
from async_hfl.deployment.operations.node_journal import Line, has_log, read_fact, read_lines
from async_hfl.deployment.store.node_identity import IDENTITY, NodeIdentity
from async_hfl.deployment.store.stored_node import StoredNode
from async_hfl.journal.events_file import EventsWriter, columns
from async_hfl.journal.run_directory import EpochsWriter, RunDirectory
from async_hfl.nodes.reliability.delivery import Arrived, Packet
from async_hfl.simulation.accounting.byte_counts import ByteCounts
from async_hfl.simulation.accounting.result import RunTotals, Tally, result_of

_TYPES: dict[str, type] = {cls.KIND: cls for cls in RECORD_TYPES}  # type: ignore[attr-defined]


def in_order(states: Sequence[Path]) -> Iterator[Record]:
    """Yield the records of all nodes by time; the records of one node stay in the order it wrote them."""
    names = columns()

    def of(place: int, state: Path) -> Iterator[tuple[float, int, int, Line]]:
        last = float("-inf")
        for number, line in enumerate(read_lines(state)):
            last = max(last, line.at)
            yield last, place, number, line

    for _, _, _, line in merge(*(of(place, state) for place, state in enumerate(states))):
        order, learnt = names[line.kind]
        fields = dict(zip(order, line.order, strict=True))
        if line.learnt is not None:
            fields.update(zip(learnt, line.learnt, strict=True))
        record: Record = _TYPES[line.kind](**fields)
        yield record


class Durations:
    """Transfer times of messages as their receivers measured them; the sender's record is written on sending."""

    def __init__(self, states: Sequence[Path]) -> None:
        self._of: dict[tuple[Address, Address, str, Any], deque[float]] = defaultdict(deque)
        for state in states:
            if not has_log(state):
                continue  # fetched over the network: records only
            identity = NodeIdentity(**read_fact(state, IDENTITY))
            receiver = Address(("cloud", "gateway", "device").index(identity.role), identity.number)
            with StoredNode(state) as stored:
                for logged in stored.events():
                    event = from_plain(stored.decode_without_arrays(logged.body))
                    if isinstance(event, Arrived) and isinstance(event.content, Packet):
                        message = event.content.message
                        key = (event.sender, receiver, type(message).__name__, subject(message))
                        self._of[key].append(event.transfer_s)

    def of(self, sent: SentRecord) -> SentRecord:
        """Return the record with its transfer time, if known; messages about the same job are matched in order."""
        subject = None if sent.about is None else tuple(sent.about)
        known = self._of.get((Address(*sent.sender), Address(*sent.receiver), sent.message, subject))
        return replace(sent, transfer_s=known.popleft()) if known else sent


def collect(directory: RunDirectory, states: Sequence[Path], cloud: Path, settings: Settings) -> dict[str, Any]:
    """Write events.jsonl, epochs.csv and the model, and return the result. `states`: of all nodes, with the cloud."""
    tally, crossing, finished_at = Tally(), None, None
    target = TaskFacts.of(NodeIdentity(**read_fact(cloud, IDENTITY))).target
    byte_counts = ByteCounts(settings.network.gateways, settings.task.devices)
    updates: set[tuple[int, ...]] = set()
    for written in (directory.events, directory.epochs):
        written.unlink(missing_ok=True)
    events, epochs = EventsWriter(directory.events), EpochsWriter(directory.epochs)
    durations = Durations(states)
    for record in in_order(states):
        if isinstance(record, SentRecord):
            record = durations.of(record)
        events.write(record)
        if isinstance(record, SentRecord):
            sender, receiver = Address(*record.sender), Address(*record.receiver)
            byte_counts.add(sender, receiver, Traffic(record.model, record.gradient, record.basis, record.control))
            if record.message == "Update" and record.about is not None:
                updates.add(tuple(record.about))
            continue
        tally.note(record, byte_counts.spent)
        if isinstance(record, EpochRecord):
            tally.note_epoch(record, byte_counts.spent())
            row = (record.at, record.epoch, record.updates, record.metric, record.loss, record.target_reached)
            epochs.write((*row, byte_counts.total, byte_counts.models_up))
            if crossing is None and target.passes(record.metric):
                crossing = record.at
        elif isinstance(record, LifecycleRecord) and record.what == "finished":
            finished_at = record.at
    digest, order_digest = events.digests()
    events.sync()
    epochs.sync()
    events.close()
    epochs.close()
    if (cloud / "model.safetensors").is_file():
        shutil.copyfile(cloud / "model.safetensors", directory.model)
    run = RunTotals(
        byte_counts,
        crossing,
        0 if tally.last is None else tally.last.epoch,
        len(updates),
        finished_at,
        len(updates),
        len(updates),
        0,
        1,
        (settings.cloud.mixing_weight, settings.gateway.mixing_weight),
        settings.staleness.kind == "constant",
    )
    by_class = {} if tally.last is None else dict(tally.last.details)
    finer = {"by_class": by_class, "by_device": None, "digest": digest, "order_digest": order_digest}
    return {**result_of(run, tally), **finer}
