"""Who a node is, kept on its disk: made once with its state, the same after every restart."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from async_hfl.core.errors import UserError
from async_hfl.deployment.store.node_store import NodeStore
from async_hfl.deployment.transport.admission import Role

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
    """JSON, as the cloud gave them."""
    settings_digest: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    began_at: float = 0.0
    """The cloud's clock when this node was given its number: its own goes on from there."""


def draw_run() -> int:
    return secrets.randbits(_RUN_BITS) + 1


def draw_incarnation() -> int:
    return secrets.randbits(_INCARNATION_BITS) + 1


def read_card(store: NodeStore, role: Role, name: str) -> NodeIdentity | None:
    found = store.get(IDENTITY)
    if found is None:
        return None
    card = NodeIdentity(**found)
    if (card.role, card.name) != (role, name):
        raise WrongState(
            f"{store.path}: is the state of {card.role} {card.name}, not of {role} {name}; give each node its own"
        )
    return card


def note_clock(store: NodeStore, own_at: float, cloud_at: float) -> None:
    """On every joining: what the cloud's clock said when ours said this. A label, to lay journals side by side; it
    drifts from what it was by the time that we were down."""
    store.put(CLOCK, [*(store.get(CLOCK) or []), [own_at, cloud_at]])


def keep_card(store: NodeStore, card: NodeIdentity) -> None:
    store.put(IDENTITY, asdict(card))
    store.commit()
