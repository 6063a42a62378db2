"""The surroundings of two radios: the parameters of all path loss models in one value."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from async_hfl.core.errors import SettingsError

Environment = Literal["urban", "suburban", "open-areas"]
CitySize = Literal["small", "medium", "large"]

SPEED_OF_LIGHT = 299_792_458.0
PAPER_FREQUENCY_MHZ = 2160.0
"""The default of ns-3's model, used in the paper's simulation although its radios are at 5 GHz."""

_ABOVE_ZERO = ("frequency_mhz", "rooftop_m", "street_width_m", "building_extent_m", "building_separation_m")
_ZERO_OR_MORE = ("line_of_sight_limit_m", "rooftop_limit_m", "inner_wall_db", "shadowing_outdoor_db")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """All parameters of ns-3's model, with its defaults except for the environment, which follows the paper."""

    frequency_mhz: float = PAPER_FREQUENCY_MHZ
    environment: Environment = "urban"
    city_size: CitySize = "large"
    rooftop_m: float = 20.0
    """h_r: height of the roofs."""
    street_width_m: float = 20.0
    """w: width of the street."""
    street_orientation_deg: float = 45.0
    """phi: angle between the street and the direct path."""
    building_extent_m: float = 80.0
    """l: extent of the rows of buildings along the path."""
    building_separation_m: float = 50.0
    """b: distance from the middle of one building to the middle of the next."""
    line_of_sight_limit_m: float = 200.0
    """Radios nearer than this are assumed to be in line of sight."""
    rooftop_limit_m: float = 1000.0
    """Beyond this, unless both radios are below the roofs, a whole-cell model replaces the rooftop model."""
    inner_wall_db: float = 5.0
    """Loss of each wall between two rooms."""
    shadowing_outdoor_db: float = 7.0
    """Sigma of the log-normal shadowing between radios outdoors."""

    def __post_init__(self) -> None:
        for name in _ABOVE_ZERO:
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise SettingsError(f"propagation: {name} = {value} is not a positive number")
        for name in _ZERO_OR_MORE:
            value = getattr(self, name)
            if math.isnan(value) or value < 0:
                raise SettingsError(f"propagation: {name} = {value} is not a number, 0 or more")
        if not 0.0 <= self.street_orientation_deg <= 90.0:
            raise SettingsError(
                f"propagation: street_orientation_deg = {self.street_orientation_deg} is not an angle of 0..90 degrees"
            )
        for name, choices in (("environment", get_args(Environment)), ("city_size", get_args(CitySize))):
            if getattr(self, name) not in choices:
                raise SettingsError(f"propagation: {name} = {getattr(self, name)!r}: choose from {', '.join(choices)}")

    @property
    def wavelength_m(self) -> float:
        """lambda."""
        return SPEED_OF_LIGHT / (self.frequency_mhz * 1e6)


PAPER_SURROUNDINGS = Surroundings()
