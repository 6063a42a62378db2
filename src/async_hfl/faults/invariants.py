"""Invariants that hold after every event of a fault simulation, under every aggregation rule.

Jobs and uploads end once, nothing is counted twice, a device has one lease holder, models are finite, and there is a
timer for everything that a node waits for. Written from outside: jobs, uploads and leases are counted here from the
history of messages and records, and compared with the state of the nodes. The checkers of the aggregation rules are
called from here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from async_hfl.core.compression.model_codec import PLAIN_MODELS, ModelCodec
from async_hfl.core.protocol.records import EpochRecord, JobRecord, Record, UploadRecord
from async_hfl.core.weights import Weights, is_finite
from async_hfl.faults.checkers.checker import SLACK, CloudChecker, GatewayChecker
from async_hfl.faults.encoding_audit import EncodingAudit
from async_hfl.faults.history import History, Owner, require
from async_hfl.faults.loss_audit import LossAudit
from async_hfl.nodes.cloud.association_step import ASSOCIATION_TIMER
from async_hfl.nodes.cloud.evaluations import GRID_TIMER
from async_hfl.nodes.cloud.node import CloudNode
from async_hfl.nodes.gateway.node import GatewayNode
from async_hfl.nodes.gateway.sessions import RECONNECT_TIMER
from async_hfl.nodes.gateway.state import AGGREGATION_TIMER, NEVER, InFlightJob
from async_hfl.nodes.reliability.delivery import RESEND, Packet, ReliableNode, Transmit


class Invariants:
    def __init__(
        self,
        cloud: int,
        gateways: Sequence[int],
        devices: Sequence[int],
        gateway_checker: type[GatewayChecker] = GatewayChecker,
        cloud_checker: type[CloudChecker] = CloudChecker,
        codec: ModelCodec = PLAIN_MODELS,
    ) -> None:
        """`cloud`, `gateways`, `devices`: indices in the list of nodes that `check` is given."""
        self.cloud = cloud
        self.gateways = gateways
        self.devices = devices
        self.history = History(codec)
        self.losses = LossAudit()
        self.encodings = EncodingAudit(self.history)
        self._gateway_checkers = [gateway_checker(self.history) for _ in gateways]
        self._cloud_checker = cloud_checker(self.history)
        self._evaluated = -1
        """Epoch of the newest model that was evaluated."""
        self._models: dict[str, Weights] = {}
        """The model of each node when it was last checked."""

    def sent(self, transmit: Transmit) -> None:
        if isinstance(transmit.content, Packet):
            self.history.sent(transmit.content.message)
            self.encodings.sent(transmit.content.message)

    def written(self, record: Record, node: object) -> None:
        """Check a record; `node` has written it, and has handled the event."""
        self.history.written(record)
        self.losses.written(record)
        self.encodings.written(record)
        if isinstance(record, JobRecord) and record.reason == "aggregated" and isinstance(node, GatewayNode):
            self._gateway_checkers[node.config.number].aggregated(node, record)
        elif isinstance(record, UploadRecord) and record.reason == "mixed" and isinstance(node, CloudNode):
            self._cloud_checker.mixed(node, record)
        elif isinstance(record, EpochRecord):
            require(record.epoch > self._evaluated, f"epoch {record.epoch} is evaluated after epoch {self._evaluated}")
            self._evaluated = record.epoch

    def check(self, nodes: Sequence[ReliableNode | None], timers: Sequence[Mapping[str, float]], changed: int) -> None:
        """Check the nodes after node `changed` has handled an event. A node that is down is None."""
        node = nodes[changed]
        if node is None:
            return
        inner = node.node
        if isinstance(inner, GatewayNode):
            self._check_gateway(inner, timers[changed])
            self.encodings.check_gateway(inner)
            self._check_leases(nodes)
        elif isinstance(inner, CloudNode):
            self._check_cloud(inner, timers[changed])
            self.encodings.check_cloud(inner)
            self._check_leases(nodes)
        else:
            self.encodings.check_device(self.devices.index(changed), node)
        # A packet whose transfer is being watched by the shell is never due.
        due = min((packet.resend_at for packet in node.state.unacknowledged.values()), default=NEVER)
        require(timers[changed].get(RESEND, NEVER) <= due, "messages are unacknowledged and no resend timer runs")

    def at_end(self, nodes: Sequence[ReliableNode]) -> int:
        """Check that every job has an end, that every aggregated update is in an upload that has one, and that all lost
        updates are listed. Return the number of lost updates. Called when all nodes have stopped."""
        history = self.history
        open_jobs = [job for job in history.trains if job not in history.job_ends and job[:2] not in history.lost_disks]
        require(not open_jobs, f"jobs without an end: {[str(job) for job in open_jobs[:5]]}")
        self._check_all_uploaded()
        cloud = nodes[self.cloud].node
        assert isinstance(cloud, CloudNode)
        require(self._evaluated == cloud.state.epoch, f"the last model, of epoch {cloud.state.epoch}, is not evaluated")
        devices = {place: nodes[index].node for place, index in enumerate(self.devices)}
        return self.losses.at_end(history.uploads, history.upload_ends, cloud, devices, history.lost_disks)  # type: ignore[arg-type]

    # Gateways ----------------------------------------------------------------------------------------------------

    def _check_gateway(self, gateway: GatewayNode, timers: Mapping[str, float]) -> None:
        state, config, device_table = gateway.state, gateway.config, gateway.state.device_table
        name = f"gateway {config.number}"
        if state.phase == "over":
            return
        active = [job for job in state.in_flight_jobs.values() if not job.overdue]
        load = sum(job.rate for job in active if not job.freed)
        require(len(active) == state.active, f"{name}: {len(active)} jobs are active, it counts {state.active}")
        require(abs(load - state.load) <= SLACK * max(1.0, load), f"{name}: its load is {load}, it counts {state.load}")
        paying = [job for job in active if job.rate > 0 and not job.freed]
        require(
            load <= state.bandwidth * (1 + SLACK) or len(paying) == 1,
            f"{name}: load {load} beyond its bandwidth {state.bandwidth} with {len(paying)} in flight",
        )
        held = state.held_updates()
        open_jobs = state.next_job - 1 - self.history.ended.get((config.number, state.incarnation), 0)
        require(
            open_jobs == len(state.in_flight_jobs) + len(held),
            f"{name}: {open_jobs} jobs have no end, {len(state.in_flight_jobs)} are in flight and {len(held)} held",
        )
        self._check_model(name, state.weights)
        self._gateway_checkers[config.number].check(gateway, self.history.take_aggregated(config.number))
        kept = (
            (device_table.lease > 0)
            & ~device_table.associated
            & (device_table.job < 0)
            & (device_table.lease_version <= state.version)
        )
        require(
            not kept.any(),
            f"{name}: keeps the lease of device {device_table.devices[kept][:1]}, which is not associated with it",
        )
        self._check_timers(gateway, active, timers)

    @staticmethod
    def _check_timers(gateway: GatewayNode, active: list[InFlightJob], timers: Mapping[str, float]) -> None:
        """Check that the gateway has a timer for everything that it waits for."""
        state, rule, name = gateway.state, gateway.aggregation, f"gateway {gateway.config.number}"
        due = min((job.deadline if job.freed else min(job.free_at, job.deadline) for job in active), default=NEVER)
        require(timers.get("patience", NEVER) <= due, f"{name}: a silent device would never time out")
        require(
            timers.get("probe", NEVER) <= state.device_table.probe_at.min(initial=NEVER),
            f"{name}: a device that timed out would never be probed",
        )
        if state.outstanding:
            resend = min(upload.resend_at for upload in state.outstanding.values())
            require(timers.get("reply", NEVER) <= resend, f"{name}: an upload would never be resent")
        require(timers.get(AGGREGATION_TIMER, NEVER) <= rule.due, f"{name}: the timer of its rule does not run")
        if state.idle_upload_at < NEVER:
            require("idle" in timers, f"{name}: an early upload would never happen")
        candidates = bool(state.device_table.candidate.any())
        idle = state.phase == "open" and not state.cut_off and state.active == 0
        # A rule may wait for its timer, or for the answer to a relayed update, before it selects again.
        waits = state.outstanding or rule.due < NEVER
        require(
            not (idle and candidates) or bool(waits),
            f"{name}: nothing is in flight, devices could be triggered, and none is",
        )
        require(not state.reconnecting or RECONNECT_TIMER in timers, f"{name}: waits for devices without a timeout")
        if idle and not candidates and rule.may_upload_early(gateway.gateway):
            require("idle" in timers, f"{name}: has updates and no device to trigger, and waits without a timeout")

    def _check_all_uploaded(self) -> None:
        """Check that uploads account for every aggregated update, once."""
        uploaded: dict[Owner, int] = {}
        for upload, record in self.history.upload_ends.items():
            owner = (upload.gateway, upload.incarnation)
            uploaded[owner] = uploaded.get(owner, 0) + record.updates
        relayed: dict[Owner, int] = {}
        if self._gateway_checkers[0].may_relay:
            # A relayed update is in an upload whatever the end of its job, which is unknown after the loss of a disk.
            for job in self.history.updates:
                end = self.history.job_ends.get(job)
                if end is None or end.reason in ("stale", "run_ended", "gateway_lost"):
                    relayed[job[:2]] = relayed.get(job[:2], 0) + 1
        for owner, aggregated in self.history.aggregated.items():
            found, most = uploaded.get(owner, 0), aggregated + relayed.get(owner, 0)
            require(
                found <= most and (aggregated <= found or owner in self.history.lost_disks),
                f"gateway {owner[0]} aggregated {aggregated} updates, its uploads account for {found}",
            )

    # The cloud ---------------------------------------------------------------------------------------------------

    def _check_cloud(self, cloud: CloudNode, timers: Mapping[str, float]) -> None:
        state, links = cloud.state, cloud.links
        if state.phase == "running":
            in_time = timers.get(ASSOCIATION_TIMER, NEVER) <= state.solve_at
            require(in_time, "devices without a working gateway would never be associated again")
            if cloud.config.evaluation_grid > 0.0 and state.epoch > max(self._evaluated, 0):
                in_time = bool(state.awaiting) or GRID_TIMER in timers
                require(in_time, f"the model of epoch {state.epoch} would never be evaluated")
        self._check_model("the cloud", state.weights)
        self._cloud_checker.check(cloud, self.history.take_mixed())
        mixed = self.history.mixed_updates
        require(state.updates == mixed, f"the cloud counts {state.updates} updates, its uploads contain {mixed}")
        for device in np.flatnonzero(state.association.gateway_of >= 0):
            gateway = int(state.association.gateway_of[device])
            require(links.find(int(device), gateway) >= 0, f"device {device} has no link to its gateway {gateway}")

    def _check_leases(self, nodes: Sequence[ReliableNode | None]) -> None:
        """Check that no gateway has the current lease of a device that the cloud has granted to another."""
        cloud = nodes[self.cloud]
        if cloud is None:
            return
        assert isinstance(cloud.node, CloudNode)
        association = cloud.node.state.association
        for index in self.gateways:
            node = nodes[index]
            if node is None:
                continue
            assert isinstance(node.node, GatewayNode)
            number, device_table = node.node.config.number, node.node.state.device_table
            for slot in np.flatnonzero(device_table.lease > 0):
                device = int(device_table.devices[slot])
                holder = association.holder[device]
                if association.lease[device] == device_table.lease[slot]:
                    violation = f"gateway {number} has the lease of device {device}, the cloud granted it to {holder}"
                    require(holder == number, violation)

    def _check_model(self, name: str, weights: Weights | None) -> None:
        before = self._models.get(name)
        if weights is None or weights is before:
            return
        require(before is None or len(weights) == len(before), f"{name}: its model has {len(weights)} numbers")
        require(is_finite(weights), f"{name}: its model is not finite")
        self._models[name] = weights
