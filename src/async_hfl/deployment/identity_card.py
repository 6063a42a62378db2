"""Who a node is, kept on its disk: made once with its state, the same after every restart."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from async_hfl.core.errors import UserError
from async_hfl.deployment.membership import Role
from async_hfl.deployment.store.node_store import NodeStore

_KEY = "identity"
_INCARNATION_BITS = 31
_RUN_BITS = 62


class WrongState(UserError):
    """A state directory belongs to another node or another run."""


@dataclass(frozen=True, slots=True)
class IdentityCard:
    role: Role
    name: str
    run: int
    number: int
    incarnation: int
    settings: str
    """JSON, as the cloud gave them."""
    settings_digest: str
    facts: Mapping[str, Any] = field(default_factory=dict)


def draw_run() -> int:
    return secrets.randbits(_RUN_BITS) + 1


def draw_incarnation() -> int:
    return secrets.randbits(_INCARNATION_BITS) + 1


def read_card(store: NodeStore, role: Role, name: str) -> IdentityCard | None:
    found = store.get(_KEY)
    if found is None:
        return None
    card = IdentityCard(**found)
    if (card.role, card.name) != (role, name):
        raise WrongState(
            f"{store.path}: is the state of {card.role} {card.name}, not of {role} {name}; give each node its own"
        )
    return card


def keep_card(store: NodeStore, card: IdentityCard) -> None:
    store.put(_KEY, asdict(card))
    store.commit()
