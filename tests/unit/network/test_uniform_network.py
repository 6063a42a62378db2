"""Uniform networks: the dealing of links, the rates and compute times that are drawn, and their checks."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_hfl.core.errors import SettingsError
from async_hfl.network.delays.rates import RateDelays
from async_hfl.network.topologies.rated_network import Wire
from async_hfl.network.topologies.uniform import UniformRanges, distinct_gateways, uniform

MODEL = 290_000
sizes = st.tuples(st.integers(1, 40), st.integers(1, 12)).flatmap(
    lambda size: st.tuples(st.just(size[0]), st.just(size[1]), st.integers(1, size[1]))
)
seeds = st.integers(0, 2**32)


@given(sizes, seeds)
def test_rows_are_distinct_and_cover_every_gateway(size: tuple[int, int, int], seed: int) -> None:
    devices, gateways, each = size
    rows = distinct_gateways(devices, gateways, each, np.random.default_rng(seed))
    assert rows.shape == (devices, each)
    assert rows.min() >= 0
    assert rows.max() < gateways
    assert (np.diff(rows, axis=1) > 0).all()
    assert len(np.unique(rows)) == gateways if devices * each >= gateways else len(np.unique(rows)) == devices * each


def test_every_gateway_is_equally_likely_for_every_device() -> None:
    """Over many draws each of device 0's links is at each gateway in 3 of 7 cases (sd 0.011)."""
    random = np.random.default_rng(5)
    count = np.zeros(7)
    for _ in range(2000):
        count[distinct_gateways(4, 7, 3, random)[0]] += 1
    np.testing.assert_allclose(count / 2000, 3 / 7, atol=0.05)


def test_first_links_are_dealt_evenly() -> None:
    rows = distinct_gateways(1000, 10, 1, np.random.default_rng(0))
    assert np.bincount(rows.ravel()).tolist() == [100] * 10


@given(sizes, seeds)
def test_a_network_is_valid_and_a_round_takes_what_is_expected(size: tuple[int, int, int], seed: int) -> None:
    devices, gateways, each = size
    network = uniform(devices, gateways, MODEL, seed, each)
    links, delays = network.links, network.delays
    assert (links.devices, links.gateways, len(links.link_device)) == (devices, gateways, devices * each)
    assert ((network.expected_compute >= 15) & (network.expected_compute <= 100)).all()
    for i, j, expected in zip(
        links.link_device.tolist(), links.link_gateway.tolist(), links.expected_latency.tolist(), strict=True
    ):
        down, up = delays.to_device(j, i, MODEL), delays.to_gateway(i, j, MODEL)
        assert down + delays.compute(i) + up == expected
        assert 0.02 + MODEL / 1e6 <= min(down, up) <= max(down, up) <= 0.02 + MODEL / 50e3
    assert [delays.compute(i) for i in range(devices)] == network.expected_compute.tolist()
    assert delays.gateway_to_cloud(gateways - 1, MODEL) == pytest.approx(0.02 + MODEL / 12.5e6)


@given(sizes, seeds)
def test_the_seed_decides_everything(size: tuple[int, int, int], seed: int) -> None:
    devices, gateways, each = size
    one, two = uniform(devices, gateways, MODEL, seed, each), uniform(devices, gateways, MODEL, seed, each)
    other = uniform(devices, gateways, MODEL, seed + 1, each)
    assert one.links.link_gateway.tolist() == two.links.link_gateway.tolist()
    assert one.links.expected_latency.tolist() == two.links.expected_latency.tolist()
    assert one.expected_compute.tolist() == two.expected_compute.tolist()
    assert one.expected_compute.tolist() != other.expected_compute.tolist()


