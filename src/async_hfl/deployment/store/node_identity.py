"""The identity of a deployed node: assigned once, stored in its state directory, and the same after every restart."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from async_hfl.core.errors import UserError
from async_hfl.deployment.store.node_store import NodeStore
from async_hfl.deployment.transport.admission import Role
from async_hfl.deployment.transport.earlier_versions import facts_from_2
from async_hfl.nodes.reliability.delivery import Node, ReliableNode

IDENTITY = "identity"
CLOCK = "clock"
_INCARNATION_BITS = 31
_RUN_BITS = 62


class WrongState(UserError):
    """A state directory belongs to another node or another run."""


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    role: Role
    name: str
    run: int
    number: int
    incarnation: int
    settings: str
    """The settings of the run as JSON, as the cloud sent them: those that differ from the defaults."""
    settings_digest: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Facts about the task, such as model_size, for nodes that have not loaded it."""
    began_at: float = 0.0
    """Time on the cloud's clock when this node got its number; the node's own clock starts at that time."""

    @staticmethod
    def stored(fact: Mapping[str, Any]) -> NodeIdentity:
        """Return the identity that is stored under `IDENTITY`, also by an earlier release."""
        return NodeIdentity(**{**fact, "facts": facts_from_2(fact["facts"], fact["settings"])})


def draw_run() -> int:
    return secrets.randbits(_RUN_BITS) + 1


def draw_incarnation() -> int:
    return secrets.randbits(_INCARNATION_BITS) + 1


def read_identity(store: NodeStore, role: Role, name: str) -> NodeIdentity | None:
    found = store.get(IDENTITY)
    if found is None:
        return None
    identity = NodeIdentity.stored(found)
    if (identity.role, identity.name) != (role, name):
        raise WrongState(
            f"{store.path}: holds the state of {identity.role} {identity.name}, not of {role} {name}; give each node "
            "its own state directory"
        )
    return identity


def write_identity(store: NodeStore, identity: NodeIdentity) -> None:
    store.put(IDENTITY, asdict(identity))
    store.commit()


def note_clock(store: NodeStore, own_at: float, cloud_at: float) -> None:
    """Store the node's time and the cloud's time, whenever a node joins.

    Journals are merged by these pairs. The offset between the clocks grows by the time for which a node is down."""
    store.put(CLOCK, [*(store.get(CLOCK) or []), [own_at, cloud_at]])


def reliable(identity: NodeIdentity, node: Node) -> ReliableNode:
    """Wrap a node for delivery over sessions, as its process and a replay run it."""
    # Only a device needs to know which of its messages were acknowledged.
    confirms = identity.role == "device"
    return ReliableNode(node, identity.run, identity.incarnation, watched=True, sessions=True, confirms=confirms)
