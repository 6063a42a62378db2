"""Run directories of deployments: the journals of all nodes, merged, so that reports read them like a simulated run."""

from __future__ import annotations

import shutil
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from heapq import merge
from pathlib import Path
from typing import Any

from async_hfl.assembly.build.evaluation_clock import deployed_clock
from async_hfl.assembly.deployments.deployed_nodes import TaskFacts, settings_of, wire_of
from async_hfl.assembly.runs.privacy_spent import privacy_spent
from async_hfl.assembly.settings.loading import as_table
from async_hfl.assembly.settings.schema import Settings
from async_hfl.core.errors import UserError
from async_hfl.core.identifiers import Address
from async_hfl.core.maths.milestones import Reached
from async_hfl.core.protocol.records import RECORD_TYPES, EpochRecord, JobRecord, LifecycleRecord, Record, SentRecord
from async_hfl.core.protocol.traffic import Traffic, subject
from async_hfl.core.serialization import from_plain
from async_hfl.deployment.operations.node_journal import Line, has_log, is_node, read_fact, read_lines
from async_hfl.deployment.store.node_identity import IDENTITY, NodeIdentity
from async_hfl.deployment.store.stored_node import StoredNode
from async_hfl.journal.events_file import EventsWriter, columns
from async_hfl.journal.run_directory import EpochsWriter, RunDirectory
from async_hfl.nodes.reliability.delivery import Arrived, Packet
from async_hfl.simulation.accounting.byte_counts import ByteCounts
from async_hfl.simulation.accounting.result import RunTotals, Tally, result_of

_PRESET = "tight"
"""Nodes know their settings and not the preset that these came from; pages do not show it."""
_TYPES: dict[str, type] = {cls.KIND: cls for cls in RECORD_TYPES}  # type: ignore[attr-defined]


def in_order(states: Sequence[Path]) -> Iterator[Record]:
    """Yield the records of all nodes by time; those of one node stay in the order in which it wrote them."""
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
    """Transfer times of messages, from the receivers' logs: a sender's record is written before it is known."""

    def __init__(self, states: Sequence[Path]) -> None:
        self._found: dict[tuple[Address, Address, str, Any], deque[float]] = defaultdict(deque)
        for state in states:
            if not has_log(state):
                continue  # fetched over the network: records only
            identity = NodeIdentity.stored(read_fact(state, IDENTITY))
            receiver = Address(("cloud", "gateway", "device").index(identity.role), identity.number)
            with StoredNode(state) as stored:
                for logged in stored.events():
                    event = from_plain(stored.decode_without_arrays(logged.body))
                    if isinstance(event, Arrived) and isinstance(event.content, Packet):
                        message = event.content.message
                        key = (event.sender, receiver, type(message).__name__, subject(message))
                        self._found[key].append(event.transfer_s)

    def added(self, sent: SentRecord) -> SentRecord:
        """Return the record with its transfer time, if known. Messages about the same job are matched in order."""
        subject = None if sent.about is None else tuple(sent.about)
        known = self._found.get((Address(*sent.sender), Address(*sent.receiver), sent.message, subject))
        return replace(sent, transfer_s=known.popleft()) if known else sent


