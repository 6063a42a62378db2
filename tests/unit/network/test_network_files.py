"""Networks from a user's files: accepted formats, and the error for every kind of mistake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from radio_maps import minute, radio_request, straight_air

from async_hfl.core.errors import DataError
from async_hfl.network.files.delays import DelayMatrix
from async_hfl.network.files.sites import UserSites
from async_hfl.network.radio.links import LinkRules
from async_hfl.network.topologies.from_file import devices_in, network_of_delays, network_of_sites, read_network_file
from async_hfl.network.topologies.rated_network import Wire
from async_hfl.network.topologies.request import NetworkRequest

HEAD = "name,role,x_m,y_m,height_m\n"
SITES = HEAD + "hub,gateway,0,0,20\nfar,gateway,150,0,\na,device,10,0,2\nb,device,60,0,\n"
DELAYS = "device,compute_s,north,south\np1,42,4.0,\np2,38,12.0,2.0\n"


def written(tmp_path: Path, text: str | bytes, name: str = "mine.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def sites(tmp_path: Path, text: str, name: str = "mine.csv") -> UserSites:
    own = read_network_file(written(tmp_path, text, name))
    assert isinstance(own, UserSites)
    return own


def sites_request(devices: int, **options: Any) -> NetworkRequest:
    return radio_request(devices, 0, 6000, 1, straight_air(), link_rules=LinkRules(1000.0), **options)


def delays(tmp_path: Path, text: str, name: str = "mine.csv") -> DelayMatrix:
    own = read_network_file(written(tmp_path, text, name))
    assert isinstance(own, DelayMatrix)
    return own


def test_sites_in_metres(tmp_path: Path) -> None:
    own = sites(tmp_path, "\ufeff# a plan\n\n" + SITES)
    assert devices_in(own) == 2
    assert own.device_names == ("a", "b")
    assert own.devices.height.tolist() == [2, 10]
    assert own.gateways.height.tolist() == [20, 25]
    assert own.frame is None
    assert own.notes[1] == "2 sites without a height: devices at 10 m, gateways at 25 m"
    network = network_of_sites(own, sites_request(2, wire=Wire(0.0, 1e6, 0.0)))
    links = network.links
    assert list(zip(links.link_device.tolist(), links.link_gateway.tolist(), strict=True)) == [(0, 0), (1, 0), (1, 1)]
    assert links.expected_latency[0] == pytest.approx(6000 / 90_000 + 60 + 6000 / 45_000)
    assert network_of_sites(own, sites_request(1)).links.devices == 1


def test_sites_on_earth_as_csv_and_as_geojson(tmp_path: Path) -> None:
    rows = [("hub", "gateway", 13.0, 52.0, 30.0, None), ("a", "device", 13.001, 52.0, 4.0, 7.5)]
    lines = ["role,name,latitude,longitude,height_m,compute_s"]
    lines += [f"{role},{name},{lat},{lon},{high},{'' if s is None else s}" for name, role, lon, lat, high, s in rows]
    features = [
        {
            "type": "Feature",
            "geometry": {"type": "Point", "coordinates": [lon, lat, high]},
            "properties": {"role": role, "name": name, "compute_s": s, "owner": "x"},
        }
        for name, role, lon, lat, high, s in rows
    ]
    collection = json.dumps({"type": "FeatureCollection", "features": features})
    flat, geo = sites(tmp_path, "\n".join(lines)), sites(tmp_path, collection, "mine.geojson")
    for own in (flat, geo):
        assert own.compute is not None
        assert own.compute.tolist() == [7.5]
        length = float(np.hypot(own.devices.x - own.gateways.x, own.devices.y - own.gateways.y)[0])
        assert length == pytest.approx(68.68, abs=0.05), "a thousandth of a degree of longitude at 52 north"
    assert "not read: owner" in geo.notes
    network = network_of_sites(geo, sites_request(1))
    assert network.expected_compute.tolist() == [7.5]
    assert network.positions is not None
    assert network.positions.frame is not None
    longitude, latitude = network.positions.frame.to_degrees(network.positions.device_x, network.positions.device_y)
    assert (longitude[0], latitude[0]) == pytest.approx((13.001, 52.0))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is empty"),
        ("# nothing\n", "holds nothing but comments"),
        (b"\xff\xfe\x00", "not text in UTF-8"),
        ("colour,shape\nred,round\n", "neither sites .* nor delays .* nor a trace"),
        ("name,x_m,y_m\na,0,0\n", "has no column 'role'"),
        ("role,name\ndevice,a\n", "has no column 'longitude'; a site needs longitude and latitude, or x_m and y_m"),
        ("role,x_m\ndevice,1\n", "has a column 'x_m' but no column 'y_m'"),
        ("role,latitude\ndevice,1\n", "has a column 'latitude' but no column 'longitude'"),
        ("role,x_m,y_m,longitude,latitude\ndevice,1,1,1,1\n", "in degrees and in metres"),
        ("role,x_m,y_m,x_m\ndevice,1,1,1\n", "two columns are called 'x_m'"),
        ("role,x_m,y_m,heigth_m\ndevice,1,1,1\n", "'heigth_m' is not read; did you mean height_m"),
        (HEAD + "a,device,1\n", "line 2: 3 cells, but its first line names 5 columns"),
        (HEAD + "a,devcie,1,1,1\n", "line 2: role 'devcie'; did you mean device"),
        (HEAD + "a,,1,1,1\n", "line 2: no role; choose from device, gateway"),
        (HEAD + "a,device,1,1,1\nb,gateway,east,1,1\n", "line 3: x_m is 'east', which is not a number"),
        (HEAD + "a,device,nan,1,1\n", "x_m is nan; it must be a number that is finite"),
        (HEAD + "a,device,1,1,-3\n", "height_m is -3; it must be a number from 0.1 to 10000"),
        ("role,longitude,latitude\ndevice,1,91\n", "line 2: latitude is 91; it must be a number from -85 to 85"),
        ("role,longitude,latitude\ndevice,181,1\n", "longitude is 181"),
        (
            "role,longitude,latitude\ndevice,1,1\ngateway,40,1\n",
            "39.0 degrees of longitude .* some of them must be wrong",
        ),
        (HEAD + "a,device,1,1,1\n", "no site has the role 'gateway'"),
        (HEAD + "a,gateway,1,1,1\n", "no site has the role 'device'"),
        (HEAD + "a,device,1,1,1\na,gateway,1,1,1\n", r"line 3: the name 'a' is taken \(.*line 2\)"),
        ("role,x_m,y_m,compute_s\ngateway,1,1,5\ndevice,1,1,5\n", "line 2: a gateway with compute_s"),
        ("role,x_m,y_m,compute_s\ngateway,1,1,\ndevice,1,1,5\ndevice,2,1,\n", "line 4: no compute_s, though other"),
        ('role,x_m,y_m\n"device,1,1\n', "not CSV"),
    ],
)
def test_mistakes_in_sites(tmp_path: Path, text: str, told: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(DataError, match=told) as caught:
        read_network_file(path)
    assert "mine.csv" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"type": ', "line 1: not JSON"),
        ("[1, 2]", "not a GeoJSON FeatureCollection"),
        ('{"type": "FeatureCollection"}', "holds no features"),
        ('{"type": "FeatureCollection", "features": [3]}', "feature 0: its geometry is missing; a site is a Point"),
        (
            '{"type": "FeatureCollection", "features": [{"geometry": {"type": "LineString"}}]}',
            "its geometry is LineString; a site is a Point",
        ),
        (
            '{"type": "FeatureCollection", "features": [{"geometry": {"type": "Point", "coordinates": [1]}}]}',
            r"feature 0: coordinates \[1\]; write \[longitude, latitude\]",
        ),
        (
            '{"type": "FeatureCollection", "features": [{"geometry": {"type": "Point", "coordinates": ["x", 1]}, '
            '"properties": {"role": "device"}}]}',
            "feature 0: longitude is .*not a number",
        ),
        (
            '{"type": "FeatureCollection", "features": [{"geometry": {"type": "Point", "coordinates": [1, 1]}, '
            '"properties": {"rolle": "device"}}]}',
            "feature 0: 'rolle' is not read; did you mean role",
        ),
    ],
)
def test_mistakes_in_geojson(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(DataError, match=told):
        read_network_file(written(tmp_path, text, "mine.geojson"))


def test_a_missing_network_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none.csv: no such file; give the path of the network's file"):
        read_network_file(tmp_path / "none.csv")
    with pytest.raises(DataError, match="cannot be read"):
        read_network_file(tmp_path)


def test_a_device_without_a_link(tmp_path: Path) -> None:
    own = sites(tmp_path, SITES + "lost,device,900,0,2\ngone,device,999,0,2\n")
    network = network_of_sites(own, sites_request(4))
    assert set(network.links.link_device.tolist()) == {0, 1}, "the others are there and take no part"
    assert network.links.devices == 4
    [told] = network.warnings
    assert "line 6: the nearest gateway, far, is 750 m away" in told
    assert told.startswith("lost (and 1 more) has no link and takes no part: ")
    assert network.notes[-1] == told
    isolated = sites(tmp_path, SITES.replace("device,10", "device,90010").replace("device,60", "device,90060"))
    with pytest.raises(DataError, match="no device has a link to any gateway"):
        network_of_sites(isolated, sites_request(2))
    with pytest.raises(DataError, match=r"has 4 devices; 5 were asked for \(--set task.devices=4"):
        network_of_sites(own, sites_request(5))


def test_delays(tmp_path: Path) -> None:
    own = delays(tmp_path, DELAYS)
    assert own.gateway_names == ("north", "south")
    wire = Wire(0.5, 1e6, 0.0)
    network = network_of_delays(own, 2, 1000, minute, wire=wire)
    assert network.links.expected_latency.tolist() == pytest.approx([4 + 42 + 4, 12 + 38 + 12, 2 + 38 + 2])
    assert network.delays.to_gateway(1, 0, 1000) == pytest.approx(12.0)
    assert network.delays.to_gateway(1, 0, 2000) == pytest.approx(0.5 + 2 * 11.5), "beyond the latency by bytes"
    bigger = network_of_delays(own, 1, 3000, minute, measured_bytes=1000, wire=wire)
    assert bigger.delays.to_device(0, 0, 3000) == pytest.approx(0.5 + 3 * 3.5)
    down = delays(tmp_path, "device,north,south\np1,1.0,\np2,2.0,3.0\n", "down.csv")
    both = network_of_delays(own, 2, 1000, minute, downloads=down, wire=wire)
    assert both.links.expected_latency.tolist() == pytest.approx([1 + 42 + 4, 2 + 38 + 12, 3 + 38 + 2])


def test_a_table_without_names(tmp_path: Path) -> None:
    own = delays(tmp_path, "0.0,5.5\n3,0\n")
    assert own.seconds.tolist() == [[0, 5.5], [3, 0]]
    assert own.gateway_names == ("gateway 0", "gateway 1")
    network = network_of_delays(own, 2, 1000, minute)
    assert network.expected_compute.tolist() == [60, 60]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("device\np1\n", "has no gateway; each is a column"),
        ("device,north\n", "has no device"),
        ("device,north,\np1,1,2\n", "column 3 has no name"),
        ("device,north\np1,\n", "line 2: p1 has no link"),
        ("device,north\np1,0\n", "line 2: p1 has no link"),
        ("device,north\np1,-3\n", "line 2: the delay to north is -3; it must be a number of at least 0"),
        ("device,north\np1,nan\n", "the delay to north is nan"),
        ("device,north\np1,soon\n", "the delay to north is 'soon', which is not a number"),
        ("device,north\np1,1\np1,2\n", r"line 3: the device 'p1' has a line already \(line 2\)"),
        ("device,compute_s,north\np1,,1\n", "line 2: compute_s is '', which is not a number"),
        ("1,2\nx,3\n", "which is not a number"),
    ],
)
def test_mistakes_in_delays(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(DataError, match=told):
        read_network_file(written(tmp_path, text))


def test_two_tables_that_do_not_match(tmp_path: Path) -> None:
    own = delays(tmp_path, DELAYS)
    other = delays(tmp_path, "device,north,west\np1,1.0,\np2,2.0,3.0\n", "down.csv")
    with pytest.raises(DataError, match=r"down.csv: its gateways are not those of .*mine.csv, in the same order"):
        network_of_delays(own, 2, 1000, minute, downloads=other)
    more = delays(tmp_path, "device,north,south\np1,1.0,1.0\np2,2.0,3.0\n", "down.csv")
    with pytest.raises(DataError, match="p1 and south have a delay in one of the two files only"):
        network_of_delays(own, 2, 1000, minute, downloads=more)
