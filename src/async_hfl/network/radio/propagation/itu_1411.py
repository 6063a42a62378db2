"""Short paths outdoors, ITU-R P.1411.

The higher radio is the base (h_b), the lower one the mobile (h_m), whichever comes first.
"""

from __future__ import annotations

import math

import numpy as np

from async_hfl.core.arrays import Floats
from async_hfl.network.radio.propagation.surroundings import Surroundings

_HIGH_FREQUENCY_MHZ = 2000.0
_REFERENCE_MHZ = 925.0
_HALF_KILOMETRE = 500.0
_AT_ROOF_M = 1.0


def line_of_sight(distance_m: Floats, height_a: Floats, height_b: Floats, around: Surroundings) -> Floats:
    """Along a street: the mean of the lower and the upper bound (P.1411, 4.3.1).

    With the breakpoint R = 4 h_b h_m / lambda and L = |20 log10(lambda^2 / (8 pi h_b h_m))|:

        d <= R:  lower L + 20 log10(d/R),  upper L + 20 + 25 log10(d/R)
        d >  R:  lower L + 40 log10(d/R),  upper L + 20 + 40 log10(d/R)
    """
    product = height_a * height_b
    ratio = np.log10(distance_m * (around.wavelength_m / 4.0) / product)
    at_breakpoint = np.abs(20.0 * np.log10(around.wavelength_m**2 / (8.0 * math.pi) / product))
    slope = np.where(ratio <= 0.0, 22.5, 40.0)
    loss: Floats = at_breakpoint + 10.0 + slope * ratio
    return loss


def over_rooftops(distance_m: Floats, height_a: Floats, height_b: Floats, around: Surroundings) -> Floats:
    """Over the roofs and down into the street (P.1411, 4.2.2): L_bf, and L_rts + L_msd where together they are a loss.

        L_bf  = 32.4 + 20 log10(d / km) + 20 log10(f / MHz)                            free space
        L_rts = -8.2 - 10 log10(w) + 10 log10(f) + 20 log10(h_r - h_m) + L_ori         from the last roof to the street
        L_msd = many roofs in a row: `_settled` where the field has settled after them, else `_unsettled`

    With both radios above the roofs there is no street to come down to (h_r - h_m <= 0): free space.
    """
    frequency = around.frequency_mhz
    free_space: Floats = np.log10(distance_m)
    into_street: Floats = around.rooftop_m - np.minimum(height_a, height_b)
    low = np.flatnonzero(into_street > 0.0)
    many_roofs = np.empty(len(low))
    if len(low):
        above: Floats = np.maximum(height_a[low], height_b[low]) - around.rooftop_m
        distance, log_distance = distance_m[low], free_space[low]
        # d_s = lambda d^2 / (h_b - h_r)^2 against the extent l, without a division by zero at roof height
        settled = around.wavelength_m * distance**2 < around.building_extent_m * above**2
        many_roofs = np.where(
            settled,
            _settled(distance, log_distance, height_a[low], above, around),
            _unsettled(distance, above, around),
        )
    free_space = 20.0 * free_space + (32.4 - 60.0 + 20.0 * math.log10(frequency))
    constant = -8.2 - 10.0 * math.log10(around.street_width_m) + 10.0 * math.log10(frequency) + _orientation(around)
    free_space[low] += np.maximum(constant + 20.0 * np.log10(into_street[low]) + many_roofs, 0.0)
    return free_space


def _orientation(around: Surroundings) -> float:
    """L_ori: by the angle phi between street and path.

    From 55 degrees on P.1411 has 4 - 0.114 (phi - 55); ns-3 does as below, and golden values decide.
    """
    angle = around.street_orientation_deg
    if angle < 35.0:
        return -10.0 + 0.354 * angle
    if angle < 55.0:
        return 2.5 + 0.075 * (angle - 35.0)
    return 2.5 + 0.075 * (angle - 55.0)


def _settled(distance_m: Floats, log_distance: Floats, first: Floats, above: Floats, around: Surroundings) -> Floats:
    """L_msd = L_bsh + k_a + k_d log10(d / km) + k_f log10(f / MHz) - 9 log10(b).

    As ns-3 has it, which differs from P.1411 where the base is below the roofs: k_a begins at 54 at any frequency, and
    k_d = 18 - 15 (h_b - h_r) / h_a with the height of the `first` radio, be it base or mobile (P.1411: h_r). And k_f
    grows by 0.7 in a large town, by 1.5 elsewhere: P.1411 has it the other way round.
    """
    frequency = around.frequency_mhz
    high = frequency > _HIGH_FREQUENCY_MHZ
    over = above > 0.0
    shadow = np.where(over, -18.0 * np.log10(1.0 + np.maximum(above, 0.0)), 0.0)
    below: Floats = np.minimum(above, 0.0)
    start = np.where(over, 71.4 if high else 54.0, 54.0 - 0.8 * below * np.minimum(distance_m / _HALF_KILOMETRE, 1.0))
    by_distance = 18.0 - 15.0 * below / first
    if high:
        by_frequency = -8.0
    else:
        grows = 0.7 if around.environment == "urban" and around.city_size == "large" else 1.5
        by_frequency = -4.0 + grows * (frequency / _REFERENCE_MHZ - 1.0)
    constant = by_frequency * math.log10(frequency) - 9.0 * math.log10(around.building_separation_m)
    loss: Floats = shadow + start + by_distance * (log_distance - 3.0) + constant
    return loss


def _unsettled(distance_m: Floats, above: Floats, around: Surroundings) -> Floats:
    """L_msd = -10 log10(Q_M^2), with Q_M by whether the base is above, at or below the roofs.

    above:  Q_M = 2.35 ((h_b - h_r) / d sqrt(b / lambda))^0.9
    at:     Q_M = b / d                                                          (nearer than a metre)
    below:  Q_M = b / (2 pi d) sqrt(lambda / rho) (1 / theta - 1 / (2 pi + theta)),
            theta = arctan((h_b - h_r) / b), rho = sqrt((h_b - h_r)^2 + b^2)
    """
    separation, wavelength = around.building_separation_m, around.wavelength_m
    over, under = above >= _AT_ROOF_M, above <= -_AT_ROOF_M
    log_field = np.log10(separation / distance_m)
    lifted = above[over] / distance_m[over] * math.sqrt(separation / wavelength)
    log_field[over] = math.log10(2.35) + 0.9 * np.log10(lifted)
    theta = np.arctan(above[under] / separation)
    rho = np.hypot(above[under], separation)
    shape = np.sqrt(wavelength / rho) * np.abs(1.0 / theta - 1.0 / (2.0 * math.pi + theta)) / (2.0 * math.pi)
    log_field[under] += np.log10(shape)
    loss: Floats = -20.0 * log_field
    return loss
