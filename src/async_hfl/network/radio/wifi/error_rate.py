"""Probability that a frame arrives without error: ns-3's YansErrorRateModel (Lacage and Henderson, "Yet Another Network
Simulator").

The bit error rate of the modulation over white noise enters the union bound of the convolutional code, truncated to its
first two terms.
"""

from __future__ import annotations

import math

import numpy as np

from async_hfl.core.arrays import Floats
from async_hfl.network.radio.wifi.modes import Mode

_SPECTRUM: dict[float, tuple[int, float, float]] = {
    1 / 2: (10, 11.0, 0.0),
    2 / 3: (6, 1.0, 16.0),
    3 / 4: (5, 8.0, 31.0),
    5 / 6: (4, 14.0, 69.0),
}
"""By code rate: free distance d_f of the punctured (133, 171) code, and the numbers of paths at d_f and d_f + 1."""


def frame_success(mode: Mode, snr_db: Floats, frame_bytes: int, width_mhz: float = 20.0) -> Floats:
    """Return, for each signal-to-noise ratio, the probability that `frame_bytes` arrive without error."""
    error = _bit_error(mode, 10.0 ** (np.asarray(snr_db, np.float64) / 10.0), width_mhz)
    free, first, second = _SPECTRUM[mode.code_rate]
    bound = first * _path_error(error, free)
    if mode.constellation > 2 and second:
        bound = bound + second * _path_error(error, free + 1)
    chance: Floats = (1.0 - np.minimum(bound, 1.0)) ** (8 * frame_bytes)
    return chance


def _bit_error(mode: Mode, snr: Floats, width_mhz: float) -> Floats:
    """Return the bit error rate before decoding; E_b / N_0 = snr B / (coded bits per second)."""
    per_bit = snr * (width_mhz * 1e6 / (mode.bits_per_second / mode.code_rate))
    points = mode.constellation
    if points == 2:
        return 0.5 * _erfc(np.sqrt(per_bit))
    bits = math.log2(points)
    one_axis = (1.0 - 1.0 / math.sqrt(points)) * _erfc(np.sqrt(1.5 * bits * per_bit / (points - 1.0)))
    error: Floats = (1.0 - (1.0 - one_axis) ** 2) / bits
    return error


def _path_error(error: Floats, distance: int) -> Floats:
    """Return P_d, the probability that a wrong path at `distance` bits is decoded as the right one."""
    total = np.zeros_like(error)
    for wrong in range((distance + 1) // 2, distance + 1):
        term = math.comb(distance, wrong) * error**wrong * (1.0 - error) ** (distance - wrong)
        total += 0.5 * term if 2 * wrong == distance else term
    return total


_ERFC = np.frompyfunc(math.erfc, 1, 1)


def _erfc(values: Floats) -> Floats:
    """Return the complementary error function, which numpy lacks. It is computed only once per run."""
    result: Floats = np.asarray(_ERFC(values), np.float64)
    return result
