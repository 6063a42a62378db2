"""The bandwidth B_j of a simulated network, resolved from `gateway.bandwidth` and compared with the demand."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np

from async_hfl.assembly.settings.loading import bandwidth_share, bytes_per_second
from async_hfl.core.errors import SettingsError
from async_hfl.core.topology import FeasibleLinks
from async_hfl.network.bandwidth import TIGHT, smallest_rates


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """B_j, the same for all gateways, in bytes per second."""

    rate: float
    demand: float
    """Mean bandwidth of a gateway with all devices in flight."""
    warnings: tuple[str, ...] = ()


def resolve_bandwidth(setting: float | str, links: FeasibleLinks, model_bytes: int, whole: float) -> Bandwidth:
    """Return B_j. `model_bytes` is M in R_ij = M / tau_ij. `whole` is the demand, that of float32 models.

    A number that excludes more than half of the devices is refused: it is most likely in another unit. Excluded devices
    are triggered only if their gateway has nothing in flight. A share cannot be in another unit, and if gateways have
    one device each, even 50 % is below every rate, so a share only gets a warning.
    """
    share, rates = bandwidth_share(setting), smallest_rates(links, model_bytes)
    rate = bytes_per_second(setting) if share is None else share * whole
    excluded = int((rates > rate).sum())
    if 2 * excluded <= len(rates):
        return Bandwidth(rate, whole)
    what = f"gateway.bandwidth = {setting if isinstance(setting, str) else f'{setting:g}'}"
    problem = (
        f"{what}: {excluded:,} of the {len(rates):,} devices take more than {rate:,.6g} bytes per second on their "
        "slowest links (R = M / tau), so they would be triggered only when nothing else is in flight at their gateway"
    )
    half = f"'{TIGHT:.0%}' is {TIGHT * whole:,.6g} bytes per second here"
    if share is None:
        least = ceil(float(np.median(rates)))
        raise SettingsError(f"{problem}; give a share of the demand ({half}), or at least {least:,}")
    return Bandwidth(rate, whole, (f"{problem}; {half}",))
