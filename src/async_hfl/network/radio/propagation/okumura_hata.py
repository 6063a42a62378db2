"""Path loss in whole cells: Okumura-Hata up to 1.5 GHz, its extension by COST 231 above, and Kun at 2.6 GHz."""

from __future__ import annotations

import math

import numpy as np

from async_hfl.core.arrays import Floats
from async_hfl.network.radio.propagation.surroundings import Surroundings

_COST_231_FROM_MHZ = 1500.0


def okumura_hata(distance_m: Floats, height_a: Floats, height_b: Floats, around: Surroundings) -> Floats:
    """Return decibels. The higher radio is the base (h_b), the lower one the mobile (h_m); d in km, f in MHz.

    f <= 1500:  L = 69.55 + 26.16 log10(f) - 13.82 log10(h_b) + (44.9 - 6.55 log10(h_b)) log10(d) - a(h_m)
    f >  1500:  L = 46.3  + 33.9  log10(f) - 13.82 log10(h_b) + (44.9 - 6.55 log10(h_b)) log10(d) - a(h_m) + C
    """
    frequency = around.frequency_mhz
    log_frequency = math.log10(frequency)
    base, mobile = np.maximum(height_a, height_b), np.minimum(height_a, height_b)
    log_base = np.log10(base)
    if frequency <= _COST_231_FROM_MHZ:
        constant = 69.55 + 26.16 * log_frequency + _open_ground(around, log_frequency)
    else:
        constant = 46.3 + 33.9 * log_frequency + (3.0 if around.city_size == "large" else 0.0)
    distance = (44.9 - 6.55 * log_base) * (np.log10(distance_m) - 3.0)
    loss: Floats = constant - 13.82 * log_base + distance - _mobile_height(mobile, around, log_frequency)
    return loss


def _mobile_height(mobile: Floats, around: Surroundings, log_frequency: float) -> Floats:
    """Return a(h_m). As in ns-3, Hata's - 4.97 is left out above 1.5 GHz in a large city."""
    if around.city_size == "large":
        if around.frequency_mhz > _COST_231_FROM_MHZ:
            return np.asarray(3.2 * np.log10(11.75 * mobile) ** 2)
        if around.frequency_mhz < 200.0:
            return np.asarray(8.29 * np.log10(1.54 * mobile) ** 2 - 1.1)
        return np.asarray(3.2 * np.log10(11.75 * mobile) ** 2 - 4.97)
    return np.asarray((1.1 * log_frequency - 0.7) * mobile - (1.56 * log_frequency - 0.8))


def _open_ground(around: Surroundings, log_frequency: float) -> float:
    """Return the correction for suburbs and open areas, which lowers the loss of a town."""
    if around.environment == "suburban":
        return -2.0 * math.log10(around.frequency_mhz / 28.0) ** 2 - 5.4
    if around.environment == "open-areas":
        return -4.78 * log_frequency**2 + 18.33 * log_frequency - 40.94
    return 0.0


def kun_2600(distance_m: Floats) -> Floats:
    """Return L = 36 + 26 log10(d / m), measured at 2.6 GHz by Kun, Wang, Zhang and others (2008)."""
    loss: Floats = 36.0 + 26.0 * np.log10(distance_m)
    return loss
