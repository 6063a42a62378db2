"""Goodput of TCP over Wi-Fi: bytes per second of one transfer alone, and the total of several at once.

A transfer is a sequence of cycles: an aggregate of data, TCP's acknowledgements, the back-off before each, and
collisions with other senders (the receiver counts as a fraction of one, since it sends acknowledgements). A corrupted
frame is sent again with the next aggregate, so that each frame takes 1 / q attempts if a share q arrives intact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from async_hfl.core.arrays import Floats
from async_hfl.core.errors import SettingsError
from async_hfl.network.radio.wifi.airtime import FRAME_BYTES, SEGMENT_BYTES, SLOT_S, exchange_s, frames_together
from async_hfl.network.radio.wifi.contention import contention
from async_hfl.network.radio.wifi.error_rate import frame_success
from async_hfl.network.radio.wifi.modes import Mode, Width, modes
from async_hfl.network.radio.wifi.radio import PLAIN_RADIO, Radio, snr_db

ANSWERING = 0.45
"""Fraction of a contender for which a receiver counts, since it sends acknowledgements. This constant was fitted to
ns-3's transfers with one to eight stations; all others are from the standard."""
LEAST_SUCCESS = 0.05
"""Share of intact frames below which a connection cannot be kept: no link."""


@dataclass(frozen=True, slots=True)
class Wifi:
    """The Wi-Fi cell of a gateway, by default as in the simulation of the paper's network."""

    device: Radio = PLAIN_RADIO
    gateway: Radio = PLAIN_RADIO
    mcs: int | Literal["best"] = 0
    """A constant rate (the authors use MCS 0), or for each link the rate with the highest goodput."""
    width_mhz: Width = 20

    def __post_init__(self) -> None:
        if self.mcs != "best" and self.mcs not in range(8):
            raise SettingsError(f"Wi-Fi: mcs = {self.mcs!r}: 0..7, or best")
        modes(self.width_mhz)

    def candidates(self) -> tuple[Mode, ...]:
        every = modes(self.width_mhz)
        return every if self.mcs == "best" else (every[self.mcs],)


def upload_goodput(path_loss_db: Floats, wifi: Wifi) -> Floats:
    """Return bytes per second from device to gateway for each link; 0 if nothing arrives."""
    return _goodput(path_loss_db, wifi.device, wifi.gateway, wifi)


def download_goodput(path_loss_db: Floats, wifi: Wifi) -> Floats:
    """Return bytes per second from gateway to device for each link; 0 if nothing arrives."""
    return _goodput(path_loss_db, wifi.gateway, wifi.device, wifi)


def clean_goodput(mode: Mode) -> float:
    """Return the bytes per second of one sender if frames are lost by collisions only."""
    return frames_together(mode) * SEGMENT_BYTES / cycle_s(mode)


def cycle_s(mode: Mode, senders: int = 1) -> float:
    """Return the time of one aggregate of data and its acknowledgements, with `senders` sending data."""
    data, answer = exchange_s(mode)
    wait = contention(senders + ANSWERING)
    # A collision lasts as long as the longer frame: data, unless two acknowledgements meet, which is rare.
    return data + answer + 2.0 * wait.idle_slots * SLOT_S + (1.0 + ANSWERING) * wait.collisions * data


def efficiencies(wifi: Wifi, most: int = 64) -> tuple[float, ...]:
    """Return the total throughput of 1..most senders relative to a single one (for a SharedMedium)."""
    mode = wifi.candidates()[0]
    alone = cycle_s(mode)
    return tuple(min(1.0, alone / cycle_s(mode, senders)) for senders in range(1, most + 1))


def _goodput(path_loss_db: Floats, sender: Radio, receiver: Radio, wifi: Wifi) -> Floats:
    there = snr_db(path_loss_db, sender, receiver, wifi.width_mhz)
    back = snr_db(path_loss_db, receiver, sender, wifi.width_mhz)
    # Every frame is acknowledged, so a link must work in both directions.
    heard = np.flatnonzero(np.isfinite(there) & np.isfinite(back))
    best = np.zeros(len(there))
    for mode in wifi.candidates():
        intact = frame_success(mode, there[heard], FRAME_BYTES, wifi.width_mhz)
        rate = np.where(intact >= LEAST_SUCCESS, clean_goodput(mode) * intact, 0.0)
        best[heard] = np.maximum(best[heard], rate)
    return best
