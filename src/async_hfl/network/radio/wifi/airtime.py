"""Airtime of TCP over 802.11: aggregates of data frames, their acknowledgements, and the gaps between them.

IEEE 802.11-2020 at 5 GHz. A sender waits AIFS and its back-off, sends an aggregate (A-MPDU) of as many frames as fit
into 5.484 ms, and after a short gap (SIFS) gets a block acknowledgement. TCP's own acknowledgements come back as data
frames, one for every second segment.
"""

from __future__ import annotations

import math

from async_hfl.network.radio.wifi.modes import SYMBOL_S, Mode, control_rate

SLOT_S = 9e-6
SIFS_S = 16e-6
AIFS_S = SIFS_S + 3 * SLOT_S
"""For the best-effort access category."""
PREAMBLE_S = 36e-6
"""HT mixed format, one spatial stream."""
LEGACY_PREAMBLE_S = 20e-6
LONGEST_FRAME_S = 5.484e-3
BLOCK_ACK_BYTES = 32
LARGEST_AGGREGATE_BYTES = 65_535
MOST_FRAMES = 64
"""Limit of one block acknowledgement."""
SERVICE_AND_TAIL_BITS = 22
MAC_BYTES = 26 + 4
"""QoS header and checksum."""
LLC_BYTES = 8
IP_BYTES = 20
TCP_BYTES = 20 + 12
"""With the timestamp option."""
DELIMITER_BYTES = 4
SEGMENT_BYTES = 1024
"""Bytes of the application in one TCP segment."""
SEGMENTS_PER_ACK = 2
WINDOW_BYTES = 131_072
"""Largest number of unacknowledged bytes in flight."""
ACK_FRAME_BYTES = TCP_BYTES + IP_BYTES + LLC_BYTES + MAC_BYTES
"""Size of a frame (MPDU) with a TCP acknowledgement."""
FRAME_BYTES = SEGMENT_BYTES + ACK_FRAME_BYTES
"""Size of a frame with one segment."""


def _in_aggregate(frame_bytes: int) -> int:
    """Return the size in an aggregate: with delimiter, padded to 4 bytes."""
    return -(-(frame_bytes + DELIMITER_BYTES) // 4) * 4


def data_s(mode: Mode, aggregate_bytes: int) -> float:
    """Return the time of a frame or aggregate, preamble included."""
    symbols = math.ceil((SERVICE_AND_TAIL_BITS + 8 * aggregate_bytes) / mode.bits_per_symbol)
    return PREAMBLE_S + symbols * SYMBOL_S


def block_ack_s(mode: Mode) -> float:
    """Return the time of the gap and the block acknowledgement, which is sent at the control rate."""
    symbols = math.ceil((SERVICE_AND_TAIL_BITS + 8 * BLOCK_ACK_BYTES) / (control_rate(mode) * SYMBOL_S))
    return SIFS_S + LEGACY_PREAMBLE_S + symbols * SYMBOL_S


def frames_together(mode: Mode) -> int:
    """Return the number of data frames in one aggregate, at least one."""
    each = _in_aggregate(FRAME_BYTES)
    symbols = int((LONGEST_FRAME_S - PREAMBLE_S) / SYMBOL_S + 1e-9)
    by_time = (symbols * mode.bits_per_symbol - SERVICE_AND_TAIL_BITS) // (8 * each)
    return max(1, min(by_time, LARGEST_AGGREGATE_BYTES // each, MOST_FRAMES, WINDOW_BYTES // SEGMENT_BYTES))


def exchange_s(mode: Mode) -> tuple[float, float]:
    """Return (data, acknowledgement): the airtime of one full aggregate and of TCP's reply to it, without back-off."""
    frames = frames_together(mode)
    reply_bytes = math.ceil(frames / SEGMENTS_PER_ACK * _in_aggregate(ACK_FRAME_BYTES))
    data = AIFS_S + data_s(mode, frames * _in_aggregate(FRAME_BYTES)) + block_ack_s(mode)
    return data, AIFS_S + data_s(mode, reply_bytes) + block_ack_s(mode)
