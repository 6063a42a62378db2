"""A node with everything that its process has but sockets: store, inbox, transport, shell, and a server's sessions.

Frames and chunks are handed to it as gRPC would hand them over. Peers are forgiven what they send, so that a session
takes any number of bad packets.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import grpc

from async_hfl.core.compression.model_codec import ModelCodec
from async_hfl.core.errors import PeerError
from async_hfl.core.identifiers import Address
from async_hfl.core.learner import Evaluation
from async_hfl.core.protocol.effects import Evaluate, Solve
from async_hfl.core.protocol.events import Evaluated, PeerJoined, Solved
from async_hfl.core.protocol.messages import Message
from async_hfl.core.protocol.records import Record
from async_hfl.decisions.association.nearest import NearestGateway
from async_hfl.deployment.identity import interceptor
from async_hfl.deployment.identity.credentials import Insecure
from async_hfl.deployment.identity.names import Caller
from async_hfl.deployment.processes.node_process import NodeProcess
from async_hfl.deployment.shell.inbox import Inbox
from async_hfl.deployment.shell.shell import Workers
from async_hfl.deployment.store.node_identity import NodeIdentity
from async_hfl.deployment.store.node_store import Budget, NodeStore
from async_hfl.deployment.transport.admission import Joining, Role
from async_hfl.deployment.transport.conduct import Conduct
from async_hfl.deployment.transport.limits import USUAL
from async_hfl.deployment.transport.server import Server
from async_hfl.deployment.transport.session import Session
from async_hfl.encoding import packet_codec
from async_hfl.nodes.reliability.delivery import Arrived, Packet

RUN, INCARNATION = 7, 5
PATIENT = replace(USUAL, packets_per_s=1e9, packets_at_once=1e9, packets_waiting=500, heartbeat_s=600.0, silence_s=6e4)


class Prompt(Workers):
    """Workers of a cloud that answer at once: devices belong to their nearest gateways, and every model is poor."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox

    def solve(self, work: Solve) -> None:
        association = NearestGateway().solve(work.problem)
        self._inbox.put(lambda at: Solved(at, work.number, association))

    def evaluate(self, work: Evaluate) -> None:
        self._inbox.put(lambda at: Evaluated(at, work.epoch, Evaluation(0.1, 2.0)))


class Chunks:
    """The context of a push: the chunks that arrive, and the status of the call."""

    def __init__(self, chunks: Iterable[Any]) -> None:
        self._chunks = iter(chunks)
        self.status: grpc.StatusCode | None = None

    async def read(self) -> Any:
        return next(self._chunks, grpc.aio.EOF)

    async def abort(self, status: grpc.StatusCode, why: str) -> None:
        self.status = status

    def peer(self) -> str:
        return "a test"


@dataclass
class Hosted:
    process: NodeProcess[Any]
    server: Server
    running: asyncio.Task[str]
    records: list[Record] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    """Messages that the node could not handle."""

    @property
    def node(self) -> Any:
        return self.process.node

    async def tell(self, sender: Address, number: int, message: Message) -> None:
        """Let a message of a correct peer arrive."""
        content = Packet(RUN, INCARNATION, number, message)
        self.process.inbox.put(lambda at: Arrived(at, sender, content))
        await self.idle()

    async def joined(self, peer: Address) -> None:
        self.process.inbox.put(lambda at: PeerJoined(at, peer))
        await self.idle()

    async def idle(self) -> None:
        """Wait until everything that has arrived is handled."""
        done = asyncio.Event()
        self.process.inbox.put(lambda at: done.set())
        while not done.is_set():
            if self.running.done():
                self.running.result()  # raises: a shell ends only by an error
            await asyncio.sleep(0)

    def session(self, peer: Address, role: Role) -> Session:
        """Return a new session with a peer, as the server opens one."""
        number = len(self.server._sessions) + 1
        session = Session(self.process.transport.endpoint, peer, number, PATIENT.heartbeat_s, self.server.pacing)
        session.receiving.incarnation = INCARNATION
        self.server._sessions = {number: (session, Caller(None, "a test"), Joining(role, "evil", INCARNATION))}
        self.process.transport.opened(session)
        return session

    async def push(self, chunks: Iterable[Any]) -> grpc.StatusCode | None:
        """Push chunks; return the status of a call that failed."""
        context = Chunks(chunks)
        await self.server._push(None, context)
        return context.status


@asynccontextmanager
async def hosted(
    folder: Path, role: Role, make: Callable[[NodeIdentity], Any], codec: ModelCodec, devices: int = 2
) -> AsyncIterator[Hosted]:
    facts = {
        "up": codec.up,
        "down": codec.down,
        "model_size": codec.size,
        "gradient_size": codec.trained,
        "encodes_gradients": codec.encodes_gradients,
        "projected_sizes": (),
    }
    identity = NodeIdentity(role, "tested", RUN, 0, 3, "{}", "", facts)
    token = interceptor._caller.set(Caller(None, "a test"))
    with NodeStore.open(folder, Budget(payloads=10_000_000, log=10_000_000)) as store:
        store._database.execute("PRAGMA synchronous = OFF")  # the disk is not what is tested
        inbox = Inbox(store.adopt)
        records: list[Record] = []
        process: NodeProcess[Any] = NodeProcess(
            store,
            identity,
            inbox,
            make,
            Prompt(inbox),
            is_device=lambda number: 0 <= number < devices,
            wrote=records.append,
        )
        endpoint = process.transport.endpoint
        endpoint.limits = PATIENT
        endpoint.conduct = Conduct(lambda: 1e9 * asyncio.get_running_loop().time())
        server = Server(process.transport, "127.0.0.1:0", _admits_nobody, Insecure())
        running = asyncio.get_running_loop().create_task(process.shell.run())
        found = Hosted(process, server, running, records)

        def failed(event: Arrived, error: Exception) -> None:
            found.failures.append(f"{type(event.content).__name__} {event.content}: {error!r}"[:2000])

        process.shell.node._dropped = failed
        try:
            await found.idle()
            yield found
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            interceptor._caller.reset(token)


async def _admits_nobody(joining: Joining, probe_s: float) -> Any:
    raise PeerError("this server admits nobody")


def bytes_of(content: packet_codec.Content) -> bytes:
    return b"".join(packet_codec.encode(content))
