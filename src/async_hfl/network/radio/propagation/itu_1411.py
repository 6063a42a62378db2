"""Path loss of short outdoor paths, ITU-R P.1411. The higher radio is the base (h_b), the lower the mobile (h_m)."""

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
    """Return the loss along a street: the mean of the lower and the upper bound (P.1411, 4.3.1).

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
    """Return the loss over the roofs and down into the street (P.1411, 4.2.2): L_bf + max(0, L_rts + L_msd).

        L_bf  = 32.4 + 20 log10(d / km) + 20 log10(f / MHz)                            free space
        L_rts = -8.2 - 10 log10(w) + 10 log10(f) + 20 log10(h_r - h_m) + L_ori         from the last roof to the street
        L_msd = rows of roofs: `_settled` if the field has settled after them, else `_unsettled`

    If both radios are above the roofs (h_r - h_m <= 0), only the free-space loss remains.
    """
    frequency = around.frequency_mhz
    free_space: Floats = np.log10(distance_m)
    into_street: Floats = around.rooftop_m - np.minimum(height_a, height_b)
    low = np.flatnonzero(into_street > 0.0)
    many_roofs = np.empty(len(low))
    if len(low):
        above: Floats = np.maximum(height_a[low], height_b[low]) - around.rooftop_m
        distance, log_distance = distance_m[low], free_space[low]
        # d_s = lambda d^2 / (h_b - h_r)^2 compared with the extent l, without dividing by zero at roof height
        settled = around.wavelength_m * distance**2 < around.building_extent_m * above**2
        many_roofs = np.where(
            settled, _settled(distance, log_distance, height_a[low], above, around), _unsettled(distance, above, around)
        )
    free_space = 20.0 * free_space + (32.4 - 60.0 + 20.0 * math.log10(frequency))
    constant = -8.2 - 10.0 * math.log10(around.street_width_m) + 10.0 * math.log10(frequency) + _orientation(around)
    free_space[low] += np.maximum(constant + 20.0 * np.log10(into_street[low]) + many_roofs, 0.0)
    return free_space


def _orientation(around: Surroundings) -> float:
    """Return L_ori, the loss for the angle phi between street and path.

    From 55 degrees on P.1411 has 4 - 0.114 (phi - 55). The formula here is that of ns-3, whose values the tests check.
    """
    angle = around.street_orientation_deg
    if angle < 35.0:
        return -10.0 + 0.354 * angle
    if angle < 55.0:
        return 2.5 + 0.075 * (angle - 35.0)
    return 2.5 + 0.075 * (angle - 55.0)


def _settled(distance_m: Floats, log_distance: Floats, first: Floats, above: Floats, around: Surroundings) -> Floats:
    """Return L_msd = L_bsh + k_a + k_d log10(d / km) + k_f log10(f / MHz) - 9 log10(b).

    This is ns-3's version. It differs from P.1411 if the base is below the roofs: k_a starts at 54 at any frequency,
    and k_d = 18 - 15 (h_b - h_r) / h_a with the height of the `first` radio, base or mobile (P.1411: h_r). k_f grows by
    0.7 in a large town and by 1.5 elsewhere; P.1411 has it the other way round.
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
    """Return L_msd = -10 log10(Q_M^2); Q_M depends on the base being above, at or below the roofs.

    above:  Q_M = 2.35 ((h_b - h_r) / d sqrt(b / lambda))^0.9
    at:     Q_M = b / d                                                          (within a metre)
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
