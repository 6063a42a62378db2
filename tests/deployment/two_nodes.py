"""A server and its clients in one process, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from async_hfl.core.identifiers import CLOUD, Address, JobId, gateway_address
from async_hfl.core.protocol.messages import Train, Update
from async_hfl.deployment.identity.credentials import Credentials, Insecure
from async_hfl.deployment.transport.admission import Admission, Joining, Refusal
from async_hfl.deployment.transport.limits import Limits
from async_hfl.deployment.transport.link import Link
from async_hfl.deployment.transport.server import Server
from async_hfl.deployment.transport.transfers.pacing import Pacing
from async_hfl.deployment.transport.transfers.spool import SpooledPacket
from async_hfl.deployment.transport.transport import Transport
from async_hfl.encoding.packet_codec import Content
from async_hfl.nodes.reliability.delivery import Packet

HANG_GUARD_S = 60.0
GATEWAY = gateway_address(0)
QUICK = Limits(
    heartbeat_s=0.2, silence_s=1.5, join_s=5.0, stall_s=5.0, backoff_first_s=0.05, backoff_most_s=0.2, inline_bytes=4096
)


@dataclass
class Seen:
    """An inbox that records its calls."""

    arrived_: list[tuple[Address, Content, float]] = field(default_factory=list)
    over: list[tuple[Address, int]] = field(default_factory=list)
    joined: list[Address] = field(default_factory=list)
    lost: list[tuple[Address, str]] = field(default_factory=list)

    def arrived(
        self, sender: Address, content: Content, transfer_s: float, spooled: SpooledPacket | None = None
    ) -> None:
        self.arrived_.append((sender, content, transfer_s))
        if spooled is not None:
            spooled.path.unlink()

    def transfer_over(self, to: Address, number: int) -> None:
        self.over.append((to, number))

    def peer_joined(self, peer: Address) -> None:
        self.joined.append(peer)

    def peer_lost(self, peer: Address, why: str) -> None:
        self.lost.append((peer, why))

    def contents(self) -> list[Content]:
        return [content for _, content, _ in self.arrived_]


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition; the guard ends a test that hangs."""
    async with asyncio.timeout(HANG_GUARD_S):
        while not condition():
            await asyncio.sleep(0.01)


def weights(size: int, seed: int = 1) -> np.ndarray[Any, np.dtype[np.float32]]:
    values = np.random.default_rng(seed).normal(size=size).astype(np.float32)
    values.flags.writeable = False
    return values


def train(number: int, size: int, seed: int = 1) -> Packet:
    return Packet(7, 1, number, Train(JobId(0, 1, number), weights(size, seed), 1, 2, 3))


def update(number: int, size: int, seed: int = 1) -> Packet:
    return Packet(7, 5, number, Update(JobId(0, 1, number), weights(size, seed), 10, 2, 0.5, 0.25, None, 0.1, 0.2))


def same(one: Content, other: Content) -> bool:
    if not isinstance(one, Packet) or not isinstance(other, Packet):
        return one == other
    mine, theirs = one.message, other.message
    assert isinstance(mine, Train | Update)
    assert isinstance(theirs, Train | Update)
    return (one.run, one.incarnation, one.number, mine.job) == (
        other.run,
        other.incarnation,
        other.number,
        theirs.job,
    ) and np.array_equal(mine.weights, theirs.weights)


class Numbers:
    """Admits everybody, and assigns one number to each name."""

    def __init__(self, peer: Address = GATEWAY) -> None:
        self.peer = peer
        self.names: dict[str, int] = {}
        self.probes: list[float] = []
        self.joinings: list[Joining] = []
        self.refusal: Refusal | None = None

    async def admit(self, joining: Joining, probe_s: float) -> Admission | Refusal:
        self.probes.append(probe_s)
        self.joinings.append(joining)
        if self.refusal is not None:
            return self.refusal
        number = self.names.setdefault(joining.name, len(self.names))
        return Admission(7, self.peer, number, 1.5, '{"a": 1}', "digest", {"model_bytes": 12})


@dataclass
class Side:
    inbox: Seen
    transport: Transport


@asynccontextmanager
async def serving(
    folder: Path,
    numbers: Numbers,
    *,
    credentials: Credentials | None = None,
    limits: Limits = QUICK,
    listen: str = "127.0.0.1:0",
    pacing: Pacing | None = None,
    operate: Callable[[str, bytes], Awaitable[bytes]] | None = None,
    serves: frozenset[Any] | None = None,
    **more: Any,
) -> AsyncIterator[tuple[Side, Server, int]]:
    inbox = Seen()
    transport = Transport(inbox, folder, limits=limits, **more)
    given = {"operate": operate, "serves": serves}
    options: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    server = Server(transport, listen, numbers.admit, credentials or Insecure(), pacing=pacing, **options)
    port = await server.start()
    try:
        yield Side(inbox, transport), server, port
    finally:
        await server.close()


@dataclass
class Dialling(Side):
    link: Link
    admissions: list[Admission]
    refusals: list[Refusal]


@asynccontextmanager
async def dialling(
    folder: Path,
    port: int,
    name: str = "d0",
    *,
    role: Any = "device",
    credentials: Credentials | None = None,
    limits: Limits = QUICK,
    server_role: Any = "gateway",
    goodbye: str = "",
    **more: Any,
) -> AsyncIterator[Dialling]:
    inbox = Seen()
    transport = Transport(inbox, folder, limits=limits, **more)
    admissions: list[Admission] = []
    refusals: list[Refusal] = []
    link = Link(
        transport,
        f"127.0.0.1:{port}",
        server_role,
        credentials or Insecure(),
        joining=Joining(role, name, incarnation=5),
        admitted=admissions.append,
        refused=refusals.append,
    )
    link.start()
    try:
        yield Dialling(inbox, transport, link, admissions, refusals)
    finally:
        await link.close(goodbye)


__all__ = ["CLOUD", "GATEWAY", "QUICK", "Dialling", "Numbers", "Seen", "Side", "dialling", "same", "serving", "until"]
