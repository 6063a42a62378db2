"""Limits of a node's sessions and transfers. The defaults suit links from 20 kB/s to a loopback."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version

from async_hfl.encoding.packet_codec import MOST_BYTES

PACKAGE = version("async-hfl")
LOWEST_VERSION, HIGHEST_VERSION = 3, 3
"""Protocol versions that this program supports. Renaming a message changes the protocol."""
PROBE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    heartbeat_s: float = 2.0
    silence_s: float = 6.0
    """A peer that sends nothing for this long is lost; the chunks of a transfer count as a sign of life."""
    join_s: float = 30.0
    """Timeout of each step of joining, which includes a gateway's request to the cloud."""
    stall_s: float = 60.0
    """A transfer without progress for this long is broken off; the bytes that have arrived are kept."""
    inline_bytes: int = 32 * 1024
    """A packet up to this size travels inline, on the session's stream."""
    packet_bytes: int = MOST_BYTES
    """Size of the largest packet, and of all open transfers of one peer together."""
    offers: int = 64
    """The most open transfers of one peer."""
    waiting_bytes: int = 64 * 2**20
    """A peer for which more bytes than this are queued is disconnected."""
    backoff_first_s: float = 0.5
    backoff_most_s: float = 30.0
    spool_bytes: int = 16 * 2**30
    spool_s: float = 7 * 86400.0
    """Parts of abandoned transfers are deleted after this long."""


USUAL = Limits()
