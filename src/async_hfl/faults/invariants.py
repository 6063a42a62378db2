"""What must hold after every event, whatever the network and the machines do.

Kept apart from the nodes and written from the outside: it counts jobs, uploads and rights by itself from the records
and messages it sees, and compares. A violation names the promise that was broken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from async_hfl.core.errors import InvariantViolation
from async_hfl.core.identifiers import JobId, UploadId
from async_hfl.core.maths.staleness import StalenessDiscount
from async_hfl.core.protocol.effects import Effect, Write
from async_hfl.core.protocol.records import FoundRecord, JobRecord, LateRecord, LostRecord, Record, UploadRecord
from async_hfl.faults.loss_audit import LossAudit
from async_hfl.faults.model_oracle import ModelOracle
from async_hfl.nodes.cloud.aggregation.average import AverageUploads
from async_hfl.nodes.cloud.association_step import ASSOCIATION_TIMER
from async_hfl.nodes.cloud.node import CloudNode
from async_hfl.nodes.device import DeviceNode
from async_hfl.nodes.gateway.aggregation.mix import MixOnArrival
from async_hfl.nodes.gateway.aggregation.periods import Periods
from async_hfl.nodes.gateway.aggregation.relay import Relay
from async_hfl.nodes.gateway.aggregation.rounds import Rounds
from async_hfl.nodes.gateway.node import GatewayNode
from async_hfl.nodes.gateway.sessions import RECONNECT_TIMER
from async_hfl.nodes.gateway.state import AGGREGATION_TIMER, NEVER, InFlightJob
from async_hfl.nodes.reliability.delivery import RESEND, Packet, ReliableNode, Transmit

_SLACK = 1e-6


def _demand(holds: bool, what: str) -> None:
    if not holds:
        raise InvariantViolation(what)


class Witness:
    """Sees every effect that leaves and every record written, and remembers what the promises need."""

    def __init__(self) -> None:
        self.model_oracle = ModelOracle()
        self.sent = self.model_oracle.trains
        self.job_ends: dict[JobId, JobRecord] = {}
        self.upload_ends: dict[UploadId, UploadRecord] = {}
        self.aggregated: dict[tuple[int, int], int] = {}
        """Jobs mixed or relayed by a gateway's incarnation."""
        self.epochs: dict[tuple[int, int], set[int]] = {}
        """Gateway epochs of those."""
        self.ended: dict[tuple[int, int], int] = {}
        self.losses = LossAudit()
        self.gone: set[tuple[int, int]] = set()
        """Incarnations of gateways whose disk was lost: of what they had open nobody can write the end."""
        self.mixed_uploads = 0
        self.mixed_updates = 0
        self.mixed_bases: dict[int, dict[int, UploadRecord]] = {}
        """By the epoch that they began from, and by gateway."""

    def lost_disk(self, gateway: int, incarnation: int) -> None:
        """What it handled last may not have been on its disk: an incarnation that it had just ended is gone with it."""
        self.gone.add((gateway, incarnation))
        self.gone.update(job[:2] for job in self.sent if job.gateway == gateway and job not in self.job_ends)

    def effect(self, effect: Effect | Transmit) -> None:
        if isinstance(effect, Transmit):
            self.transmitted(effect)
        elif isinstance(effect, Write):
            self.record(effect.record)

    def transmitted(self, transmit: Transmit) -> None:
        if isinstance(transmit.content, Packet):
            self.model_oracle.sent(transmit.content.message)

    def record(self, record: Record) -> None:
        if isinstance(record, JobRecord):
            self._job_ended(record)
        elif isinstance(record, UploadRecord):
            self._upload_ended(record)
        elif isinstance(record, LostRecord):
            self.losses.list_lost(record)
        elif isinstance(record, FoundRecord):
            self.losses.list_found(record)
        elif isinstance(record, LateRecord):
            self.losses.list_late(record)

    def _job_ended(self, record: JobRecord) -> None:
        job = record.job
        _demand(
            job not in self.job_ends,
            f"job {job} ended twice: {self.job_ends.get(job) and self.job_ends[job].reason}, then {record.reason}",
        )
        self.job_ends[job] = record
        owner = (job.gateway, job.incarnation)
        self.ended[owner] = self.ended.get(owner, 0) + 1
        if record.reason == "aggregated":
            self.aggregated[owner] = self.aggregated.get(owner, 0) + 1
            self.epochs.setdefault(owner, set()).add(record.gateway_epoch)
            self.model_oracle.aggregated.setdefault(job.gateway, []).append(record)

    def _upload_ended(self, record: UploadRecord) -> None:
        before = self.upload_ends.get(record.upload)
        _demand(
            before is None,
            f"upload {record.upload} ended twice: {before and before.reason}, then {record.reason}",
        )
        self.upload_ends[record.upload] = record
        if record.reason == "mixed":
            self.mixed_uploads += 1
            self.mixed_updates += record.updates
            self.mixed_bases.setdefault(record.base_epoch, {})[record.upload.gateway] = record
            self.model_oracle.mixed.append(record)


