"""The bandwidth B_j of a simulated network, resolved from `gateway.bandwidth` and compared with the demand."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from async_hfl.assembly.settings.loading import bandwidth_share, bytes_per_second
from async_hfl.core.errors import SettingsError
from async_hfl.core.topology import FeasibleLinks
from async_hfl.network.bandwidth import TIGHT, smallest_rates


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """B_j, the same for all gateways, in bytes per second."""

    rate: float
    demand: float
    """What a gateway would need on average with all devices in flight."""
    warnings: tuple[str, ...] = ()


def resolve_bandwidth(setting: float | str, links: FeasibleLinks, model_bytes: int, whole: float) -> Bandwidth:
    """Return B_j. `model_bytes` is M in R_ij = M / tau_ij. `whole` is the demand, that of float32 models.

    A number below every R_ij is refused, since it is most likely in another unit: no device would ever fit, and devices
    would be triggered only by the rule for a gateway with nothing in flight. A share cannot be in another unit, and if
    gateways have one device each, even 50 % is below every rate. So a share only gets a warning, as does a bandwidth
    that is too small for more than half of the devices.
    """
    share, rates = bandwidth_share(setting), smallest_rates(links, model_bytes)
    rate = bytes_per_second(setting) if share is None else share * whole
    excluded = int((rates > rate).sum())
    if 2 * excluded <= len(rates):
        return Bandwidth(rate, whole)
    what = f"gateway.bandwidth = {setting if isinstance(setting, str) else f'{setting:g}'}"
    means = f"{rate:,.6g} bytes per second for each gateway"
    advice = f"half of the demand ('{TIGHT:.0%}') is {TIGHT * whole:,.6g} bytes per second here"
    least = float(rates.min())
    if rate < least and share is None:
        raise SettingsError(
            f"{what}: {means} is less than even the slowest device takes (R = M / tau = {least:,.6g}), so no device "
            f"would fit; give a share of the demand such as '{TIGHT:.0%}', or at least {ceil(least)}; {advice}"
        )
    note = (
        f"{what}: {means} is less than {excluded:,} of the {len(rates):,} devices take (the slowest takes "
        f"{least:,.6g}), so these are triggered only while nothing else is in flight at their gateway; {advice}"
    )
    return Bandwidth(rate, whole, (note,))
