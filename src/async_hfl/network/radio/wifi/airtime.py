"""Airtime of TCP over 802.11: aggregates of data frames, their acknowledgements, and the gaps between them.

IEEE 802.11-2020 at 5 GHz. A sender waits AIFS and its back-off, sends an aggregate (A-MPDU) of as many frames as fit
into 5.484 ms, and after a short gap (SIFS) gets a block acknowledgement. TCP's own acknowledgements come back as data
frames, one for every second segment.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from async_hfl.core.errors import SettingsError
from async_hfl.network.radio.wifi.modes import Mode, control_rate

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


@dataclass(frozen=True, slots=True)
class Segments:
    """The segmentation of an application's bytes by TCP."""

    segment_bytes: int = 1024
    segments_per_ack: int = 2
    window_bytes: int = 131_072
    """Largest number of unacknowledged bytes in flight."""

    def __post_init__(self) -> None:
        if self.segment_bytes < 1 or self.segments_per_ack < 1 or self.window_bytes < self.segment_bytes:
            raise SettingsError(
                f"TCP: segments of {self.segment_bytes} bytes, {self.segments_per_ack} for each acknowledgement, "
                f"window of {self.window_bytes} bytes; all must be above 0 and the window hold a segment"
            )

    @property
    def frame_bytes(self) -> int:
        """Size of a frame (MPDU) with one segment."""
        return _frame_bytes(self.segment_bytes)


PLAIN_SEGMENTS = Segments()


def _frame_bytes(payload: int) -> int:
    return payload + TCP_BYTES + IP_BYTES + LLC_BYTES + MAC_BYTES


def _in_aggregate(frame_bytes: int) -> int:
    """Return the size in an aggregate: with delimiter, padded to 4 bytes."""
    return -(-(frame_bytes + DELIMITER_BYTES) // 4) * 4


def data_s(mode: Mode, aggregate_bytes: int) -> float:
    """Return the time of a frame or aggregate, preamble included."""
    symbols = math.ceil((SERVICE_AND_TAIL_BITS + 8 * aggregate_bytes) / mode.bits_per_symbol)
    return PREAMBLE_S + symbols * mode.symbol_s


def block_ack_s(mode: Mode) -> float:
    """Return the time of the gap and the block acknowledgement, at the control rate, in symbols of 4 us."""
    symbols = math.ceil((SERVICE_AND_TAIL_BITS + 8 * BLOCK_ACK_BYTES) / (control_rate(mode) * 4e-6))
    return SIFS_S + LEGACY_PREAMBLE_S + symbols * 4e-6


def frames_together(mode: Mode, segments: Segments) -> int:
    """Return the number of data frames in one aggregate, at least one."""
    each = _in_aggregate(segments.frame_bytes)
    symbols = int((LONGEST_FRAME_S - PREAMBLE_S) / mode.symbol_s + 1e-9)
    by_time = (symbols * mode.bits_per_symbol - SERVICE_AND_TAIL_BITS) // (8 * each)
    window = segments.window_bytes // segments.segment_bytes
    return max(1, min(by_time, LARGEST_AGGREGATE_BYTES // each, MOST_FRAMES, window))


def exchange_s(mode: Mode, segments: Segments) -> tuple[float, float]:
    """Return (data, acknowledgement): the airtime of one full aggregate and of TCP's reply to it, without back-off."""
    frames = frames_together(mode, segments)
    answers = frames / segments.segments_per_ack
    data = AIFS_S + data_s(mode, frames * _in_aggregate(segments.frame_bytes)) + block_ack_s(mode)
    answer = AIFS_S + data_s(mode, math.ceil(answers * _in_aggregate(_frame_bytes(0)))) + block_ack_s(mode)
    return data, answer
