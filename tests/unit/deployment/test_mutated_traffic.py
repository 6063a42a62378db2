"""Mutated packets, frames, offers and chunks at whole nodes: decoding, validation, transfers, spool, store and shell.

Afterwards the node works on, handles what correct peers send, and has grown by no more than a share of one peer. The
messages of the hostile peer are those that a correct one would send now, so that mutated ones come far.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hosted_node import INCARNATION, RUN, Hosted, bytes_of, hosted
from mutations import mutated, with_another_value

from async_hfl.core.compression.encodings import EncodingKind
from async_hfl.core.compression.model_codec import ModelCodec
from async_hfl.core.identifiers import CLOUD, Address, JobId, UploadId, device_address, gateway_address
from async_hfl.core.maths.targets import Target
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.records import JobRecord, UploadRecord
from async_hfl.core.topology import feasible_links
from async_hfl.core.weights import frozen
from async_hfl.decisions.selection.utility_knapsack import UtilityKnapsack
from async_hfl.deployment.protocol import wire_pb2 as wire
from async_hfl.deployment.transport.admission import Role
from async_hfl.encoding import packet_codec
from async_hfl.nodes.cloud.aggregation.mix import MixUploads
from async_hfl.nodes.cloud.node import CloudNode
from async_hfl.nodes.config import CloudConfig, GatewayConfig, GatewayDeployment
from async_hfl.nodes.gateway.aggregation.mix import MixOnArrival
from async_hfl.nodes.gateway.node import GatewayNode
from async_hfl.nodes.reliability.delivery import Arrived, Packet, Receipt

log = logging.getLogger(__name__)
A_SESSION = 200
"""Messages: offers of which nothing comes count until a session ends."""
SIZE, TRAINED = 135, 131
EVIL, HONEST = 0, 1
MB = 2**20
FEW = 5_000
MANY = 250_000
"""Four nodes: twenty thousand, and a million in all."""


class Attack:
    """Sends mutations of what a correct peer would send."""

    def __init__(self, node: Hosted, peer: Address, originals: Callable[[], list[m.Message]], seed: int) -> None:
        self.node, self.peer = node, peer
        self.originals = originals
        self.random = np.random.default_rng(seed)
        self.others = [bytes_of(Packet(RUN, INCARNATION, 1, message)) for message in originals()]
        self.number = 0
        self.transfer = 0
        self.session: Any = None
        self.left = 0
        self.session_ends_at = 0
        self.receipts: list[Receipt] = []
        self.counts: Counter[str] = Counter()

    async def carry_out(self, count: int) -> None:
        """Send so many mutated messages, in as many sessions as it takes."""
        self.left = count
        while self.left > 0:
            self.session_ends_at = self.left - A_SESSION
            self.session = self.node.session(self.peer, "device" if self.peer.tier == 2 else "gateway")
            why = await self.session.run(self._read, self._write)
            self.node.process.transport.closed(self.session, why)
            self.counts["sessions"] += 1
            await self.node.idle()

    async def _read(self) -> Any:
        """Return the next frame, as the session reads it from its stream."""
        while self.left > max(0, self.session_ends_at):
            if self.receipts:
                return wire.Frame(packet=bytes_of(self.receipts.pop()))
            self.left -= 1
            if self.left % 32 == 0:
                await asyncio.sleep(0)
            kind = int(self.random.integers(8))
            if kind == 7:
                await self._push()
            elif kind == 6:
                try:  # gRPC ends the call of a peer whose frames cannot be parsed
                    return wire.Frame.FromString(self._bytes(self._frame().SerializeToString(deterministic=True)))
                except DecodeError:
                    self.counts["no frames"] += 1
            else:
                return wire.Frame(packet=self._packet())
        return grpc.aio.EOF

    async def _write(self, frame: Any) -> None:
        """Take a frame of the node, and acknowledge the packet in it, so that it is not sent in every session."""
        self.counts[f"answered by {frame.WhichOneof('content')}"] += 1
        if frame.WhichOneof("content") == "packet" and isinstance(content := packet_codec.decode(frame.packet), Packet):
            self.receipts.append(Receipt(content.run, content.incarnation, content.number))

    def _bytes(self, data: bytes) -> bytes:
        return mutated(data, self.others, self.random) if data else data

    def _packet(self) -> bytes:
        messages = self.originals()
        message = messages[int(self.random.integers(len(messages)))]
        self.number += 1
        content = Packet(RUN, INCARNATION, self.number, message)
        kind = int(self.random.integers(8))
        if kind == 0:
            content = with_another_value(replace(content, message=m.Alive()), self.random)
            content = replace(content, message=message)
        for _ in range(1 + kind // 3 if kind < 6 else 0):
            content = replace(content, message=with_another_value(content.message, self.random))
        try:
            data = bytes_of(content)
        except (OverflowError, ValueError):  # a number of more than 64 bits, which no packet can contain
            return self._packet()
        return self._bytes(data) if kind >= 6 else data

    def _frame(self) -> Any:
        data = self._packet()
        return (
            wire.Frame(packet=data),
            wire.Frame(offer=self._offer(data)),
            wire.Frame(held=wire.Held(transfer=1, bytes=5)),
            wire.Frame(heartbeat=wire.Heartbeat(number=3)),
            wire.Frame(digest=data[:40]),
        )[int(self.random.integers(5))]

    def _offer(self, data: bytes) -> Any:
        self.transfer += 1
        digest = hashlib.sha256(data).digest()
        return wire.Offer(
            transfer=self.transfer,
            length=len(data),
            sha256=digest,
            run=RUN,
            incarnation=INCARNATION,
            number=self.number,
        )

    async def _push(self) -> None:
        """Offer a packet and push it in chunks; each may be wrong."""
        data = self._packet()
        offer = self._offer(data)
        wrong = int(self.random.integers(10))
        match wrong:
            case 0:
                offer.length = max(0, offer.length + int(self.random.integers(-20, 20)))
            case 1:
                offer.length = int(self.random.integers(2**40))
            case 2:
                offer.sha256 = self._bytes(offer.sha256)
            case 3:
                offer.transfer = max(0, offer.transfer - int(self.random.integers(3)))
            case 4:
                offer.incarnation, offer.number = (int(n) for n in self.random.integers(-2, 8, 2))
        held = await self.session.receiving._answer(offer)
        self.counts["refused offers" if held.refused else "offers"] += 1
        status = await self.node.push(self._chunks(data, offer.transfer, int(held.bytes), wrong))
        self.counts["pushes" if status is None else "refused pushes"] += 1

    def _chunks(self, data: bytes, transfer: int, offset: int, wrong: int) -> Iterator[Any]:
        step = int(self.random.integers(50, 2000))
        for start in range(offset, len(data), step):
            chunk = wire.Chunk(
                session=self.session.number, transfer=transfer, offset=start, data=data[start : start + step]
            )
            if wrong >= 8 and self.random.integers(3) == 0:
                match self.random.integers(6):
                    case 0:
                        chunk.data = self._bytes(chunk.data)
                    case 1:
                        chunk.offset = int(self.random.integers(2**20))
                    case 2:
                        chunk.transfer += 1
                    case 3:
                        chunk.session += 1
                    case 4:
                        yield chunk
                    case _:
                        return
            yield chunk


def vector(seed: int) -> Any:
    return frozen(0.1 * np.random.default_rng(seed).standard_normal(SIZE).astype(np.float32))


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / MB


def disk_mb(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / MB


async def survives(node: Hosted, attack: Attack, count: int, folder: Path, caplog: Any) -> None:
    """Carry out an attack, and check what is left of it."""
    await attack.carry_out(FEW // 10)  # memory for code and caches
    before, disk = resident_mb(), disk_mb(folder)
    await attack.carry_out(count)
    await node.idle()
    grown = resident_mb() - before
    log.info(
        "%d messages: %s, %+.0f MB of memory, %+.0f MB of disk",
        count,
        dict(attack.counts),
        grown,
        disk_mb(folder) - disk,
    )
    assert node.failures == []
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert attack.counts["pushes"] > count // 50, "transfers are assembled"
    assert len(list((folder / "spool").glob("*.part"))) <= 65
    assert grown < 60
    assert disk_mb(folder) - disk < 60
    seen = [key for key in node.process.shell.delivery.seen if key[0] == attack.peer]
    assert seen == [(attack.peer, INCARNATION)]


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


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("scene", "role", "peer", "kind"),
    [
        (Gateway, "gateway", device_address(EVIL), "float32"),
        (Gateway, "gateway", device_address(EVIL), "int8"),
        (Gateway, "gateway", device_address(EVIL), "int4"),
        (Cloud, "cloud", gateway_address(EVIL), "float32"),
    ],
)
def test_a_node_survives_mutated_traffic(
    tmp_path: Path,
    scene: type[Gateway],
    role: Role,
    peer: Address,
    kind: EncodingKind,
    count: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.ERROR, "async_hfl")
    codec = ModelCodec(kind, kind, size=SIZE, trained=TRAINED, seed=5)

    async def story() -> None:
        async with hosted(tmp_path, role, lambda identity: scene.make(codec), codec) as node:
            others = scene(node, codec)
            await others.begin()
            attack = Attack(node, peer, others.originals, seed=17)
            for _ in range(4):
                await survives(node, attack, count // 4, tmp_path, caplog)
                for _ in range(3):
                    await others.honest_work()
            others.check()

    asyncio.run(story())
