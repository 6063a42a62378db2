"""Devices and gateways at random places in a square."""

from __future__ import annotations

import numpy as np
import pytest
from radio_maps import radio_request, straight_air

from async_hfl.core.errors import SettingsError
from async_hfl.network.radio.links import LinkRules
from async_hfl.network.topologies.random_geometric import Square, random_geometric

MODEL = 10_000
RULES = LinkRules(least_rate=1000, links=5)


def test_every_device_has_a_link() -> None:
    network = random_geometric(radio_request(300, 25, MODEL, 3, straight_air(), 120.0, link_rules=RULES))
    links, positions = network.links, network.positions
    assert positions is not None
    assert (links.devices, links.gateways) == (300, 25)
    each = np.diff(links.row_start)
    assert (each >= 1).all()
    assert each.max() == 5
    assert positions.device_x.max() <= 600
    length = np.hypot(
        positions.device_x[links.link_device] - positions.gateway_x[links.link_gateway],
        positions.device_y[links.link_device] - positions.gateway_y[links.link_gateway],
    )
    assert length.max() <= 98, "1 kB/s up from 98 m"
    assert "drawn again" in network.notes[1]
    again = random_geometric(radio_request(300, 25, MODEL, 3, straight_air(), 120.0, link_rules=RULES))
    assert again.links.expected_latency.tolist() == links.expected_latency.tolist()
    other = random_geometric(radio_request(300, 25, MODEL, 4, straight_air(), 120.0, link_rules=RULES))
    assert other.links.expected_latency.tolist() != links.expected_latency.tolist()


def test_gateways_too_far_apart() -> None:
    with pytest.raises(SettingsError, match=r"devices found no place with a link in 50 draws; put gateways closer"):
        random_geometric(radio_request(50, 4, MODEL, 3, straight_air(), 50_000.0, link_rules=RULES))


def test_squares_are_checked() -> None:
    with pytest.raises(SettingsError, match="a spacing of 0 m"):
        Square(spacing=0)
    with pytest.raises(SettingsError, match=r"devices at heights of 9.0 to 8.0 m"):
        Square(lowest_device=9.0, highest_device=8.0)
    with pytest.raises(SettingsError, match="0 devices and 1 gateways"):
        random_geometric(radio_request(0, 1, MODEL, 1, straight_air()))
