"""Known facts about the authors' network, checked on the packaged files."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest

from async_hfl.assembly.build.networks import build_network
from async_hfl.assembly.settings.loading import compose
from async_hfl.core.errors import DataError
from async_hfl.network.topologies import nycmesh_paper as module
from async_hfl.network.topologies.nycmesh_paper import ComputeFile, estimated_gateways, nycmesh_paper, table

MODEL = 600_000


def test_the_whole_network() -> None:
    network = nycmesh_paper()
    links = network.links
    assert network.name == "nycmesh-paper"
    assert (links.devices, links.gateways, len(links.link_device)) == (184, 6, 525)
    assert np.bincount(links.link_gateway).tolist() == [85, 91, 93, 84, 56, 116]
    assert np.bincount(np.diff(links.row_start)).tolist() == [0, 35, 44, 45, 38, 17, 5]


def test_shortest_rounds_without_own_compute() -> None:
    """The quoted quantiles are values of the data: the two in the middle of 184 are 61.69 and 64.10."""
    links = nycmesh_paper().links
    own = table("paper_comp1.txt", (184, 1))[:, 0]
    shortest = np.minimum.reduceat(links.expected_latency, links.row_start[:-1]) - own
    quantiles = np.quantile(shortest, [0, 0.25, 0.5, 0.75, 1], method="higher")
    np.testing.assert_allclose(quantiles, [51.5, 53.9, 64.1, 79.1, 109.1], rtol=0, atol=0.05)
    assert np.median(shortest) == pytest.approx(62.894, abs=1e-3)


def test_expected_latency_is_the_matrix_plus_the_own_delay() -> None:
    matrix = table("paper_delay_client_to_gateway.csv", (184, 6))
    own = table("paper_comp.txt", (184, 1))[:, 0]
    network = nycmesh_paper(compute_file="comp")
    links = network.links
    wanted = matrix[links.link_device, links.link_gateway] + own[links.link_device]
    np.testing.assert_allclose(links.expected_latency, wanted, rtol=1e-12)
    np.testing.assert_allclose(network.expected_compute, 30.44 + own, rtol=1e-12)


@pytest.mark.parametrize(
    ("devices", "gateways", "compute_file"), [(184, 6, "comp1"), (30, 6, "comp"), (30, 3, "comp"), (1, 1, "comp1")]
)
def test_a_round_takes_what_is_expected(devices: int, gateways: int, compute_file: ComputeFile) -> None:
    network = nycmesh_paper(devices, gateways, compute_file)
    links, delays = network.links, network.delays
    for i, j, expected in zip(
        links.link_device.tolist(), links.link_gateway.tolist(), links.expected_latency.tolist(), strict=True
    ):
        assert delays.to_device(j, i, MODEL) + delays.compute(i) + delays.to_gateway(i, j, MODEL) == expected
        assert delays.to_device(j, i, MODEL) == 18.72
        assert delays.to_gateway(i, j, MODEL) >= 0.1
    for j in range(gateways):
        assert delays.gateway_to_cloud(j, MODEL) == delays.cloud_to_gateway(j, MODEL) == 18.72
    assert [delays.compute(i) for i in range(devices)] == network.expected_compute.tolist()


def test_a_known_row() -> None:
    """Row 2: 64.130326, 3133.66611, -, -, 64.133949, 64.130211; comp1 66.93830495938795."""
    network = nycmesh_paper(3)
    row = network.links.of(2)
    assert network.links.link_gateway[row].tolist() == [0, 1, 4, 5]
    assert network.delays.to_gateway(2, 1, MODEL) == pytest.approx(3133.66611 - 49.16)
    assert network.delays.compute(2) == pytest.approx(30.44 + 66.93830495938795)


def test_a_seed_deals_the_compute_delays_anew() -> None:
    plain, one, again, two = (nycmesh_paper(60, permuted_by=seed) for seed in (None, 1, 1, 2))
    assert one.expected_compute.tolist() == again.expected_compute.tolist()
    for dealt in (one, two):
        assert sorted(dealt.expected_compute) == sorted(plain.expected_compute)
        links = dealt.links
        # Only the compute delay of each device has changed, on all of its links and in the delays.
        change = (dealt.expected_compute - plain.expected_compute)[links.link_device]
        np.testing.assert_allclose(links.expected_latency, plain.links.expected_latency + change)
        assert [dealt.delays.compute(i) for i in range(60)] == dealt.expected_compute.tolist()
    assert one.expected_compute.tolist() != two.expected_compute.tolist() != plain.expected_compute.tolist()


@pytest.mark.parametrize(("preset", "permuted"), [("tight", True), ("paper", False), ("authors", False)])
def test_the_presets_of_the_paper_keep_the_order_of_the_file(preset: str, permuted: bool) -> None:
    settings = compose(task="digits", preset=preset).settings
    file = nycmesh_paper(60, 6).expected_compute.tolist()
    orders = [build_network(settings, MODEL, seed).expected_compute.tolist() for seed in (1, 2)]
    assert [order != file for order in orders] == [permuted, permuted]
    assert (orders[0] != orders[1]) == permuted


def test_an_upload_takes_at_least_a_tenth_of_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """No row of the published matrix needs the lower limit, so the test uses one that does."""

    def faster(name: str, shape: tuple[int, int], **options: object) -> np.ndarray:
        values = table(name, shape, **options)  # type: ignore[arg-type]
        return np.where(values > 0, 49.2, 0.0) if name == "paper_delay_client_to_gateway.csv" else values

    monkeypatch.setattr(module, "table", faster)
    network = nycmesh_paper(5)
    link_device, link_gateway = network.links.link_device.tolist(), network.links.link_gateway.tolist()
    assert {network.delays.to_gateway(i, j, MODEL) for i, j in zip(link_device, link_gateway, strict=True)} == {0.1}
    np.testing.assert_allclose(
        network.links.expected_latency, 18.72 + network.expected_compute[network.links.link_device] + 0.1
    )


def test_har_with_three_gateways_as_the_authors_load_it() -> None:
    """Rows without a link to the first three columns are dropped first, with their compute delays."""
    network = nycmesh_paper(30, 3, "comp")
    links = network.links
    assert len(links.link_device) == 50
    assert np.bincount(links.link_gateway).tolist() == [17, 15, 18]
    assert (np.diff(links.row_start) > 0).all()
    assert links.expected_latency.min() == pytest.approx(83.456, abs=1e-3)
    assert links.expected_latency.max() == pytest.approx(6885.088, abs=1e-3)
    assert nycmesh_paper(164, 3).links.devices == 164


def test_fewer_devices_are_the_first_rows() -> None:
    whole, part = nycmesh_paper(), nycmesh_paper(60)
    count = len(part.links.link_device)
    assert part.links.expected_latency.tolist() == whole.links.expected_latency[:count].tolist()
    assert part.links.link_gateway.tolist() == whole.links.link_gateway[:count].tolist()


@pytest.mark.parametrize(
    ("devices", "gateways", "message"),
    [
        (0, 6, r"has 184 devices .*; 0 were asked for \(1..184"),
        (185, 6, r"has 184 devices .*; 185 were asked for"),
        (165, 3, r"has 164 devices that reach one of its first 3 gateways; 165 were asked for"),
        (-1, 6, "-1 were asked for"),
        (10, 7, r"has 6 gateways; 7 were asked for"),
        (10, 0, r"has 6 gateways; 0 were asked for"),
    ],
)
def test_sizes_beyond_the_files_are_rejected(devices: int, gateways: int, message: str) -> None:
    with pytest.raises(DataError, match=message):
        nycmesh_paper(devices, gateways)


def test_an_unknown_compute_file_is_rejected() -> None:
    with pytest.raises(DataError, match="no compute delays 'comp2': comp1 or comp"):
        nycmesh_paper(compute_file=cast(ComputeFile, "comp2"))


def test_a_damaged_installation_is_named() -> None:
    with pytest.raises(DataError, match=r"paper_comp.txt has shape \(184, 1\), not \(185, 1\)"):
        table("paper_comp.txt", (185, 1))
    with pytest.raises(DataError, match=r"nothing.csv cannot be read"):
        table("nothing.csv", (1, 1))
    with pytest.raises(DataError, match=r"CREDITS.md cannot be read"):
        table("CREDITS.md", (1, 1))


def test_devices_are_at_sites_of_the_map() -> None:
    """With the right axes and origin some devices are at hubs of the map, to a few metres; with other axes none is."""
    positions = nycmesh_paper().positions
    assert positions is not None
    assert positions.frame is not None
    hubs = table("hubs_2022-04-04.csv", (70, 2), columns=(2, 3), header=1)
    hub_x, hub_y = positions.frame.to_metres(*hubs.T)

    def at_a_hub(x: np.ndarray, y: np.ndarray) -> int:
        return int((np.hypot(x[:, None] - hub_x, y[:, None] - hub_y).min(axis=1) < 10).sum())

    x, y = positions.device_x, positions.device_y
    assert at_a_hub(x, y) == 9
    assert [at_a_hub(-x, y), at_a_hub(x, -y), at_a_hub(-x, -y), at_a_hub(y, x)] == [0, 0, 0, 0]


def test_gateways_are_estimated_at_six_hubs_wherever_the_devices_end() -> None:
    whole, part = nycmesh_paper().positions, nycmesh_paper(30, 3).positions
    assert whole is not None
    assert part is not None
    assert whole.frame is not None
    assert whole.estimated
    assert part.estimated
    hubs = table("hubs_2022-04-04.csv", (70, 3), columns=(0, 2, 3), header=1)
    longitude, latitude = whole.frame.to_degrees(whole.gateway_x, whole.gateway_y)
    distance = np.abs(hubs[:, 1:, None] - np.array([longitude, latitude])).max(axis=1)
    assert hubs[distance.argmin(axis=0), 0].tolist() == [1384, 5916, 1417, 329, 7512, 844]
    assert distance.min(axis=0).max() < 1e-9
    assert part.gateway_x.tolist() == whole.gateway_x[:3].tolist()
    assert part.gateway_y.tolist() == whole.gateway_y[:3].tolist()


def test_each_hub_is_used_once_the_closest_gateway_first() -> None:
    """Both centroids are nearest to the hub at 10; gateway 1 (centroid 9) is closer than gateway 0 (centroid 8)."""
    x = np.array([8.0, 9.0])
    gateway_x, gateway_y = estimated_gateways(
        x, np.zeros(2), np.array([[True, False], [False, True]]), np.array([0.0, 10.0]), np.zeros(2)
    )
    assert gateway_x.tolist() == [0.0, 10.0]
    assert gateway_y.tolist() == [0.0, 0.0]


def test_an_estimate_needs_hubs_and_devices() -> None:
    zeros = np.zeros(2)
    with pytest.raises(DataError, match="1 hubs are too few for 2 gateways"):
        estimated_gateways(zeros, zeros, np.ones((2, 2), bool), np.zeros(1), np.zeros(1))
    with pytest.raises(DataError, match="gateway 1 reaches no device"):
        estimated_gateways(zeros, zeros, np.array([[True, False], [True, False]]), zeros, zeros)
