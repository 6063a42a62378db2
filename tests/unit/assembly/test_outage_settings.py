"""The section [outages], and its effect on a run: off by default, strict about mistakes."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from async_hfl import api
from async_hfl.assembly.build.simulation import build
from async_hfl.assembly.settings.loading import compose
from async_hfl.core.errors import SettingsError
from async_hfl.network.outages.on_off import OnOff
from async_hfl.network.outages.plan import Change
from async_hfl.simulation.world import World

SMALL = ["task.devices=12", "network.gateways=3", "cloud.epochs=20", "gateway.epochs=4"]


def world(network: str, *overrides: str) -> World:
    composed = compose(task="null", network=network, method="async-random", overrides=[*SMALL, *overrides])
    return build(composed.settings, 1).world


def run(path: Path, network: str, *overrides: str, **options: Any) -> api.Run:
    return api.run(
        task="null", network=network, method="async-random", overrides=[*SMALL, *overrides], out=path, **options
    )


def test_nothing_fails_by_default() -> None:
    assert world("uniform").outages is None
    assert world("uniform").air is None
    assert world("uniform", "network.contention=true").air is not None
    assert world("nycmesh").air is not None
    assert world("nycmesh", "network.contention=false").air is None


def test_every_setting_of_outages() -> None:
    outages = world(
        "uniform",
        "outages.device_up=5400",
        "outages.gateway_up=9000",
        "outages.gateway_down=100",
        "outages.distribution=log-normal",
        "outages.spread=0.5",
        'outages.schedule=["3600 gateway 2 dies"]',
        "outages.detection=30",
        "outages.transfer_loss=0.01",
        "outages.stragglers=0.25",
        "outages.straggler_factor=3",
        "outages.straggler_from=50",
    ).outages
    assert outages is not None
    assert outages.devices == OnOff(5400.0, 600.0, "log-normal", 0.5)
    assert outages.gateways == OnOff(9000.0, 100.0, "log-normal", 0.5)
    assert outages.links is None
    slow = [change for change in outages.scheduled if change.turn == "slow"]
    assert len({change.number for change in slow}) == 3
    assert {change.at for change in slow} == {50.0}
    assert outages.scheduled[-1] == Change(3600.0, "gateway", 2, "dies")
    assert (outages.detection_s, outages.transfer_loss, outages.slow_factor) == (30.0, 0.01, 3.0)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("outages.device_up=0", "must be a number > 0"),
        ("outages.device_down=60", "has no effect without outages.device_up"),
        ("outages.spread=2", "has no effect without outages.distribution = 'log-normal'"),
        ("outages.straggler_factor=2", "has no effect without outages.stragglers"),
        ("outages.transfer_loss=1", "must be a number >= 0 and < 1"),
        ("outages.detection=inf", "must be a finite number"),
        ("outages.schedule=1", "must be a list, each a text"),
        ("outages.devices_up=3", "did you mean outages.device_up?"),
    ],
)
def test_mistakes(override: str, message: str) -> None:
    with pytest.raises(SettingsError) as error:
        compose(task="null", network="uniform", overrides=[override])
    assert message in str(error.value)


def test_an_interrupted_run_with_outages_is_resumed_to_the_same_end(tmp_path: Path) -> None:
    hard = [
        "outages.device_up=300",
        "outages.device_down=60",
        "outages.link_up=600",
        "outages.link_down=30",
        "outages.gateway_up=800",
        "outages.gateway_down=90",
        "outages.transfer_loss=0.05",
        'outages.schedule=["400 gateway 1 dies"]',
        "network.contention=true",
        "network.link_noise=0.3",
        "task.model_size=50000",
        "simulation.checkpoint_epochs=3",
    ]

    class PowerCut(Exception):
        pass

    def cut(progress: Any) -> None:
        if progress.epoch >= 11:
            raise PowerCut

    whole = run(tmp_path / "whole", "uniform", *hard)
    with pytest.raises(PowerCut):
        run(tmp_path / "broken", "uniform", *hard, on_epoch=cut)
    found = api.resume(tmp_path / "broken")
    assert found.summary["digest"] == whole.summary["digest"]
    assert found.summary["energy"] == whole.summary["energy"]
    assert (tmp_path / "broken" / "devices.csv").read_text() == (tmp_path / "whole" / "devices.csv").read_text()
    happened = whole.summary["life"]
    assert happened["gateway_died"] == 1
    assert min(happened[f"{thing}_went_down"] for thing in ("device", "link", "gateway")) > 0


def test_larger_models_take_longer(tmp_path: Path) -> None:
    small = run(tmp_path / "small", "nycmesh", "task.model_size=1000")
    big = run(tmp_path / "big", "nycmesh", "task.model_size=500000")
    assert big.summary["virtual_s"] > 1.1 * small.summary["virtual_s"]
    assert big.summary["energy"]["radio_s"] > 10 * small.summary["energy"]["radio_s"]


def test_contention_makes_transfers_slower(tmp_path: Path) -> None:
    alone, shared = (
        run(
            tmp_path / name,
            "nycmesh",
            "task.model_size=1000000",
            f"network.contention={name}",
            "gateway.bandwidth=500%",
            "cloud.epochs=6",
        )
        for name in ("false", "true")
    )
    assert shared.summary["virtual_s"] > alone.summary["virtual_s"]


def test_energy_is_watts_times_seconds_and_adds_up(tmp_path: Path) -> None:
    made = run(tmp_path / "run", "nycmesh", "network.fleet=rpi4")
    energy = made.summary["energy"]
    with (tmp_path / "run" / "devices.csv").open() as file:
        rows = [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]
    assert [row["device"] for row in rows] == list(range(12))
    fleet = world("nycmesh", "network.fleet=rpi4").fleet
    assert fleet is not None
    for row in rows:
        watts = (fleet.compute_w[0], fleet.transmit_w[0], fleet.receive_w[0])
        spent = (row["compute_s"], row["transmit_s"], row["receive_s"])
        assert row["energy_j"] == pytest.approx(sum(w * s for w, s in zip(watts, spent, strict=True)))
    assert energy["total_j"] == pytest.approx(sum(row["energy_j"] for row in rows))
    assert energy["compute_j"] + energy["transmit_j"] + energy["receive_j"] == pytest.approx(energy["total_j"])
    assert energy["device_most_j"] == max(row["energy_j"] for row in rows)
    # Trainings that were finished, and those under way at the end are not counted: at least this much.
    assert energy["compute_s"] >= 0.9 * made.summary["device_updates"] * fleet.compute_seconds[0]
