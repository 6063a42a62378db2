"""How long, how much, how often. One value for a node; the defaults suit links from 20 kB/s to a loopback."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version

from async_hfl.encoding.packet_codec import MOST_BYTES

PACKAGE = version("async-hfl")
LOWEST_VERSION, HIGHEST_VERSION = 1, 1
"""Of the protocol, that this program speaks."""
PROBE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    heartbeat_s: float = 2.0
    silence_s: float = 6.0
    """A peer of whom nothing was heard for so long is lost. Chunks of a transfer are heard, too."""
    join_s: float = 30.0
    """For each step of joining; a gateway asks the cloud in between."""
    stall_s: float = 60.0
    """A transfer without progress for so long is broken off; what arrived is kept."""
    inline_bytes: int = 32 * 1024
    """A parcel up to here travels on the session's stream, whole."""
    parcel_bytes: int = MOST_BYTES
    """Of one parcel, and of all that one peer has on offer at once."""
    offers: int = 64
    """Of one peer, open at once."""
    waiting_bytes: int = 64 * 2**20
    """Small frames waiting for one peer; one that reads no more than this is cut off."""
    backoff_first_s: float = 0.5
    backoff_most_s: float = 30.0
    spool_bytes: int = 16 * 2**30
    spool_s: float = 7 * 86400.0
    """Parts of transfers that nobody came back for are deleted after so long."""


USUAL = Limits()
