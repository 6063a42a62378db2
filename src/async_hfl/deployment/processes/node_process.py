"""The wiring that the cloud, gateway and device processes share.

`join_run` obtains the identity of a node. A `NodeProcess` connects the parts of one node: store, inbox, transport,
state machine and shell.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

from async_hfl.core.compression.model_codec import ModelCodec
from async_hfl.core.errors import UserError
from async_hfl.core.identifiers import CLOUD_TIER, DEVICE_TIER, GATEWAY_TIER, Address
from async_hfl.core.protocol.records import LifecycleRecord, Record
from async_hfl.deployment.identity.credentials import Credentials
from async_hfl.deployment.processes.reconnect_deadline import ReconnectDeadline
from async_hfl.deployment.shell.inbox import Inbox
from async_hfl.deployment.shell.known_peers import KnownPeers
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
from async_hfl.deployment.transport.admission import Admission, Joining, Mark, Refusal, Role
from async_hfl.deployment.transport.calls import LinkError
from async_hfl.deployment.transport.link import Link, enlist
from async_hfl.deployment.transport.transport import Transport
from async_hfl.encoding.packet_codec import MOST_BYTES, Content
from async_hfl.nodes.reliability.delivery import Arrived, Node, Packet, ReliableNode
from async_hfl.nodes.reliability.recovery import DurableNode

log = logging.getLogger("async_hfl.process")
N = TypeVar("N", bound=Node)
_TIERS: dict[Role, int] = {"cloud": CLOUD_TIER, "gateway": GATEWAY_TIER, "device": DEVICE_TIER}
_ASK_AGAIN_S = 1.0
_MODELS_AT_MOST = 3
_SMALL_MESSAGE = 64 * 1024
_CHECKED_EVERY = 16
_MOST_UNACKNOWLEDGED, _ATTEMPTS = 64, 3
"""A device with a session has more packets than this to acknowledge, some of which were sent so many times: it is set
aside. Correct devices acknowledge within a second or so, but may have many packets to receive after an absence."""


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


def older_copy(name: str, missing: str) -> Refusal:
    """Return the refusal of a node whose state went back in time."""
    return Refusal("went_back", f"the state of {name} is an older copy: {missing}")


def _codec(facts: Mapping[str, Any]) -> ModelCodec:
    return ModelCodec(
        facts["up"],
        facts["down"],
        size=int(facts["model_size"]),
        trained=int(facts["gradient_size"]),
        encodes_gradients=bool(facts["encodes_gradients"]),
    )


def _most_bytes(peer: Address, facts: Mapping[str, Any]) -> int:
    """Return the size of the largest packet that a node accepts: a device sends a model and a gradient at most."""
    return _MODELS_AT_MOST * 4 * int(facts["model_size"]) + _SMALL_MESSAGE if peer.tier == DEVICE_TIER else MOST_BYTES


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
        wrote: Callable[[Record], None] = lambda record: None,
        **shell: Any,
    ) -> None:
        """`is_device` returns True for a device's number. `digests` receives telemetry, `wrote` every record.
        `shell`: other options of Shell."""
        self.store = store
        self.identity = identity
        self.inbox = inbox
        self._note = wrote
        facts = identity.facts
        self.address = Address(_TIERS[identity.role], identity.number)
        self.transport = Transport(
            inbox,
            store.spool,
            crowded=lambda: inbox.crowded,
            waiting=inbox.waiting,
            validate=validator(self.address, _codec(facts), is_device, frozenset(facts["projected_sizes"])),
            is_known=lambda *packet: self.shell.is_known(*packet),
            digests=digests,
            most_bytes=lambda peer: _most_bytes(peer, facts),
        )

        def make_reliable() -> ReliableNode:
            self.node = make(identity)
            return reliable(identity, self.node)

        self.shell = Shell(
            self.address,
            DurableNode(make_reliable, store, self._dropped),
            store,
            inbox,
            self._send,
            workers,
            began_at=identity.began_at,
            wrote=self._wrote,
            **shell,
        )
        self.known = KnownPeers(store, lambda: self.shell.delivery)

    def _send(self, to: Address, content: Content) -> None:
        self.transport.send(to, content)
        if isinstance(content, Packet) and to.tier == DEVICE_TIER and content.number % _CHECKED_EVERY == 0:
            self._expect_receipts(to)

    def _expect_receipts(self, device: Address) -> None:
        """Set a device aside that has a session and acknowledges nothing: what it was sent is kept, and sent again."""
        kept = [packet for (to, _), packet in self.shell.delivery.unacknowledged.items() if to == device]
        if len(kept) > _MOST_UNACKNOWLEDGED and any(packet.attempts >= _ATTEMPTS for packet in kept):
            self.transport.endpoint.conduct.refused(device, "it does not acknowledge what it is sent", final=True)

    def _dropped(self, event: Arrived, error: Exception) -> None:
        """Set aside the sender of a message that the node has failed to handle."""
        log.error("a message of %s could not be handled and is dropped", event.sender, exc_info=error)
        self.transport.endpoint.conduct.refused(event.sender, "a message of it could not be handled", final=True)

    def _wrote(self, record: Record) -> None:
        """End the session of a device from which a message was refused, if that happens too often."""
        if isinstance(record, LifecycleRecord) and record.what == "refused" and record.node.startswith("d"):
            device = Address(DEVICE_TIER, int(record.node[1:]))
            self.transport.endpoint.conduct.refused(device, record.detail)
        self._note(record)

    def link(
        self,
        target: str,
        server: Role,
        credentials: Credentials,
        refused: Callable[[Refusal], None],
        *,
        samples: int = 0,
        compute_s: float = 0.0,
        knows: Callable[[], Mapping[str, int]] = dict,
    ) -> Link:
        """Return a link to a server, not yet started. `knows` returns the highest numbers that this node knows."""
        me = self.identity
        joining = Joining(me.role, me.name, me.incarnation, me.run, samples, compute_s)
        return Link(
            self.transport,
            target,
            server,
            credentials,
            joining=joining,
            admitted=self._admitted,
            refused=refused,
            complete=lambda stated: replace(stated, compares=True, marks=self.known.marks(), knows=knows()),
        )

    def _admitted(self, admission: Admission) -> None:
        note_clock(self.store, self.shell.clock.now, admission.at)
        self.known.meet(admission.peer, admission.incarnation)

    def compared(self, peer: Address, joining: Joining) -> tuple[str, str]:
        """Compare a joining node's mark of this one with what this one knows, and note its incarnation if they agree.

        Return in words what this node, and what the other, must have known and does not; empty if nothing."""
        if not joining.compares:
            return "", ""
        here = self.address
        mark = next((one for one in joining.marks if (one.tier, one.number) == here), None)
        found = ("", "")
        if mark is None:
            if self.known.has_met(peer, joining.incarnation):  # and it has forgotten
                nothing = Mark(*here, self.known.incarnation, 0, 0, 0)
                found = self.known.went_back(peer, joining.incarnation, nothing)
        elif mark.incarnation == self.known.incarnation:
            found = self.known.went_back(peer, joining.incarnation, mark)
        if not any(found):
            self.known.meet(peer, joining.incarnation)
        return found
