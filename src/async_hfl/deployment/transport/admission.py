"""What a node says of itself when it joins, and what it is told.

Names live here, at the edge; nodes know numbers. The cloud gives a name its number once and for ever.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from async_hfl.core.identifiers import Address
from async_hfl.core.protocol.messages import Outcome

Role = Literal["cloud", "gateway", "device", "operator"]
RefusalKind = Literal["not_yet", "finished", "refused"]


@dataclass(frozen=True, slots=True)
class Joining:
    """A gateway to the cloud, a device to a gateway (which passes it on to the cloud)."""

    role: Role
    name: str
    """From the certificate; stated, where there is none."""
    incarnation: int
    """Drawn when the node's state was made: another number means that its disk is another."""
    run: int = 0
    """The run it remembers; 0: none."""
    package: str = ""
    """Version of async-hfl."""
    task: str = ""
    """Name of the task a device is installed with; empty: it takes what the cloud says."""
    settings_digest: str = ""
    """Of the settings it remembers; empty: none."""
    samples: int = 0
    compute_s: float = 0.0
    """Expected time of one training; 0 while a device does not know (it learns task and settings first)."""
    via: Address | None = None
    """The gateway that passes a device's joining on to the cloud."""
    ready: bool = True
    """A device that has not compiled yet says False: it is told number, task and settings and takes no part."""


@dataclass(frozen=True, slots=True)
class Admission:
    run: int
    peer: Address
    """Who admits: the cloud, or the gateway's number."""
    number: int
    """The joining node's own."""
    at: float
    """The cloud's clock: a label, never compared with another machine's."""
    settings: str
    """JSON."""
    settings_digest: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What a node needs to know of the task without having it: model_bytes, gradient_size, learning_rate."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """not_yet: ask again later. finished: the run is over, `detail` is the final model's digest. refused: tell a
    person."""

    kind: RefusalKind
    reason: str
    detail: str = ""
    epoch: int = 0
    """finished: of that model."""
    outcomes: tuple[tuple[int, Outcome], ...] = ()
    """finished, to a gateway: what became of its uploads, by number, should it not have heard."""


Admit = Callable[[Joining, float], Awaitable[Admission | Refusal]]
"""The server's side: given what came and the seconds that a probe of 64 KiB took on the link (0: not measured)."""
