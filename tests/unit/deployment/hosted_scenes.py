"""Scenes for a node that a test hosts: a gateway between devices, a cloud above gateways; one peer is hostile."""

from __future__ import annotations

from typing import Any

import numpy as np
from hosted_node import INCARNATION, RUN, Hosted

from async_hfl.core.compression.model_codec import ModelCodec
from async_hfl.core.identifiers import CLOUD, JobId, UploadId, device_address, gateway_address
from async_hfl.core.maths.targets import Target
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.records import JobRecord, UploadRecord
from async_hfl.core.topology import feasible_links
from async_hfl.core.weights import frozen
from async_hfl.decisions.selection.utility_knapsack import UtilityKnapsack
from async_hfl.nodes.cloud.aggregation.mix import MixUploads
from async_hfl.nodes.cloud.node import CloudNode
from async_hfl.nodes.config import CloudConfig, GatewayConfig, GatewayDeployment
from async_hfl.nodes.gateway.aggregation.mix import MixOnArrival
from async_hfl.nodes.gateway.node import GatewayNode
from async_hfl.nodes.reliability.delivery import Arrived, Packet

SIZE, TRAINED = 135, 131
EVIL, HONEST = 0, 1


def vector(seed: int) -> Any:
    return frozen(0.1 * np.random.default_rng(seed).standard_normal(SIZE).astype(np.float32))


class Gateway:
    """A gateway with a hostile and an honest device, and a cloud that answers its uploads at once."""

    def __init__(self, node: Hosted, codec: ModelCodec) -> None:
        self.node, self.codec = node, codec
        self.epoch = 0
        self.told = 0
        self.sent = 0
        self._known: tuple[int, m.Update] | None = None

    @staticmethod
    def make(codec: ModelCodec) -> GatewayNode:
        config = GatewayConfig(
            number=0,
            model_bytes=4 * SIZE,
            gradient_size=TRAINED,
            gradient="last",
            epochs=3,
            max_change=10.0,
            codec=codec,
            deployment=GatewayDeployment(track_losses=True),
        )
        return GatewayNode(config, UtilityKnapsack(), MixOnArrival())

    async def begin(self) -> None:
        for peer in (CLOUD, device_address(HONEST)):
            await self.node.joined(peer)
        leases = tuple(m.Lease(device, 1, 1) for device in (EVIL, HONEST))
        knowledge = tuple(m.DeviceKnowledge(device, 1.0, True, 10, 0.5, 0.25) for device in (EVIL, HONEST))
        self._tell(m.Assignment(1, 1, (EVIL, HONEST), leases, knowledge))
        self._tell(m.GlobalModel(0, self.codec.encode_model(vector(1), 1)))
        await self.node.idle()

    def _tell(self, message: m.Message) -> None:
        self.told += 1
        content = Packet(RUN, INCARNATION, self.told, message)
        self.node.process.inbox.put(lambda at: Arrived(at, CLOUD, content))

    def answer_uploads(self) -> None:
        for number, waiting in self.node.node.state.outstanding.items():
            if number > self.epoch:
                self.epoch = number
                model = self.codec.encode_model(vector(1), number)
                self._tell(m.Answer(waiting.message.upload, number, model, m.Outcome(True, 1, 0.5)))

    def job(self, device: int) -> tuple[int, Any] | None:
        state = self.node.node.state
        devices = state.device_table.devices
        jobs = state.in_flight_jobs.items()
        return next(((number, job.sent) for number, job in jobs if int(devices[job.slot]) == device), None)

    def update(self, number: int, sent: Any, seed: int) -> m.Update:
        codec, change = self.codec, frozen(np.asarray(sent) + vector(seed))
        model = codec.encode_change(change, sent, None, seed)[0] if codec.encodes_up else change
        gradient = codec.encode_gradient(frozen(vector(seed)[:TRAINED].copy()), "up", seed)
        return m.Update(JobId(0, 1, number), model, 10, 5, 0.5, 0.25, gradient, 0.1, 0.1)

    def originals(self) -> list[m.Message]:
        self.answer_uploads()
        number, sent = self.job(EVIL) or (1, vector(1))
        if self._known is None or self._known[0] != number:
            self._known = (number, self.update(number, sent, 3))
        update = self._known[1]
        return [
            *(update,) * 3,
            m.JobDropped(JobId(0, 1, number), "superseded", 1),
            m.Alive(),
            m.Unsettled(None, (JobId(0, 1, number), JobId(1, 1, 4))),
            m.EvaluateResult(1, 0.5, 0.5),
        ]

    async def honest_work(self) -> None:
        """Let the honest device finish a job."""
        self.answer_uploads()
        await self.node.idle()
        found = self.job(HONEST)
        assert found is not None, "the honest device has no job"
        self.sent += 1
        await self.node.tell(device_address(HONEST), self.sent, self.update(*found, 20 + self.sent))

    def check(self) -> None:
        jobs = [one for one in self.node.records if isinstance(one, JobRecord)]
        honest = [one.reason for one in jobs if one.device == HONEST]
        assert honest == ["aggregated"] * self.sent
        assert {one.device for one in jobs} == {EVIL, HONEST}
        self.check_model(self.node.node.state.weights)

    @staticmethod
    def check_model(model: Any) -> None:
        assert np.isfinite(model).all()
        assert np.abs(model).max() < 1e3


