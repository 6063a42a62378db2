"""Networks on the map of NYC Mesh: the packaged maps, the gateways, and the devices drawn."""

from __future__ import annotations

import numpy as np
import pytest
from radio_maps import radio_request, straight_air

from async_hfl.core.errors import SettingsError
from async_hfl.network.radio.air import Air, make_air
from async_hfl.network.radio.links import LinkRules
from async_hfl.network.radio.propagation.surroundings import Surroundings
from async_hfl.network.radio.wifi.goodput import Wifi
from async_hfl.network.radio.wifi.radio import Radio
from async_hfl.network.topologies.mesh_sites import mesh_sites
from async_hfl.network.topologies.nycmesh import choose_gateways, nycmesh

MODEL = 600_000


def city(shadowing_db: float = 7.0) -> Air:
    gateway, device = Radio(20.0, 12.0, 7.0, -92.0), Radio(16.0, 6.0, 7.0, -92.0)
    return make_air(
        Surroundings(frequency_mhz=5180.0, shadowing_outdoor_db=shadowing_db), Wifi(device, gateway, "best")
    )


def test_packaged_maps() -> None:
    early, late = mesh_sites("2022-04-04"), mesh_sites("2024-07-23")
    assert (len(early.places), early.left_out, early.unknown_height, early.median_height) == (1065, 3, 2, 30)
    assert (len(late.places), late.left_out, late.unknown_height, late.median_height) == (1335, 0, 3, 33)
    assert (int(early.hub.sum()), int(late.hub.sum())) == (70, 65)
    numbers = early.places.key.tolist()
    assert numbers == sorted(set(numbers))
    assert not {323, 3207, 8306} & set(numbers), "in Colorado, upstate and in California"
    for sites in (early, late):
        assert sites.places.height.min() == 3
        assert sites.places.height.max() == 180
        assert np.hypot(sites.places.x, sites.places.y).max() < 30_000


def test_a_network_of_184() -> None:
    network = nycmesh("nycmesh", radio_request(184, 6, MODEL, 1, city()))
    links, positions = network.links, network.positions
    assert positions is not None
    assert (links.devices, links.gateways) == (184, 6)
    assert (np.diff(links.row_start) >= 1).all(), "every device has a link"
    assert len(set(positions.device_names) | set(positions.gateway_names)) == 190, "no site twice"
    assert not positions.estimated
    assert "installed sites of NYC Mesh as of 2022-04-04" in network.notes
    assert network.credit == "Sites: NYC Mesh (nycmesh.net)"
    transfer = links.expected_latency - 60.0
    assert (transfer <= 2 * 0.02 + 2 * MODEL / 10_000 + 1e-9).all(), "every link carries 10 kB/s both ways"
    assert transfer.min() >= 0.04
    for link in range(0, len(transfer), 17):
        i, j = int(links.link_device[link]), int(links.link_gateway[link])
        delays = network.delays
        there, back = delays.to_device(j, i, MODEL), delays.to_gateway(i, j, MODEL)
        assert there + delays.compute(i) + back == links.expected_latency[link]
        assert delays.to_gateway(i, j, 2 * MODEL) > back, "a bigger model is slower"


def test_the_seed_draws_devices_and_nothing_else() -> None:
    one, same, other = (nycmesh("nycmesh", radio_request(60, 6, MODEL, seed, city(0.0))) for seed in (1, 1, 2))
    more = nycmesh("nycmesh", radio_request(90, 6, MODEL, 1, city(0.0)))
    assert one.positions and same.positions and other.positions and more.positions  # noqa: PT018
    assert one.links.expected_latency.tolist() == same.links.expected_latency.tolist()
    assert one.positions.gateway_names == other.positions.gateway_names
    assert one.positions.device_names != other.positions.device_names
    assert one.positions.device_names == more.positions.device_names[:60]
    count = len(one.links.link_device)
    assert one.links.expected_latency.tolist() == more.links.expected_latency[:count].tolist()


@pytest.mark.parametrize(("name", "date"), [("nycmesh", "2022-04-04"), ("nycmesh-2024", "2024-07-23")])
def test_gateways_are_hubs_as_long_as_there_are_some(name: str, date: str) -> None:
    sites = mesh_sites(date)  # type: ignore[arg-type]
    few = choose_gateways(sites, 6, city(), LinkRules())
    many = choose_gateways(sites, int(sites.hub.sum()) + 5, city(), LinkRules())
    assert sites.hub[few].all()
    assert many[:6].tolist() == few.tolist()
    assert sites.hub[many].sum() == sites.hub.sum()
    assert len(set(many.tolist())) == len(many)
    network = nycmesh(name, radio_request(100, len(many), MODEL, 1, city()))
    assert "5 gateways stand at ordinary sites: there are no more hubs" in network.notes


def test_too_many_devices_or_gateways() -> None:
    with pytest.raises(SettingsError, match="no more together than its 1065 sites"):
        nycmesh("nycmesh", radio_request(1060, 6, MODEL, 1, city()))
    with pytest.raises(SettingsError, match="at least one of each"):
        nycmesh("nycmesh", radio_request(0, 6, MODEL, 1, city()))
    with pytest.raises(SettingsError, match=r"its 1 gateways reach \d+ of the other 1064 sites; 500 devices"):
        nycmesh("nycmesh", radio_request(500, 1, MODEL, 1, straight_air(300.0)))
