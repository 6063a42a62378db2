"""Drawings of networks: the view, the self-contained page, the picture."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from async_hfl.assembly.runs.shown_network import last_association, network_by_name
from async_hfl.network.topologies.nycmesh_paper import nycmesh_paper
from async_hfl.network.topologies.uniform import uniform
from async_hfl.reports.data import network_view as module
from async_hfl.reports.data.curves import tail_distribution
from async_hfl.reports.data.network_view import NetworkView, network_view, tail
from async_hfl.reports.figures.colours import FEW, gateway_colours
from async_hfl.reports.figures.network import draw_network
from async_hfl.reports.pages.network_page import write_network_page
from async_hfl.reports.terminal.network_show import find_network, network_lines

MODEL = 600_000


@pytest.fixture(autouse=True)
def _few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROUNDS", 1000)


def data_of(page: str) -> dict[str, Any]:
    [text] = re.findall(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)
    found: dict[str, Any] = json.loads(text)
    return found


def test_a_tail_by_hand() -> None:
    assert tail(np.ones(10)) == {"p99_over_median": 1.0, "skewness": 0.0}
    values = np.array([0.0, 0.0, 0.0, 4.0])  # mean 1, standard deviation sqrt(3): (-1 -1 -1 + 27) / 4 / 3^1.5
    assert tail(values + 1.0)["skewness"] == pytest.approx(6.0 / 3**1.5)
    drawn = np.random.default_rng(1).lognormal(0.0, 1.0, 200_000)
    assert tail(drawn)["p99_over_median"] == pytest.approx(np.exp(2.326), rel=0.03)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_rounds_of_nycmesh_have_a_long_tail(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training and transfers have long tails; the authors' transfers do not, because they were sent at fixed rates."""
    monkeypatch.setattr(module, "ROUNDS", 8000)
    shown = network_by_name("nycmesh", seed=seed)
    told = network_view(shown.network, shown.model_bytes, shown.seed).as_json()
    paper = network_view(nycmesh_paper(), MODEL, seed).as_json()
    assert told["round_tail"]["p99_over_median"] > 10
    assert told["round_tail"]["skewness"] > 4
    assert paper["transfers_tail"]["p99_over_median"] == pytest.approx(2.4, abs=0.1)
    assert told["transfers_tail"]["p99_over_median"] > 1.5 * paper["transfers_tail"]["p99_over_median"]
    assert told["transfers_tail"]["skewness"] > 1.5 * paper["transfers_tail"]["skewness"]
    # Delays are drawn anew in each round: those of one device over one link differ, and some far exceed the median.
    links, delays = shown.network.links, shown.network.delays
    device, gateway = int(links.link_device[0]), int(links.link_gateway[0])
    up = np.array([delays.to_gateway(device, gateway, MODEL) for _ in range(2000)])
    computing = np.array([delays.compute(device) for _ in range(2000)])
    assert len(set(up)) == len(set(computing)) == 2000
    assert np.quantile(up, 0.99) > 1.8 * np.median(up)
    assert np.quantile(computing, 0.99) > 1.4 * np.median(computing)


@pytest.fixture(scope="module")
def mesh() -> NetworkView:
    return network_view(nycmesh_paper(60), MODEL, 1)


def test_a_view() -> None:
    network = nycmesh_paper()
    view = network_view(network, MODEL, 1)
    assert (view.devices, len(view.gateway_x), view.links) == (184, 6, 525)
    assert view.load.sum() == 184
    assert np.bincount(view.link_class, minlength=4).min() > 100, "quarters"
    seconds = view.link_seconds
    assert seconds.min() == pytest.approx(view.class_edges[0])
    for quality in range(4):
        of_class = seconds[view.link_class == quality]
        assert view.class_edges[quality] <= of_class.min() + 1e-9
        assert of_class.max() <= view.class_edges[quality + 1] + 1e-9
    assert view.reference is None, "nothing to compare with but itself"
    assert any("estimated" in note for note in view.notes)
    assert len(view.outline) == 38
    told = view.as_json()
    assert told["round_s"] == sorted(told["round_s"])
    assert told["transfers_s"][0] == pytest.approx(18.72 + 2.34, abs=0.2)
    assert network_lines(view)[0] == "nycmesh-paper: 184 devices, 6 gateways, 525 links"


