"""The bandwidth of gateways: resolved, compared with the devices' rates, refused or warned of."""

from __future__ import annotations

import numpy as np
import pytest

from async_hfl.assembly.build.bandwidth import Bandwidth, resolve_bandwidth
from async_hfl.assembly.build.simulation import build
from async_hfl.assembly.settings.loading import compose
from async_hfl.core.errors import SettingsError
from async_hfl.core.topology import feasible_links
from async_hfl.network.bandwidth import demand

# Rates of a model of 100 bytes: device 0: 10 or 5; device 1: 20; device 2: 25 and 25. Demand: (35 + 20) / 2 = 27.5.
LINKS = feasible_links(
    3, 3, np.array([0, 0, 1, 2, 2]), np.array([0, 1, 1, 0, 1]), np.array([10.0, 20.0, 5.0, 4.0, 4.0])
)


def test_a_number_that_is_too_small_for_most_devices_is_refused() -> None:
    """On their slowest links, the devices take 5, 20 and 25 bytes per second."""
    assert resolve_bandwidth(20.0, LINKS, 100, demand(LINKS, 100)) == Bandwidth(20.0, 27.5)
    with pytest.raises(SettingsError) as refused:
        resolve_bandwidth(19.9, LINKS, 100, demand(LINKS, 100))
    assert str(refused.value) == (
        "gateway.bandwidth = 19.9: 2 of the 3 devices take more than 19.9 bytes per second on their slowest links "
        "(R = M / tau), so they would be triggered only when nothing else is in flight at their gateway; give a share "
        "of the demand ('50%' is 13.75 bytes per second here), or at least 20"
    )


def test_a_share_is_never_refused_but_warned_of() -> None:
    """With one device for each gateway half of the demand is below every rate, and that is the default."""
    [warning] = resolve_bandwidth("1%", LINKS, 100, demand(LINKS, 100)).warnings
    assert "3 of the 3 devices take more than 0.275 bytes per second" in warning


@pytest.mark.parametrize("setting", ["100%", "323%", "unlimited", 1e6])
def test_usual_values(setting: str | float) -> None:
    assert resolve_bandwidth(setting, LINKS, 100, demand(LINKS, 100)).warnings == ()


def test_a_device_without_a_link_needs_nothing_that_could_be_given() -> None:
    links = feasible_links(3, 1, np.array([0, 1]), np.array([0, 0]), np.array([10.0, 10.0]))
    assert resolve_bandwidth(10.0, links, 100, demand(links, 100)).warnings == ()


def test_a_run_with_bytes_for_kilobytes_is_refused_before_it_begins() -> None:
    settings = compose(task="null", network="uniform", overrides=["gateway.bandwidth=0.01"]).settings
    with pytest.raises(SettingsError, match=r"gateway\.bandwidth = 0\.01: .*'50%' is .* or at least \d+"):
        build(settings, 1)
