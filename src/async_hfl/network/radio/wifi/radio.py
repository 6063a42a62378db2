"""Radios and the signal-to-noise ratio between them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from async_hfl.core.arrays import Floats
from async_hfl.core.errors import SettingsError
from async_hfl.network.radio.wifi.modes import Width

_THERMAL_DBM_PER_HZ = 10.0 * math.log10(1.3803e-23 * 290.0 * 1e3)
"""k T at 290 K."""


@dataclass(frozen=True, slots=True)
class Radio:
    """One end of a link; the defaults are those of ns-3's Wi-Fi devices."""

    transmit_dbm: float = 16.0206
    """40 mW."""
    antenna_dbi: float = 0.0
    noise_figure_db: float = 7.0
    detection_dbm: float = -82.0
    """A weaker preamble is not detected, whatever the noise."""

    def __post_init__(self) -> None:
        for name in ("transmit_dbm", "antenna_dbi", "noise_figure_db", "detection_dbm"):
            if not math.isfinite(getattr(self, name)):
                raise SettingsError(f"radio: {name} = {getattr(self, name)} is not a finite number")


PLAIN_RADIO = Radio()


def noise_dbm(receiver: Radio, width_mhz: Width = 20) -> float:
    """Return the noise power of the receiver in its channel."""
    return _THERMAL_DBM_PER_HZ + 10.0 * math.log10(width_mhz * 1e6) + receiver.noise_figure_db


def snr_db(path_loss_db: Floats, sender: Radio, receiver: Radio, width_mhz: Width = 20) -> Floats:
    """Return the signal-to-noise ratio at the receiver; -inf if it does not detect the frame."""
    power = sender.transmit_dbm + sender.antenna_dbi + receiver.antenna_dbi - path_loss_db
    ratio: Floats = np.where(power >= receiver.detection_dbm, power - noise_dbm(receiver, width_mhz), -np.inf)
    return ratio