def test_a_given_association() -> None:
    network = nycmesh_paper(3)
    view = network_view(network, MODEL, 1, np.array([0, -1, 5]), "by hand")
    assert view.gateway_of.tolist() == [0, -1, 5]
    assert view.load.tolist() == [1, 0, 0, 0, 0, 1]
    assert view.association == "by hand"
    moves = [{"moved": [[0, 1], [1, 2], [2, 0]]}, {"moved": [[1, 5], [2, -1]]}]
    assert last_association(4, moves).tolist() == [1, 5, -1, -1]  # type: ignore[union-attr]
    assert last_association(4, []) is None


def test_a_network_without_positions_is_drawn_schematically() -> None:
    view = network_view(uniform(50, 4, MODEL, 1), MODEL, 1)
    assert view.schematic
    own = np.hypot(view.device_x - view.gateway_x[view.gateway_of], view.device_y - view.gateway_y[view.gateway_of])
    for other in range(4):
        away = np.hypot(view.device_x - view.gateway_x[other], view.device_y - view.gateway_y[other])
        assert (own <= away + 1e-9).all(), "everybody is drawn around its gateway"
    assert view.reference is not None
    assert view.reference.name == "nycmesh-paper"


def test_a_large_network_is_thinned_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_DEVICES_DRAWN", 10)
    view = network_view(uniform(35, 4, MODEL, 1), MODEL, 1)
    assert view.drawn.tolist() == list(range(0, 35, 4))
    assert view.devices == 35
    assert view.load.sum() == 35
    assert set(view.link_device.tolist()) == set(range(9))
    assert "the map shows one device in 4" in view.notes


def test_the_page_is_self_contained(tmp_path: Path, mesh: NetworkView) -> None:
    write_network_page(mesh, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    outside = re.sub(r"http://www\.w3\.org/2000/svg", "", page)  # a name, never fetched
    assert not re.search(r"https?://|//[a-z0-9-]+\.[a-z]|\burl\(|@import|\b(src|href)\s*=|fetch\(|XMLHttp", outside)
    data = data_of(page)
    assert (len(data["device_x"]), len(data["gateway_x"]), len(data["link_device"])) == (60, 6, len(mesh.link_device))
    assert data["degrees"]
    assert all(-74.3 < x < -73.6 for x in data["device_x"])
    assert all(40.4 < y < 41.0 for y in data["device_y"])
    assert len(data["colours"]) == 6
    assert "NYC Mesh" in data["credit"]
    assert any("estimated" in note for note in data["notes"])


def test_a_name_cannot_break_out_of_the_page(tmp_path: Path) -> None:
    bad = "</script><script>alert(1)</script>"
    (tmp_path / "mine.csv").write_text(f"name,role,x_m,y_m,height_m\n{bad},gateway,0,0,30\na<b>,device,50,0,30\n")
    view, _ = find_network(tmp_path / "mine.csv")
    write_network_page(view, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "alert(1)</script>" not in page
    assert data_of(page)["gateway_names"] == [bad]


@pytest.mark.parametrize("which", ["paper", "uniform", "square"])
def test_the_picture(tmp_path: Path, mesh: NetworkView, which: str) -> None:
    if which == "paper":
        view = mesh
    elif which == "uniform":
        view = network_view(uniform(20, 1, MODEL, 1), MODEL, 1, np.full(20, -1))
    else:
        shown = network_by_name("random-geometric", devices=300, gateways=50)
        view = network_view(shown.network, MODEL, 1)
    draw_network(view, tmp_path / "picture.png")
    picture = (tmp_path / "picture.png").read_bytes()
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    assert len(picture) > 50_000


def test_the_tail_distribution() -> None:
    seconds, share = tail_distribution(np.arange(1.0, 5.0))
    assert seconds.tolist() == [1, 2, 3, 4]
    assert share.tolist() == [0.875, 0.625, 0.375, 0.125]
    seconds, share = tail_distribution(np.sort(np.random.default_rng(1).lognormal(size=20_000)))
    assert len(seconds) < 500
    assert (np.diff(share) < 0).all()
    assert share[-1] == pytest.approx(1 / 40_000)


def test_colours() -> None:
    assert gateway_colours(np.zeros(3), np.zeros(3)) == FEW[:3]
    assert len(set(gateway_colours(np.zeros(10), np.zeros(10)))) == 10
    x, y = (axis.ravel().astype(float) for axis in np.meshgrid(np.arange(12), np.arange(12)))
    colours = gateway_colours(x, y)
    for gateway in range(144):
        near = (np.hypot(x - x[gateway], y - y[gateway]) < 1.1) & (np.arange(144) != gateway)
        assert colours[gateway] not in {colours[other] for other in np.flatnonzero(near)}
