"""Joining a run: what a node states about itself, and the answer.

Names are used at the edge only; the state machines know numbers. The cloud assigns a number to each name once.
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
    """Sent by a gateway to the cloud, and by a device to a gateway, which forwards it to the cloud."""

    role: Role
    name: str
    """As in the certificate; only stated where there is none."""
    incarnation: int
    """Drawn when the state directory was created: another number means another disk."""
    run: int = 0
    """The run that the node belongs to; 0 if none."""
    package: str = ""
    """Version of async-hfl."""
    task: str = ""
    """Name of the task installed on a device; empty if it uses the cloud's."""
    settings_digest: str = ""
    """Digest of the settings that the node has; empty if none."""
    samples: int = 0
    compute_s: float = 0.0
    """Expected time of one training; 0 until the device knows task and settings."""
    via: Address | None = None
    """The gateway that forwards the joining of a device."""
    ready: bool = True
    """False for a device that has not compiled yet: it asks for number, task and settings, and takes no part."""


@dataclass(frozen=True, slots=True)
class Admission:
    run: int
    peer: Address
    """Address of the node that admits."""
    number: int
    """Number of the joining node."""
    at: float
    """The cloud's clock; never compared with the clock of another machine."""
    settings: str
    """As JSON."""
    settings_digest: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Facts about the task that a node needs without having it, like model_bytes."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """not_yet: ask again later. finished: the run is over, `detail` is the digest of the final model. refused: an
    operator must act."""

    kind: RefusalKind
    reason: str
    detail: str = ""
    epoch: int = 0
    """finished: the cloud epoch of the final model."""
    outcomes: tuple[tuple[int, Outcome], ...] = ()
    """finished, to a gateway: the outcomes of its uploads by number, in case it does not know them."""


Admit = Callable[[Joining, float], Awaitable[Admission | Refusal]]
"""Decides on a joining, given the seconds that a probe of 64 KiB took on the link (0 if not measured)."""
