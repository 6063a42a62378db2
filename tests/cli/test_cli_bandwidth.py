"""The bandwidth as a user sees it: echoed with its unit and share of the demand, refused if most devices do not fit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import SMALL, Call

UNITS = {
    "50%": " (50 % of demand)",
    "12.5%": " (12 % of demand)",
    "323%": " (323 % of demand)",
    "unlimited": "bandwidth unlimited\n",
    "8": "bandwidth 8 B/s per gateway (",
    "12345": "bandwidth 12.3 kB/s per gateway (",
}


@pytest.mark.parametrize("setting", UNITS)
def test_a_run_echoes_its_bandwidth(setting: str, call: Call) -> None:
    done = call("run", *SMALL, "--set", f"gateway.bandwidth={setting}", "--out", "run")
    assert done.code == 0
    assert UNITS[setting] in done.err
    manifest = json.loads(Path("run/manifest.json").read_text())
    share = manifest["bandwidth"] / manifest["bandwidth_demand"]
    if setting.endswith("%"):
        assert share == pytest.approx(float(setting[:-1]) / 100)
    wanted = next(line for line in done.err.splitlines() if line.startswith("bandwidth "))
    for text in (done.out, call("show", "run").out):
        assert wanted.split()[1] in next(line for line in text.splitlines() if line.startswith("bandwidth "))


def test_a_bandwidth_for_few_devices_is_refused(call: Call) -> None:
    done = call("run", "--task", "digits", "--network", "uniform", "--set", "gateway.bandwidth=50")
    assert done.code == 2
    assert "gateway.bandwidth = 50: " in done.told()
    assert "give a share of the demand ('50%' is " in done.told()
    assert not Path("runs").exists()


def test_a_sweep_reports_it_as_a_mistake(call: Call) -> None:
    Path("plan.toml").write_text(
        'tasks = "null"\nnetworks = "uniform"\nmethods = ["async-random"]\n[set]\ngateway.bandwidth = 0.01\n'
    )
    done = call("sweep", "plan.toml", "--processes", "1")
    assert done.code == 2
    assert "gateway.bandwidth = 0.01: " in done.told()


def test_a_number_meant_as_per_cent_is_refused(call: Call) -> None:
    """On the paper's network 50 bytes per second are enough for a few very slow devices, but not for most."""
    done = call("run", "--task", "digits", "--method", "async-hfl", "--set", "gateway.bandwidth=50")
    assert done.code == 2
    assert "43 of the 60 devices take more than 50 bytes per second" in done.told()