class Invariants:
    def __init__(self, cloud: int, gateways: Sequence[int], devices: Sequence[int]) -> None:
        """Indices of the nodes in the list that `check` is given."""
        self.cloud = cloud
        self.gateways = gateways
        self.devices = devices
        self.witness = Witness()
        self._averaged = 0

    def check(self, nodes: Sequence[ReliableNode | None], timers: Sequence[Mapping[str, float]], changed: int) -> None:
        """After node `changed` handled an event (None: that node is down)."""
        node = nodes[changed]
        if node is None:
            return
        inner = node.node
        if isinstance(inner, GatewayNode):
            self._gateway(inner, timers[changed])
            self._rights(nodes)
        elif isinstance(inner, CloudNode):
            self._cloud(inner, timers[changed])
            self._rights(nodes)
        else:
            assert isinstance(inner, DeviceNode)
        self._timer(node, timers[changed])

    def _timer(self, node: ReliableNode, timers: Mapping[str, float]) -> None:
        # A shell that watches its transfers keeps those under way in mind: they are never due.
        due = min((parcel.resend_at for parcel in node.state.unacknowledged.values()), default=NEVER)
        _demand(timers.get(RESEND, NEVER) <= due, "messages are unacknowledged and no resend timer runs")

    def _gateway(self, gateway: GatewayNode, timers: Mapping[str, float]) -> None:
        state, config, device_table = gateway.state, gateway.config, gateway.state.device_table
        name = f"gateway {config.number}"
        if state.phase == "over":
            return
        active = [f for f in state.in_flight_jobs.values() if not f.overdue]
        load = sum(f.rate for f in active)
        _demand(len(active) == state.active, f"{name}: {len(active)} jobs in flight, counted {state.active}")
        _demand(abs(load - state.load) <= _SLACK * max(1.0, load), f"{name}: load {state.load}, really {load}")
        paying = [f for f in active if f.rate > 0]
        _demand(
            load <= state.bandwidth * (1 + _SLACK) or len(paying) == 1,
            f"{name}: load {load} beyond its bandwidth {state.bandwidth} with {len(paying)} in flight",
        )
        held = state.held_updates()
        owner = (config.number, state.incarnation)
        open_jobs = state.next_job - 1 - self.witness.ended.get(owner, 0)
        _demand(
            open_jobs == len(state.in_flight_jobs) + len(held),
            f"{name}: {open_jobs} jobs have no end, {len(state.in_flight_jobs)} are in flight and {len(held)} held",
        )
        if isinstance(gateway.aggregation, MixOnArrival):
            mixed = self.witness.aggregated.get(owner, 0)
            _demand(state.gateway_epoch == mixed, f"{name}: gateway epoch {state.gateway_epoch} after {mixed} updates")
        elif isinstance(gateway.aggregation, Rounds):
            rounds = len(self.witness.epochs.get(owner, ()))
            _demand(state.gateway_epoch == rounds, f"{name}: gateway epoch {state.gateway_epoch} after {rounds} rounds")
        self._shares(gateway)
        self.witness.model_oracle.gateway(gateway)
        moved = (
            (device_table.lease > 0)
            & ~device_table.associated
            & (device_table.job < 0)
            & (device_table.lease_version <= state.version)
        )
        _demand(
            not moved.any(),
            f"{name}: keeps the right to device {device_table.devices[moved][:1]}, which is not its own",
        )
        self._gateway_timers(gateway, active, timers)

    def _shares(self, gateway: GatewayNode) -> None:
        """In a period or round each update has the share of its samples, discounted by its age in periods."""
        model_oracle = self.witness.model_oracle
        if not isinstance(gateway.aggregation, (Periods, Rounds)):
            return
        together: dict[int, list[JobRecord]] = {}
        for record in model_oracle.aggregated.get(gateway.config.number, ()):
            together.setdefault(record.gateway_epoch, []).append(record)
        for records in together.values():
            samples = sum(model_oracle.updates[record.job].samples for record in records)
            for record in records:
                share = model_oracle.updates[record.job].samples / samples
                age = record.staleness if isinstance(gateway.aggregation, Periods) else 0
                expected = share * gateway.config.staleness(age)
                _demand(abs(record.weight - expected) < _SLACK, f"{record}: its share is {expected}")

    def _gateway_timers(self, gateway: GatewayNode, active: list[InFlightJob], timers: Mapping[str, float]) -> None:
        state, name = gateway.state, f"gateway {gateway.config.number}"
        due = min((f.deadline for f in active), default=NEVER)
        _demand(timers.get("patience", NEVER) <= due, f"{name}: a silent device would never be given up")
        _demand(
            timers.get("probe", NEVER) <= state.device_table.probe_at.min(initial=NEVER),
            f"{name}: a device that was given up would never be probed",
        )
        if state.outstanding:
            resend = min(u.resend_at for u in state.outstanding.values())
            _demand(timers.get("reply", NEVER) <= resend, f"{name}: an upload would never be resent")
        due = gateway.aggregation.due
        _demand(timers.get(AGGREGATION_TIMER, NEVER) <= due, f"{name}: its period or round would never end")
        if state.idle_upload_at < NEVER:
            _demand("idle" in timers, f"{name}: an early upload would never happen")
        _demand(
            state.phase != "open"
            or state.active > 0
            or bool(state.outstanding)  # a relay selects when the answer comes
            or (
                due < NEVER and not gateway.aggregation.may_select(gateway.gateway)
            )  # ... and periods when the next begins
            or state.cut_off  # by the cloud: it triggers nothing new
            or not state.device_table.candidate.any(),
            f"{name}: nothing is in flight, somebody could be triggered, and nobody is",
        )
        _demand(not state.reconnecting or RECONNECT_TIMER in timers, f"{name}: waits for devices for ever")
        waiting = (
            state.phase == "open"
            and not state.cut_off
            and state.active == 0
            and gateway.aggregation.may_upload_early(gateway.gateway)
        )
        if waiting and not state.device_table.candidate.any():
            _demand("idle" in timers, f"{name}: has updates, nobody to trigger, and waits for ever")

    def _cloud(self, cloud: CloudNode, timers: Mapping[str, float]) -> None:
        state, witness = cloud.state, self.witness
        if state.phase == "running":
            soon = timers.get(ASSOCIATION_TIMER, NEVER) <= state.solve_at
            _demand(soon, "devices without a working gateway would never get another")
        if isinstance(cloud.aggregation, AverageUploads):
            self._averages(cloud, cloud.aggregation)
        else:
            _demand(state.epoch == witness.mixed_uploads, f"cloud epoch {state.epoch} after other uploads mixed")
        witness.model_oracle.cloud(cloud)
        _demand(state.updates == self.witness.mixed_updates, f"cloud counts {state.updates} updates")
        directory, links = state.association, cloud.links
        for device in np.flatnonzero(directory.gateway_of >= 0):
            gateway = int(directory.gateway_of[device])
            _demand(links.find(int(device), gateway) >= 0, f"device {device} associated beyond its links")

    def _averages(self, cloud: CloudNode, aggregation: AverageUploads) -> None:
        """An epoch is an average over everybody who had to report; shares are by samples; nobody waits in vain."""
        state, witness = cloud.state, self.witness
        _demand(state.epoch == len(witness.mixed_bases), f"cloud epoch {state.epoch} after other averages")
        awaited = self._awaited(cloud)
        waiting = aggregation.state.held
        if state.phase == "running" and not cloud.cloud.is_last_epoch():
            _demand(not waiting or not awaited <= set(waiting), "all gateways have reported, and the cloud waits")
        if self._averaged == state.epoch:
            return
        self._averaged = state.epoch
        group = witness.mixed_bases[state.epoch - 1]
        _demand(awaited <= set(group), f"epoch {state.epoch} is an average without gateways {awaited - set(group)}")
        _demand(all(state.members[j].live for j in group), f"epoch {state.epoch} is an average with a lost gateway")
        samples = {gateway: witness.model_oracle.uploads[record.upload].samples for gateway, record in group.items()}
        for gateway, record in group.items():
            share = samples[gateway] / sum(samples.values()) if sum(samples.values()) else 1 / len(group)
            _demand(abs(record.weight - share) < _SLACK, f"{record}: its share is {share}")

    @staticmethod
    def _awaited(cloud: CloudNode) -> set[int]:
        """Live gateways at work with a device of theirs within reach."""
        directory, links = cloud.state.association, cloud.links
        found = set()
        for link, usable in enumerate(directory.usable):
            gateway = int(links.link_gateway[link])
            member = cloud.state.members[gateway]
            if usable and member.live and member.begun and directory.gateway_of[links.link_device[link]] == gateway:
                found.add(gateway)
        return found

    def _rights(self, nodes: Sequence[ReliableNode | None]) -> None:
        """Nobody but the holder has the current right to a device."""
        cloud = nodes[self.cloud]
        if cloud is None:
            return
        assert isinstance(cloud.node, CloudNode)
        directory = cloud.node.state.association
        for index in self.gateways:
            node = nodes[index]
            if node is None:
                continue
            assert isinstance(node.node, GatewayNode)
            device_table = node.node.state.device_table
            for slot in np.flatnonzero(device_table.lease > 0):
                device = int(device_table.devices[slot])
                if directory.lease[device] == device_table.lease[slot]:
                    _demand(
                        directory.holder[device] == node.node.config.number,
                        f"gateway {node.node.config.number} has the right to device {device}, "
                        f"the cloud gave it to {directory.holder[device]}",
                    )

    def record(self, record: Record, node: GatewayNode | CloudNode | DeviceNode) -> None:
        """Check one record against what was seen being sent; `node` is who wrote it, after the event."""
        if isinstance(record, JobRecord) and record.reason == "aggregated" and isinstance(node, GatewayNode):
            train = self.witness.sent.get(record.job)
            _demand(train is not None, f"job {record.job} was aggregated and never sent")
            assert train is not None
            if isinstance(node.aggregation, MixOnArrival):
                staleness = record.gateway_epoch - train.gateway_epoch
                if node.config.staleness_clock == "both":
                    staleness += node.state.base_epoch - train.base_epoch
                self._weighed(record, staleness, node.config.mixing_weight, node.config.staleness)
            elif isinstance(node.aggregation, (Periods, Rounds)):
                staleness = record.gateway_epoch - train.gateway_epoch
                least = 0 if isinstance(node.aggregation, Periods) else 1
                _demand(staleness >= least, f"{record}: staleness {staleness} before its time")
                _demand(record.staleness == staleness, f"{record}: it is {staleness} periods or rounds old")
                _demand(staleness == 1 or isinstance(node.aggregation, Periods), f"{record}: its round was closed")
        elif isinstance(record, UploadRecord) and record.reason == "mixed" and isinstance(node, CloudNode):
            base = self.witness.model_oracle.uploads[record.upload].base_epoch
            _demand(record.base_epoch == base, f"upload {record.upload} changed its base")
            if isinstance(node.aggregation, AverageUploads):
                _demand(record.staleness == 1, f"{record}: averaged though it began from an older model")
                return
            # An epoch is an upload mixed; the witness has counted this one already.
            staleness = self.witness.mixed_uploads - record.base_epoch
            self._weighed(record, staleness, node.config.mixing_weight, node.config.staleness)

    @staticmethod
    def _weighed(record: JobRecord | UploadRecord, staleness: int, weight: float, discount: StalenessDiscount) -> None:
        _demand(staleness >= 1, f"{record}: staleness {staleness} before its time")
        _demand(record.staleness == staleness, f"{record}: it was overtaken {staleness} times")
        _demand(record.weight == weight * discount(staleness), f"{record}: mixed with the wrong weight")

    def at_end(self, nodes: Sequence[ReliableNode]) -> int:
        """When everybody has stopped: every job sent has an end, every update mixed is in one upload that has one, and
        what is lost is known. Returns how many acknowledged updates are lost."""
        witness = self.witness
        open_jobs = [job for job in witness.sent if job not in witness.job_ends and job[:2] not in witness.gone]
        _demand(not open_jobs, f"jobs without an end: {[str(job) for job in open_jobs[:5]]}")
        first = nodes[self.gateways[0]].node
        assert isinstance(first, GatewayNode)
        if not isinstance(first.aggregation, Relay):
            self._all_uploaded()
        cloud = nodes[self.cloud].node
        assert isinstance(cloud, CloudNode)
        devices = {place: nodes[index].node for place, index in enumerate(self.devices)}
        return witness.losses.at_end(witness.model_oracle.uploads, witness.upload_ends, cloud, devices, witness.gone)  # type: ignore[arg-type]

    def _all_uploaded(self) -> None:
        uploaded: dict[tuple[int, int], int] = {}
        for upload, record in self.witness.upload_ends.items():
            owner = (upload.gateway, upload.incarnation)
            uploaded[owner] = uploaded.get(owner, 0) + record.updates
        for owner, count in self.witness.aggregated.items():
            found = uploaded.get(owner, 0)
            known = found == count or (found < count and owner in self.witness.gone)
            _demand(known, f"gateway {owner[0]} mixed {count} updates, its uploads account for {found}")
