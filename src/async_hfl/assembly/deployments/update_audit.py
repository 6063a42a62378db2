"""Audit of a finished deployment: the fate of every update, computed from the disks of all nodes alone.

It uses no state of the nodes' own bookkeeping: what arrived is read from the logs, and what became of it from the
journals. If a log was cut at a snapshot, the audit covers what is left of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from async_hfl.assembly.deployments.deployed_nodes import deployed_cloud, deployed_device
from async_hfl.core.identifiers import JobId, UploadId
from async_hfl.core.protocol.messages import Update, Upload
from async_hfl.core.serialization import from_plain
from async_hfl.core.weights import frozen
from async_hfl.deployment.store.node_identity import IDENTITY, NodeIdentity, reliable
from async_hfl.deployment.store.schema import DATABASE, open_for_reading
from async_hfl.deployment.store.stored_node import StoredNode
from async_hfl.journal.events_file import columns
from async_hfl.nodes.cloud.node import CloudNode
from async_hfl.nodes.device import DeviceNode
from async_hfl.nodes.reliability.delivery import Arrived, DeliveryState, Packet, ReliableNode


@dataclass(slots=True)
class Audit:
    acknowledged: set[JobId] = field(default_factory=set)
    """Updates on a gateway's disk before their receipts left (without warm-up, which is not aggregated)."""
    decided: set[JobId] = field(default_factory=set)
    """Updates listed by an upload that the cloud mixed or dropped."""
    lost: set[JobId] = field(default_factory=set)
    """Updates acknowledged by a gateway that the cloud declared lost, neither settled nor reported since."""
    late: set[JobId] = field(default_factory=set)
    """Updates that gateways recorded as late."""
    listed: set[JobId] = field(default_factory=set)
    """Updates that the cloud recorded as lost, and not as found again."""
    found_again: set[JobId] = field(default_factory=set)
    """Updates that the cloud recorded as found again."""
    with_devices: set[JobId] = field(default_factory=set)
    """Updates that devices still have to report."""
    doubled: set[JobId | UploadId] = field(default_factory=set)
    unaccounted: list[str] = field(default_factory=list)
    repeats: int = 0
    """Packets that reached a node more than once."""
    sent_again: int = 0
    """Models that were sent again (only the offer, if the receiver has them)."""


def identity_of(state: Path) -> NodeIdentity:
    with StoredNode(state) as stored:
        return NodeIdentity.stored(stored.get(IDENTITY))


def arrivals(state: Path) -> Iterator[tuple[Arrived, bool]]:
    """Yield the packets that arrived, in order and without arrays, and True if it was for the first time."""
    seen = set()
    with StoredNode(state) as stored:
        for logged in stored.events():
            event = from_plain(stored.decode_without_arrays(logged.body))
            if isinstance(event, Arrived) and isinstance(event.content, Packet):
                packet = event.content
                key = (event.sender, packet.incarnation, packet.number)
                yield event, key not in seen
                seen.add(key)


def records(state: Path, *kinds: str) -> Iterator[tuple[str, dict[str, Any]]]:
    names = columns()
    database = open_for_reading(state / DATABASE)
    try:
        for (line,) in database.execute("SELECT line FROM journal ORDER BY number"):
            kind, order, *learnt = msgspec.json.decode(line)
            if not kinds or kind in kinds:
                fields = dict(zip(names[kind][0], order, strict=True))
                if learnt:
                    fields.update(zip(names[kind][1], learnt[0], strict=True))
                yield kind, fields
    finally:
        database.close()


def reliable_node(state: Path) -> ReliableNode:
    """Return the node of a cloud or a device as stored on its disk."""
    identity = identity_of(state)
    nothing = frozen(np.zeros(int(identity.facts["model_size"]), np.float32))
    node = reliable(
        identity, deployed_cloud(identity, nothing) if identity.role == "cloud" else deployed_device(identity)
    )
    with StoredNode(state) as stored:
        start = stored.snapshots()[-1]
        node.restore(stored.snapshot(start)["node"])
        for logged in stored.events(after=start):
            node.handle(from_plain(stored.decode(logged.body)))
    return node


def delivery_of(state: Path) -> DeliveryState:
    return reliable_node(state).state


def audit(cloud: Path, gateways: Sequence[Path], devices: Iterable[Path], dead: Sequence[Path] = ()) -> Audit:
    """Audit the disks of all nodes. `dead`: disks of gateways that are gone for good."""
    found = Audit()
    uploads: dict[UploadId, Upload] = {}
    for event, first in arrivals(cloud):
        found.repeats += not first
        if isinstance(event.content.message, Upload):  # type: ignore[union-attr]
            uploads[event.content.message.upload] = event.content.message  # type: ignore[union-attr]
    ends: dict[UploadId, str] = {}
    updates_in: Counter[tuple[int, int]] = Counter()
    for kind, fields in records(cloud, "upload", "lost", "found"):
        if kind == "lost":
            found.listed.add(JobId(*fields["job"]))
            continue
        if kind == "found":
            found.listed.remove(JobId(*fields["job"]))
            found.found_again.add(JobId(*fields["job"]))
            continue
        upload = UploadId(*fields["upload"])
        if upload not in uploads:
            continue  # its message was deleted from the log
        if upload in ends:
            found.doubled.add(upload)
        ends[upload] = fields["reason"]
        updates_in[upload[:2]] += fields["updates"]
        for number in uploads[upload].jobs:
            job = JobId(upload.gateway, upload.incarnation, number)
            if job in found.decided:
                found.doubled.add(job)
            found.decided.add(job)
    job_ends: dict[JobId, str] = {}
    for state in (*gateways, *dead):
        for event, first in arrivals(state):
            found.repeats += not first
            message = event.content.message  # type: ignore[union-attr]
            if first and isinstance(message, Update) and not message.warmup:
                found.acknowledged.add(message.job)
        for kind, fields in records(state, "job", "upload", "late"):
            if kind == "late":
                found.late.add(JobId(*fields["job"]))
                continue
            if kind == "upload":
                updates_in[tuple(fields["upload"])[:2]] += fields["updates"]
                continue
            job = JobId(*fields["job"])
            if job in job_ends:
                found.doubled.add(job)
            job_ends[job] = fields["reason"]
    node = reliable_node(cloud).node
    assert isinstance(node, CloudNode)
    gone = {owner for owner, ledger in node.state.ledgers.items() if ledger.lost}
    found.lost = {job for job in found.acknowledged - found.decided - found.late if job[:2] in gone}
    found.doubled |= found.late & found.decided
    for state in devices:
        about = [str(fields["about"]) for _, fields in records(state, "sent") if fields["message"] == "Update"]
        found.sent_again += len(about) - len(set(about))
        device = reliable_node(state).node
        assert isinstance(device, DeviceNode)
        found.with_devices |= set(device.state.unsettled)
    # At gateways that are still in the run, every update has ended, and every mixed update is in an upload that ended.
    alive = [job for job in found.acknowledged if job[:2] not in gone]
    found.unaccounted += [f"{job} was acknowledged and has no end" for job in alive if job not in job_ends]
    unnamed = set(alive) - found.decided - found.late
    found.unaccounted += [f"{job} was acknowledged, is in no upload, and not late" for job in sorted(unnamed)]
    mixed = Counter(job[:2] for job, reason in job_ends.items() if reason == "aggregated" and job[:2] not in gone)
    for owner, count in mixed.items():
        if updates_in[owner] != count:
            found.unaccounted.append(f"gateway {owner} mixed {count} updates, its uploads hold {updates_in[owner]}")
    return found
