"""Limits of a node's sessions and transfers. The defaults suit links from 20 kB/s to a loopback."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version

from async_hfl.encoding.packet_codec import MOST_BYTES

PACKAGE = version("async-hfl")
LOWEST_VERSION, HIGHEST_VERSION = 2, 2
"""Protocol versions that this program supports. Renaming a message changes the protocol."""
PROBE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    heartbeat_s: float = 2.0
    silence_s: float = 6.0
    """A peer that sends nothing for this long is lost. Chunks of a transfer count as well."""
    join_s: float = 30.0
    """Timeout of each step of joining; a gateway asks the cloud in between."""
    stall_s: float = 60.0
    """A transfer without progress for this long is broken off; what has arrived is kept."""
    inline_bytes: int = 32 * 1024
    """A packet up to this size travels inline, on the session's stream."""
    packet_bytes: int = MOST_BYTES
    """Largest packet, and the most that one peer may have on offer at once."""
    offers: int = 64
    """Offers of one peer open at once."""
    waiting_bytes: int = 64 * 2**20
    """Bytes queued for one peer; a peer that reads more slowly is disconnected."""
    backoff_first_s: float = 0.5
    backoff_most_s: float = 30.0
    spool_bytes: int = 16 * 2**30
    spool_s: float = 7 * 86400.0
    """Parts of abandoned transfers are deleted after this long."""


USUAL = Limits()