def collect(directory: RunDirectory, states: Sequence[Path], cloud: Path, settings: Settings) -> dict[str, Any]:
    """Write events.jsonl, epochs.csv and the model, and return the result. `states` includes that of the cloud."""
    tally, finished_at = Tally(), None
    facts = TaskFacts.of(NodeIdentity.stored(read_fact(cloud, IDENTITY)))
    target, codec = replace(facts.target, window=deployed_clock(settings).window_s), wire_of(settings, facts).codec
    byte_counts = ByteCounts(settings.network.gateways, settings.task.devices)
    trained: set[tuple[int, ...]] = set()
    without_end: dict[tuple[int, ...], int] = {}
    """Device of each update whose end is not on record: its gateway lost its disk, or was not collected."""
    for written in (directory.events, directory.epochs):
        written.unlink(missing_ok=True)
    events, epochs = EventsWriter(directory.events), EpochsWriter(directory.epochs)
    durations = Durations(states)
    ended: set[tuple[int, ...]] = set()
    for record in in_order(states):
        if isinstance(record, SentRecord):
            record = durations.added(record)
        events.write(record)
        if isinstance(record, SentRecord):
            sender, receiver = Address(*record.sender), Address(*record.receiver)
            byte_counts.add(sender, receiver, Traffic(record.model, record.gradient, record.basis, record.control))
            if record.message == "Update" and record.about is not None:
                trained.add(tuple(record.about))
                without_end[tuple(record.about)] = sender.number
            continue
        tally.note(record, byte_counts.spent)
        if isinstance(record, JobRecord):
            ended.add(tuple(record.job))
        elif isinstance(record, EpochRecord):
            tally.note_epoch(record)
            row = (record.at, record.epoch, tally.device_updates, record.metric, record.loss, record.target_reached)
            epochs.write((*row, byte_counts.total, byte_counts.models_up))
        elif isinstance(record, LifecycleRecord) and record.what == "finished":
            finished_at = record.at
    digest, order_digest = events.digests()
    events.sync()
    epochs.sync()
    events.close()
    epochs.close()
    if (cloud / "model.safetensors").is_file():
        shutil.copyfile(cloud / "model.safetensors", directory.model)
    epoch, by_class = (0, {}) if tally.last is None else (tally.last.epoch, dict(tally.last.details))
    jobs = (len(trained), len(trained), 0, 1)
    end = None if finished_at is None else Reached(finished_at, *byte_counts.spent(), tally.device_updates)
    goal = (directory.track(end), target, settings.task.ladder)
    run = RunTotals(byte_counts, *goal, epoch, finished_at, *jobs, codec)
    details = {"by_class": by_class, "by_device": None, "digest": digest, "order_digest": order_digest}
    result = {**result_of(run, tally), **details, "journal": directory.journal_records(digest)}
    participations = Counter(tally.participations)
    participations.update(device for job, device in without_end.items() if job not in ended)
    return result | privacy_spent(settings, participations)


def names_of(identities: Iterable[NodeIdentity]) -> dict[str, list[str]]:
    """Return the names of gateways and devices by number, for a manifest; empty for a node whose journal is missing."""
    found: dict[str, dict[int, str]] = {"gateway": {}, "device": {}, "cloud": {}}
    for one in identities:
        found[one.role][one.number] = one.name
    return {
        f"{role}_names": [found[role].get(number, "") for number in range(max(found[role], default=-1) + 1)]
        for role in ("gateway", "device")
    }


def states_under(folder: Path) -> list[Path]:
    """Return the state directories at a path: the folder itself, or those in it or in its `nodes` folder."""
    if is_node(folder):
        return [folder]
    found = sorted(state for place in (folder, folder / "nodes") if place.is_dir() for state in place.iterdir())
    return [state for state in found if is_node(state)]


def collected_run(out: Path, states: Sequence[Path], versions: dict[str, str]) -> RunDirectory:
    """Merge the journals of a deployment into a new run directory (`async-hfl collect`).

    There is a summary only if the cloud's journal contains the end of the run."""
    identities = {state: NodeIdentity.stored(read_fact(state, IDENTITY)) for state in states}
    clouds = [state for state, identity in identities.items() if identity.role == "cloud"]
    if len(clouds) != 1:
        raise UserError(
            f"{len(clouds)} of the {len(states)} journals belong to a cloud; give the directory of exactly one"
        )
    (cloud,) = clouds
    strangers = [state for state, identity in identities.items() if identity.run != identities[cloud].run]
    if strangers:
        raise UserError(f"{strangers[0]}: does not belong to the run of {cloud}")
    settings, facts = settings_of(identities[cloud]), TaskFacts.of(identities[cloud])
    named = {"method": facts.method, "task": facts.task, "network": settings.network.name, "seed": facts.seed}
    manifest = {
        **named,
        "preset": _PRESET,
        "metric": {"name": facts.metric, "direction": facts.direction},
        "evaluation": deployed_clock(settings).manifest(),
        "settings": as_table(settings),
        "devices": settings.task.devices,
        "gateways": settings.network.gateways,
        "start_from": None,
        "user_files": {},
        "versions": versions,
        "nodes": sorted(identity.name for identity in identities.values()),
        **names_of(identities.values()),
    }
    directory = RunDirectory.create(out, manifest)
    result = collect(directory, list(states), cloud, settings)
    if result["virtual_s"] is not None:
        directory.write_summary({"run": str(out), "preset": _PRESET, **named, **result, "wall_s": result["virtual_s"]})
    return directory
