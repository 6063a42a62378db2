"""The wiring that the cloud, gateway and device processes share.

`join_run` obtains the identity of a node. A `NodeProcess` connects the parts of one node: store, inbox, transport,
state machine and shell.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from async_hfl.core.compression.model_codec import ModelCodec
from async_hfl.core.errors import UserError
from async_hfl.core.identifiers import CLOUD_TIER, DEVICE_TIER, GATEWAY_TIER, Address
from async_hfl.deployment.identity.credentials import Credentials
from async_hfl.deployment.processes.reconnect_deadline import ReconnectDeadline
from async_hfl.deployment.shell.inbox import Inbox
from async_hfl.deployment.shell.message_validation import validator
from async_hfl.deployment.shell.shell import Shell, Workers
from async_hfl.deployment.store.node_identity import (
    NodeIdentity,
    draw_incarnation,
    note_clock,
    read_identity,
    reliable,
    write_identity,
)
from async_hfl.deployment.store.node_store import NodeStore
from async_hfl.deployment.transport.admission import Admission, Joining, Refusal, Role
from async_hfl.deployment.transport.calls import LinkError
from async_hfl.deployment.transport.link import Link, enlist
from async_hfl.deployment.transport.transport import Transport
from async_hfl.nodes.reliability.delivery import Node, ReliableNode
from async_hfl.nodes.reliability.recovery import DurableNode

log = logging.getLogger("async_hfl.process")
N = TypeVar("N", bound=Node)
_TIERS: dict[Role, int] = {"cloud": CLOUD_TIER, "gateway": GATEWAY_TIER, "device": DEVICE_TIER}
_ASK_AGAIN_S = 1.0


class Refused(UserError):
    """The cloud refuses this node."""


async def join_run(
    store: NodeStore, role: Role, name: str, targets: Sequence[str], credentials: Credentials, give_up_s: float
) -> NodeIdentity | None:
    """Return the node's identity, from its disk or, for a new node, from the first server that admits it.

    Returns None if the run is over. Raises UnreachableError if no server answers for `give_up_s`."""
    if (known := read_identity(store, role, name)) is not None:
        return known
    server: Role = "cloud" if role == "gateway" else "gateway"
    asked = Joining(role, name, draw_incarnation(), ready=role != "device")
    answer = await _first_answer(targets, server, credentials, asked, give_up_s)
    if isinstance(answer, Refusal):
        if answer.kind == "finished":
            return None
        raise Refused(f"{role} {name} is refused by the {server}: {answer.reason}")
    told = (answer.settings, answer.settings_digest, dict(answer.facts), answer.at)
    identity = NodeIdentity(role, name, answer.run, answer.number, asked.incarnation, *told)
    write_identity(store, identity)
    return identity


async def _first_answer(
    targets: Sequence[str], server: Role, credentials: Credentials, joining: Joining, give_up_s: float
) -> Admission | Refusal:
    """Ask the servers in turn until one gives a final answer."""
    logged = ""
    deadline = ReconnectDeadline(give_up_s, ", ".join(targets))
    while True:
        for target in targets:
            try:
                answer = await enlist(target, server, credentials, joining)
            except LinkError as error:
                why = f"{target}: {error}"
            else:
                if isinstance(answer, Admission) or answer.kind != "not_yet":
                    return answer
                deadline.extend()
                why = f"{target}: {answer.reason}"
            if why != logged:
                log.info("waiting to join: %s", why)
                logged = why
        deadline.check()
        await asyncio.sleep(_ASK_AGAIN_S)


def wrong_run(joining: Joining, server: NodeIdentity) -> Refusal | None:
    """Refuse a node that belongs to another run."""
    if joining.run in (0, server.run):
        return None
    return Refusal(
        "refused",
        f"{joining.role} {joining.name} belongs to run {joining.run:x}, this is run {server.run:x}: start it with a "
        "new state directory",
    )


def _codec(facts: Mapping[str, Any]) -> ModelCodec:
    return ModelCodec(
        facts["up"],
        facts["down"],
        size=int(facts["model_size"]),
        trained=int(facts["gradient_size"]),
        encodes_gradients=bool(facts["encodes_gradients"]),
    )


class NodeProcess(Generic[N]):
    """One node with its store, inbox, transport and shell."""

    node: N
    """The state machine. Recovery replaces it, so keep no reference to it."""

    def __init__(
        self,
        store: NodeStore,
        identity: NodeIdentity,
        inbox: Inbox,
        make: Callable[[NodeIdentity], N],
        workers: Workers,
        *,
        is_device: Callable[[int], bool] = lambda number: number >= 0,
        digests: Callable[[Address, bytes], None] = lambda sender, digest: None,
        **shell: Any,
    ) -> None:
        """`is_device` returns True for a device's number. `digests` receives telemetry. `shell`: options of Shell."""
        self.store = store
        self.identity = identity
        self.inbox = inbox
        facts = identity.facts
        self.address = Address(_TIERS[identity.role], identity.number)
        self.transport = Transport(
            inbox,
            store.spool,
            crowded=lambda: inbox.crowded,
            validate=validator(self.address, _codec(facts), is_device, frozenset(facts["projected_sizes"])),
            is_known=lambda *packet: self.shell.is_known(*packet),
            digests=digests,
        )

        def make_reliable() -> ReliableNode:
            self.node = make(identity)
            return reliable(identity, self.node)

        self.shell = Shell(
            self.address,
            DurableNode(make_reliable, store),
            store,
            inbox,
            self.transport.send,
            workers,
            began_at=identity.began_at,
            **shell,
        )

    def link(
        self,
        target: str,
        server: Role,
        credentials: Credentials,
        refused: Callable[[Refusal], None],
        *,
        samples: int = 0,
        compute_s: float = 0.0,
    ) -> Link:
        """Return a link to a server, not yet started."""
        me = self.identity
        joining = Joining(me.role, me.name, me.incarnation, me.run, samples, compute_s)
        return Link(
            self.transport,
            target,
            server,
            credentials,
            joining=joining,
            admitted=lambda admission: note_clock(self.store, self.shell.clock.now, admission.at),
            refused=refused,
        )
