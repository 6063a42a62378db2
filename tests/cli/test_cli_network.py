"""`async-hfl network show` and `record`, and the commands and tables of docs/networks.md."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from command_line import SMALL, Call

from async_hfl.assembly.settings.loading import available
from async_hfl.journal.run_directory import RunDirectory
from async_hfl.network.files.sites import COLUMNS
from async_hfl.reports.data import network_view

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "networks.md").read_text()


@pytest.fixture(autouse=True)
def _few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_view, "ROUNDS", 1000)


def test_show(call: Call, tmp_path: Path) -> None:
    done = call(
        "network", "show", "nycmesh", "--devices", "30", "--gateways", "4", "--seed", "2", "--out", "a", "--json"
    )
    assert done.code == 0, done.err
    told = done.json
    assert (told["network"], told["devices"], told["gateways"], sum(told["devices_by_gateway"])) == (
        "nycmesh",
        30,
        4,
        30,
    )
    assert (told["page"], told["picture"]) == ("a/network-nycmesh.html", "a/network-nycmesh.png")
    assert (tmp_path / told["page"]).stat().st_size > 50_000
    assert (tmp_path / told["picture"]).stat().st_size > 50_000
    again = call("network", "show", "nycmesh", "--devices", "30", "--gateways", "4", "--seed", "2", "--json")
    assert again.json["round_s"] == told["round_s"]
    bigger = call(
        "network", "show", "uniform", "--devices", "9", "--model-bytes", "6000000", "--set", "network.max_rate=60000"
    )
    assert bigger.code == 0, bigger.err
    assert bigger.out.splitlines()[0] == "uniform: 9 devices, 6 gateways, 27 links"
    assert bigger.out.splitlines()[-1] == "picture: network-uniform.png"


def test_a_run_is_shown_recorded_and_replayed(call: Call, tmp_path: Path) -> None:
    assert call("run", *SMALL, "--method", "async-hfl", "--out", "one").code == 0
    shown = call("network", "show", "one", "--json")
    assert shown.code == 0, shown.err
    assert shown.json["association"] == "last association of the run one"
    assert shown.json["devices"] == 20
    recorded = call("network", "record", "one", "trace.csv", "--json")
    assert recorded.code == 0, recorded.err
    rows = recorded.json["rows"]
    assert rows["download"] >= rows["upload"] == rows["training"] > 0
    assert sum(rows.values()) == len((tmp_path / "trace.csv").read_text().splitlines()) - 1
    short = (
        "--task",
        "null",
        "--network",
        "file",
        "--set",
        "network.path=trace.csv",
        "--set",
        "cloud.epochs=3",
        "--method",
        "async-hfl",
    )
    replay = call("run", *short, "--out", "two", "--json")
    assert replay.code == 0, replay.err
    # A trace holds only the links that were used, so its association may differ.
    assert replay.json["virtual_s"] == pytest.approx(call("show", "one", "--json").json["virtual_s"], rel=0.15)
    manifest = RunDirectory.open(tmp_path / "two").read_manifest()
    assert list(manifest["user_files"]) == ["trace.csv"]
    assert manifest["devices"] == 20
    (tmp_path / "two" / "summary.json").unlink()
    with (tmp_path / "trace.csv").open("a") as file:
        file.write("1.0,device_down,0,0,,\n")
    assert "trace.csv: has changed since the run began" in call("resume", "two").told()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("network", "show", "nycmesch"), "unknown network 'nycmesch'; did you mean nycmesh?"),
        (("network", "show", "nycmesh", "--devices", "2000"), "no more together than its 1065 sites"),
        (("network", "show", "nycmesh-paper", "--gateways", "7"), "nycmesh-paper has 6 gateways; 7 were asked for"),
        (("network", "show", "uniform", "--set", "network.spacing=3"), "the network uniform does not read it"),
        (("network", "show", "uniform", "--seed", "-1"), "seed -1: must be a whole number"),
        (("network", "show", "uniform", "--out", "a_file"), "give another --out"),
        (("network", "show", "uniform", "--out", "map.html"), "map.html: --out is the directory of both files"),
        (("network", "show", "folder"), "folder: not a run directory (no manifest.json)"),
        (("network", "record", "folder", "trace.csv"), "folder: not a run directory"),
        (("network", "record", "run", "trace.txt"), "trace.txt: a trace is CSV"),
        (("network", "record", "run", "none/trace.csv"), "none/trace.csv: cannot be written"),
        (("network", "show", "run", "--devices", "3"), "run is a run, which has its own devices"),
        (("network",), "WHAT"),
    ],
)
def test_mistakes(call: Call, tmp_path: Path, arguments: tuple[str, ...], told: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "a_file").write_text("")
    if "run" in arguments:
        assert call("run", *SMALL, "--out", "run").code == 0
    done = call(*arguments)
    assert done.code == 2
    assert told in done.told()


def test_the_commands_of_the_page(call: Call, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    commands = [
        line.split()[1:] for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()
    ]
    assert [command[:2] for command in commands if command[0] == "network"] == [
        ["network", "show"],
        ["network", "record"],
        ["network", "show"],
    ]
    for command in commands:
        small = ["--task", "null"] if command[0] == "run" else []
        small += ["--set", "task.devices=20"] if "nycmesh" in command else []
        done = call(*command, *small)
        assert done.code == 0, done.err


def test_the_tables_of_the_page() -> None:
    networks = PAGE.partition("| name | where")[2].partition("\n\n")[0].splitlines()[2:]
    assert {row.split("|")[1].strip(" `") for row in networks} == set(available("network"))
    columns = PAGE.partition("| column | meaning |")[2].partition("\n\n")[0].splitlines()[2:]
    assert {name for row in columns for name in re.findall(r"`([^`]+)`", row.split("|")[1])} == set(COLUMNS)
