"""The request of a node to join a run, and the answer.

Only processes use names; the state machines use numbers. The cloud assigns each name a number, once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from async_hfl.core.identifiers import Address
from async_hfl.core.protocol.messages import Outcome

Role = Literal["cloud", "gateway", "device", "operator"]
RefusalKind = Literal["not_yet", "finished", "refused", "went_back"]


@dataclass(frozen=True, slots=True)
class Mark:
    """The progress of the exchange of packets between two nodes, as one of them knows it."""

    tier: int
    """Address of the other node, with `number`."""
    number: int
    incarnation: int
    """Incarnation of the other node."""
    sent: int
    """Number of the last packet sent to it."""
    acknowledged: int
    """The highest number that this incarnation has acknowledged."""
    seen: int
    """The highest number seen from this incarnation."""


@dataclass(frozen=True, slots=True)
class Joining:
    """A request to join: from a gateway to the cloud, or from a device to a gateway, which forwards it to the cloud."""

    role: Role
    name: str
    """Checked against the certificate, if there is one."""
    incarnation: int
    """Drawn when the state directory was created; it identifies the disk."""
    run: int = 0
    """The run that the node belongs to; 0 if none."""
    samples: int = 0
    compute_s: float = 0.0
    """Expected duration of one training; 0 until the device knows task and settings."""
    via: Address | None = None
    """The gateway that forwards a device's request."""
    ready: bool = True
    """False for a device that only asks for its number, task and settings, and cannot train yet."""
    compares: bool = False
    """True if the node keeps marks; release 0.2.0 does not."""
    marks: tuple[Mark, ...] = ()
    """The node's knowledge of its exchange with each server that it has joined."""
    knows: Mapping[str, int] = field(default_factory=dict)
    """The highest numbers that a gateway knows, such as the cloud epoch, by name. An operator is told them."""


@dataclass(frozen=True, slots=True)
class Admission:
    run: int
    peer: Address
    """Address of the server."""
    number: int
    """Number of the joining node."""
    at: float
    """Time on the cloud's clock."""
    settings: str
    """Settings of the run, as JSON."""
    settings_digest: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Facts about the task, such as model_size, for nodes that have not loaded it."""
    incarnation: int = 0
    """Incarnation of the server; 0 if it does not compare marks."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """not_yet: ask again later. finished: the run is over. refused: an operator must act. went_back: the state of the
    node that joins is an older copy; it must join as a new incarnation."""

    kind: RefusalKind
    reason: str
    detail: str = ""
    """finished: the digest of the final model."""
    epoch: int = 0
    """finished: the cloud epoch of the final model."""
    outcomes: tuple[tuple[int, Outcome], ...] = ()
    """finished, to a gateway: outcomes of its uploads, by number, in case it does not know them."""


Admit = Callable[[Joining, float], Awaitable[Admission | Refusal]]
"""Decides on a request to join, given the seconds that a probe of 64 KiB took on the link (0 if not measured)."""
