"""Bytes per second that one TCP transfer gets over a link, alone on the air; and what several at once leave each other.

A transfer is a row of cycles: an aggregate of data, TCP's acknowledgements back, the back-off before each, and the
collisions among those who want to send (the receiver is one of them, in part: it has acknowledgements to send now and
then). Frames that arrive broken are sent again with the next aggregate, so that each takes 1 / q tries where a share q
arrives whole. The time of a transfer of b bytes alone is `startup_s` + b / goodput.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from async_hfl.core.arrays import Floats
from async_hfl.core.errors import SettingsError
from async_hfl.network.radio.wifi.airtime import PLAIN_SEGMENTS, SLOT_S, Segments, exchange_s, frames_together
from async_hfl.network.radio.wifi.contention import contention
from async_hfl.network.radio.wifi.error_rate import frame_success
from async_hfl.network.radio.wifi.modes import Mode, Width, modes
from async_hfl.network.radio.wifi.radio import PLAIN_RADIO, Radio, snr_db

ANSWERING = 0.45
"""Part of a contender that a receiver is, with its acknowledgements. Of all constants here the only one that was fitted
(to ns-3's transfers by one to eight stations); the others are the standard's."""
LEAST_SUCCESS = 0.05
"""Where fewer frames than this arrive whole, a connection does not come about or breaks: no link."""


@dataclass(frozen=True, slots=True)
class Wifi:
    """The cell of a gateway; defaults as the paper's network was simulated."""

    device: Radio = PLAIN_RADIO
    gateway: Radio = PLAIN_RADIO
    mcs: int | Literal["best"] = 0
    """A constant rate (the authors': MCS 0), or for each link the one that carries most."""
    width_mhz: Width = 20
    short_guard: bool = False
    segments: Segments = PLAIN_SEGMENTS

    def __post_init__(self) -> None:
        if self.mcs != "best" and self.mcs not in range(8):
            raise SettingsError(f"Wi-Fi: mcs = {self.mcs!r}: 0..7, or best")
        modes(self.width_mhz, self.short_guard)

    def candidates(self) -> tuple[Mode, ...]:
        every = modes(self.width_mhz, self.short_guard)
        return every if self.mcs == "best" else (every[self.mcs],)


def upload_goodput(path_loss_db: Floats, wifi: Wifi) -> Floats:
    """Device to gateway, bytes per second for each link; 0 where nothing arrives."""
    return _goodput(path_loss_db, wifi.device, wifi.gateway, wifi)


def download_goodput(path_loss_db: Floats, wifi: Wifi) -> Floats:
    """Gateway to device."""
    return _goodput(path_loss_db, wifi.gateway, wifi.device, wifi)


def clean_goodput(mode: Mode, segments: Segments, senders: int = 1) -> float:
    """All senders together, with no frame broken but by collisions."""
    return frames_together(mode, segments) * segments.segment_bytes / cycle_s(mode, segments, senders)


def cycle_s(mode: Mode, segments: Segments, senders: int = 1) -> float:
    """One aggregate of data through, and its acknowledgements back, with `senders` of data."""
    data, answer = exchange_s(mode, segments)
    wait = contention(senders + ANSWERING)
    # A collision lasts as long as the longer frame: data, unless two answers meet, which is rare.
    return data + answer + 2.0 * wait.idle_slots * SLOT_S + (1.0 + ANSWERING) * wait.collisions * data


def startup_s(wifi: Wifi) -> float:
    """Of any transfer: connection and slow start, about a cycle before the air is full."""
    return cycle_s(wifi.candidates()[0], wifi.segments)


def efficiencies(wifi: Wifi, most: int = 64) -> tuple[float, ...]:
    """For 1..most senders of data at once: what they get together, relative to one alone (for a SharedMedium)."""
    mode = wifi.candidates()[0]
    alone = cycle_s(mode, wifi.segments)
    return tuple(min(1.0, alone / cycle_s(mode, wifi.segments, senders)) for senders in range(1, most + 1))


def _goodput(path_loss_db: Floats, sender: Radio, receiver: Radio, wifi: Wifi) -> Floats:
    there = snr_db(path_loss_db, sender, receiver, wifi.width_mhz)
    back = snr_db(path_loss_db, receiver, sender, wifi.width_mhz)
    # Every frame is acknowledged, so a link must be heard both ways.
    heard = np.flatnonzero(np.isfinite(there) & np.isfinite(back))
    best = np.zeros(len(there))
    for mode in wifi.candidates():
        best[heard] = np.maximum(best[heard], _over_errors(mode, there[heard], wifi))
    return best


def _over_errors(mode: Mode, ratio_db: Floats, wifi: Wifi) -> Floats:
    whole = frame_success(mode, ratio_db, wifi.segments.frame_bytes, wifi.width_mhz)
    rate: Floats = np.where(whole >= LEAST_SUCCESS, clean_goodput(mode, wifi.segments) * whole, 0.0)
    return rate
