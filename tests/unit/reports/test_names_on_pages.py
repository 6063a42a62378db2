"""Sites and files are named on pages and pictures as their users know them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from async_hfl import api
from async_hfl.journal.run_directory import RunDirectory
from async_hfl.reports.data.journal_columns import read_columns
from async_hfl.reports.pages.run_map import colours_of, map_data, network_of, node_names
from async_hfl.reports.pages.run_page import write_run_page
from async_hfl.reports.tables.run_names import clock_name, network_name, task_name

SITES = """name,role,latitude,longitude
Town Hall,gateway,40.70,-73.99
Depot,gateway,40.72,-73.98
Roof West,device,40.701,-73.991
Pump 2,device,40.702,-73.989
Yard,device,40.721,-73.981
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> api.Run:
    folder = tmp_path_factory.mktemp("sites")
    (folder / "town.csv").write_text(SITES)
    settings = (f"network.path={folder / 'town.csv'}", "task.devices=3", "cloud.epochs=3")
    return api.run(task="null", network="file", overrides=settings, out=folder / "run")


def test_nodes_are_called_by_their_sites(run: api.Run) -> None:
    network, columns = network_of(run.manifest), read_columns(RunDirectory.open(run.path))
    names = node_names(run.manifest, network, columns)
    assert names["gateway"] == {0: "Town Hall", 1: "Depot"}
    assert names["device"] == {0: "Roof West", 1: "Pump 2", 2: "Yard"}
    assert map_data(network, columns)["gateway_names"] == ["Town Hall", "Depot"]
    assert list(colours_of(run.manifest, network)) == map_data(network, columns)["colours"]


def test_only_devices_with_a_link_are_counted(tmp_path: Path) -> None:
    (tmp_path / "town.csv").write_text(SITES + "Lighthouse,device,41.9,-73.0\n")
    settings = (f"network.path={tmp_path / 'town.csv'}", "task.devices=4", "cloud.epochs=3")
    run = api.run(task="null", network="file", overrides=settings, out=tmp_path / "run")
    assert run.manifest["devices"] == 4
    write_run_page(run.path, tmp_path / "page.html")
    [text] = re.findall(r'<script[^>]*id="data"[^>]*>(.*?)</script>', (tmp_path / "page.html").read_text(), re.DOTALL)
    data = json.loads(text)
    assert "3 devices (and 1 without a link, which takes no part) and 2 gateways" in data["summary"][0]
    assert data["devices"]["devices"] == 3
    assert 3 not in data["devices"]["never"]
    assert 3 not in [row["device"] for row in data["devices"]["rows"]]


def test_a_network_from_a_file_is_called_by_the_file(run: api.Run) -> None:
    assert network_name(run.manifest) == "town.csv"
    Path(run.manifest["settings"]["network"]["path"]).rename(run.path.parent / "elsewhere.csv")
    gone = network_of(run.manifest)
    assert gone.shown is None
    assert "town.csv" in gone.why
    assert colours_of(run.manifest, gone) != ()


def test_a_users_task_and_network_are_called_without_their_folder() -> None:
    manifest = {"task": "project/tasks.py:sensors", "network": "../nets.py:ring", "settings": {}}
    assert task_name(manifest) == "tasks.py:sensors"
    assert network_name(manifest) == "nets.py:ring"


@pytest.mark.parametrize(
    ("networks", "clock"),
    [
        (["deployed"], "wall-clock time"),
        (["nycmesh"], "virtual time"),
        (["deployed", "deployed"], "wall-clock time"),
        (["deployed", "nycmesh"], "time"),
    ],
)
def test_the_clock_of_runs(networks: list[str], clock: str) -> None:
    assert clock_name([{"network": network} for network in networks]) == clock
