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
from hosted_scenes import EVIL, SIZE, TRAINED, Cloud, Gateway
from mutations import mutated, with_another_value

from async_hfl.core.compression.encodings import EncodingKind
from async_hfl.core.compression.model_codec import ModelCodec
from async_hfl.core.identifiers import Address, device_address, gateway_address
from async_hfl.core.protocol import messages as m
from async_hfl.deployment.protocol import wire_pb2 as wire
from async_hfl.deployment.transport.admission import Role
from async_hfl.encoding import packet_codec
from async_hfl.nodes.reliability.delivery import Packet, Receipt

log = logging.getLogger(__name__)
A_SESSION = 200
"""Messages: offers of which nothing comes count until a session ends."""
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
