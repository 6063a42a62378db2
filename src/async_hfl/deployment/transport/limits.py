"""Limits of a node's sessions and transfers. The defaults suit links from 20 kB/s to a loopback."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version

from async_hfl.encoding.packet_codec import MOST_BYTES

PACKAGE = version("async-hfl")
LOWEST_VERSION, HIGHEST_VERSION = 2, 3
"""Protocol versions that this program supports (2: see `earlier_versions`). Renaming a message, or changing what a
field means, changes the protocol; a field that is added with a default does not."""
PROBE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    heartbeat_s: float = 2.0
    silence_s: float = 6.0
    """A peer that sends nothing for this long is lost; the chunks of a transfer count as a sign of life."""
    handshake_s: float = 10.0
    """A connection without a finished TLS handshake for this long is closed; so is one without a call."""
    join_s: float = 30.0
    """Timeout of each step of joining, which includes a gateway's request to the cloud."""
    stall_s: float = 60.0
    """A transfer without progress for this long is broken off; the bytes that have arrived are kept."""
    inline_bytes: int = 32 * 1024
    """A packet up to this size travels inline, on the session's stream."""
    packet_bytes: int = MOST_BYTES
    """Size of the largest packet; a node may accept less from certain peers."""
    packets_per_s: float = 100.0
    packets_at_once: float = 300.0
    """Packets and offers that are read from a device: at a steady rate, and at once."""
    frames_per_s: float = 500.0
    frames_at_once: float = 1000.0
    """Other frames that are read from a device: above all, acknowledgements of chunks."""
    heartbeats_at_once: float = 40.0
    """Heartbeats that are read from a device at once; at a steady rate, twice as many as it should send."""
    packets_waiting: int = 4
    """A device is not read while so many of its packets wait in the inbox: they would delay those of others."""
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