def test_each_property_has_its_own_random_stream() -> None:
    """Other compute times or another model do not change the links and their rates."""
    one = uniform(20, 5, MODEL, 3)
    two = uniform(20, 5, 2 * MODEL, 3, ranges=UniformRanges(min_compute=1, max_compute=2))
    assert one.links.link_gateway.tolist() == two.links.link_gateway.tolist()
    for i, j in zip(one.links.link_device.tolist(), one.links.link_gateway.tolist(), strict=True):
        assert one.delays.to_device(j, i, 1000) == two.delays.to_device(j, i, 1000)
        assert one.delays.to_gateway(i, j, 1000) == two.delays.to_gateway(i, j, 1000)


def test_downloads_and_uploads_are_drawn_separately() -> None:
    network = uniform(1, 1, MODEL, 0)
    assert network.delays.to_device(0, 0, MODEL) != network.delays.to_gateway(0, 0, MODEL)


@pytest.mark.parametrize(("gateways", "wanted"), [(1, 1), (2, 2), (3, 3), (9, 3)])
def test_three_links_unless_there_are_fewer_gateways(gateways: int, wanted: int) -> None:
    assert len(uniform(5, gateways, MODEL, 0).links.link_device) == 5 * wanted


def test_a_range_may_be_a_point() -> None:
    ranges = UniformRanges(100.0, 100.0, 7.0, 7.0)
    network = uniform(3, 2, 1000, 0, ranges=ranges, wire=Wire(0.0, 10.0, 1.0))
    assert network.links.expected_latency.tolist() == [27.0] * 6
    assert network.delays.cloud_to_gateway(1, 20) == 3.0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"min_rate": -1.0}, "min_rate = -1.0 is not a positive number of bytes per second"),
        ({"min_rate": 0.0}, "min_rate = 0.0 is not a positive"),
        ({"max_rate": float("inf")}, "max_rate = inf is not a positive"),
        ({"backhaul_rate": -5.0}, "backhaul_rate = -5.0 is not a positive"),
        ({"min_compute": -1.0}, "min_compute = -1.0 is not a number of seconds"),
        ({"link_latency": float("nan")}, "link_latency = nan is not a number of seconds"),
        ({"backhaul_latency": -0.1}, "backhaul_latency = -0.1 is not a number of seconds"),
        ({"min_rate": 10.0, "max_rate": 5.0}, "min_rate = 10.0 is above max_rate = 5.0"),
        ({"min_compute": 200.0}, "min_compute = 200.0 is above max_compute = 100.0"),
    ],
)
def test_wrong_ranges_are_named(values: dict[str, float], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        (Wire if {"link", "backhaul"} & {name.partition("_")[0] for name in values} else UniformRanges)(**values)


@pytest.mark.parametrize(
    ("devices", "gateways", "model", "links", "message"),
    [
        (0, 3, MODEL, None, "0 devices and 3 gateways"),
        (3, 0, MODEL, None, "3 devices and 0 gateways"),
        (3, 3, 0, None, "a model of 0 bytes"),
        (3, 3, MODEL, 4, "4 links per device with 3 gateways; 1..3"),
        (3, 3, MODEL, 0, "0 links per device"),
    ],
)
def test_wrong_sizes_are_named(devices: int, gateways: int, model: int, links: int | None, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        uniform(devices, gateways, model, 0, links)


def test_a_hundred_thousand_devices_fit() -> None:
    """With ten links per device: about 220 bytes of delays and 250 of links."""
    network = uniform(100_000, 1_000, MODEL, 0, 10)
    links, delays = network.links, network.delays
    assert isinstance(delays, RateDelays)
    assert len(np.unique(links.link_gateway)) == 1_000
    columns = (delays.download_rate, delays.upload_rate, delays.compute_seconds, delays.backhaul_rate)
    held = sum(sys.getsizeof(column) for column in (*columns, delays.links.gateway, delays.links.row_start))
    held += links.link_device.nbytes + links.link_gateway.nbytes + links.expected_latency.nbytes
    held += links.row_start.nbytes + network.expected_compute.nbytes
    assert held / 100_000 < 500
