"""The rates of 802.11n with one spatial stream (IEEE 802.11-2020, 19.5): modulation and coding schemes (MCS) 0..7."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from async_hfl.core.errors import SettingsError

Width = Literal[20, 40]
SYMBOL_S = 4e-6
"""Seconds of one OFDM symbol, with the long guard interval."""
_DATA_CARRIERS: dict[int, int] = {20: 52, 40: 108}


@dataclass(frozen=True, slots=True)
class Mode:
    """One modulation and coding scheme."""

    mcs: int
    constellation: int
    """Points of the constellation: 2 is BPSK, 4 QPSK, 16 and 64 are QAM."""
    code_rate: float
    """Data bits per transmitted bit."""
    bits_per_symbol: int
    """Data bits in one OFDM symbol."""

    @property
    def bits_per_second(self) -> float:
        return self.bits_per_symbol / SYMBOL_S


_SCHEMES = ((2, 1, 2), (4, 1, 2), (4, 3, 4), (16, 1, 2), (16, 3, 4), (64, 2, 3), (64, 3, 4), (64, 5, 6))
"""Constellation, and the code rate as a fraction."""


def modes(width_mhz: Width = 20) -> tuple[Mode, ...]:
    """Return all eight modes: 6.5 to 65 Mb/s at 20 MHz, 13.5 to 135 at 40."""
    if width_mhz not in _DATA_CARRIERS:
        raise SettingsError(f"Wi-Fi: a channel of {width_mhz} MHz; 802.11n has 20 and 40")
    carriers = _DATA_CARRIERS[width_mhz]
    return tuple(
        Mode(mcs, points, above / below, carriers * (points.bit_length() - 1) * above // below)
        for mcs, (points, above, below) in enumerate(_SCHEMES)
    )


def control_rate(mode: Mode) -> float:
    """Return the bits per second of acknowledgements: the fastest of 6, 12, 24 Mb/s that the data rate allows."""
    return max((rate for rate in (6e6, 12e6, 24e6) if rate <= mode.bits_per_second), default=6e6)