class Cloud(Gateway):
    """A cloud with a hostile and an honest gateway."""

    @staticmethod
    def make(codec: ModelCodec) -> Any:
        links = feasible_links(2, 2, np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]), np.ones(4))
        config = CloudConfig(
            gateways=2,
            epochs=10**9,
            target=Target("accuracy", 1.0),
            bandwidth=(1e6, 1e6),
            model_bytes=4 * SIZE,
            gradient="last",
            gradient_size=TRAINED,
            seed=3,
            codec=codec,
            mixing_weight=0.5,
        )
        return CloudNode(config, links, np.full(2, 10), vector(1), MixUploads(), revisits=True)

    async def begin(self) -> None:
        for gateway in (EVIL, HONEST):
            await self.node.joined(gateway_address(gateway))
            await self.node.tell(gateway_address(gateway), 1, m.Hello(INCARNATION))
        self.sent = 1

    def originals(self) -> list[m.Message]:
        known = m.DeviceKnowledge(0, 1.0, True, 5, 0.5, 0.5, frozen(vector(4)[:TRAINED].copy()))
        epoch = self.node.node.state.epoch
        self.told += 1
        return [
            *(self.upload(EVIL, self.told, known),) * 2,
            m.Hello(INCARNATION),
            m.LeaseReleased(m.Lease(0, 1, 1), known, False),
            m.Report(INCARNATION, self.told, (known,), lost=(0,), heard=(1,)),
            m.Unsettled(0, (JobId(0, 1, 2), JobId(1, 1, 4))),
            m.EvaluateResult(epoch, 0.5, 0.5, 0),
        ]

    def upload(self, gateway: int, number: int, *known: m.DeviceKnowledge) -> m.Upload:
        state = self.node.node.state
        upload = UploadId(gateway, INCARNATION, number)
        return m.Upload(
            upload, frozen(np.asarray(state.weights) + vector(2)), state.epoch, 2, 20, False, 1, known, (number,)
        )

    async def honest_work(self) -> None:
        self.sent += 1
        await self.node.tell(gateway_address(HONEST), self.sent, self.upload(HONEST, self.sent))

    def check(self) -> None:
        uploads = [one for one in self.node.records if isinstance(one, UploadRecord) and one.upload.gateway == HONEST]
        assert [one.reason for one in uploads] == ["mixed"] * (self.sent - 1)
        self.check_model(self.node.node.state.weights)
