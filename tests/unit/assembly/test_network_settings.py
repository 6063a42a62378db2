"""Networks built from settings: the settings that each reads, devices from a file, fleets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from async_hfl.assembly.build.fleet import build_fleet
from async_hfl.assembly.build.networks import build_network
from async_hfl.assembly.runs.shown_network import network_by_name
from async_hfl.assembly.settings.loading import available, compose
from async_hfl.assembly.settings.network_kinds import READ_BY, USER_NETWORK
from async_hfl.core.errors import DataError, NetworkError, PolicyError, SettingsError
from async_hfl.network.description import NetworkDescription

EXAMPLES = Path(__file__).parents[3] / "examples" / "networks"
MODEL = 600_000


def built(network: str, *overrides: str, seed: int = 1) -> NetworkDescription:
    return build_network(compose(task="null", network=network, seed=seed, overrides=overrides).settings, MODEL, seed)


def test_every_network_has_a_file_and_a_list_of_keys() -> None:
    assert set(available("network")) == {name.partition(" ")[0] for name in READ_BY if name != USER_NETWORK}


@pytest.mark.parametrize("network", ["nycmesh", "nycmesh-2024", "random-geometric", "uniform", "nycmesh-paper"])
def test_every_network_is_built(network: str) -> None:
    found = built(network, "task.devices=40", "network.gateways=5")
    assert found.name == network
    assert (found.links.devices, found.links.gateways) == (40, 5)


@pytest.mark.parametrize(
    ("network", "override"),
    [
        ("nycmesh-paper", "network.least_rate=5"),
        ("nycmesh-paper", "radio.frequency_mhz=2160"),
        ("nycmesh-paper", "network.fleet=rpi4"),
        ("uniform", "network.spacing=5"),
        ("uniform", "radio.mcs=0"),
        ("nycmesh", "network.spacing=5"),
        ("nycmesh", "network.min_rate=5"),
        ("nycmesh", "network.path=x.csv"),
        ("random-geometric", "network.compute=comp"),
        ("file", "network.gateways=3"),
        ("file", "network.spacing=3"),
    ],
)
def test_what_a_network_does_not_read(network: str, override: str) -> None:
    with pytest.raises(SettingsError, match=rf"the network {network} does not read it; leave it out"):
        compose(task="null", network=network, overrides=[override])


def test_a_file_reads_what_its_kind_does(tmp_path: Path) -> None:
    sites, delays = f"network.path={EXAMPLES / 'campus.csv'}", f"network.path={EXAMPLES / 'delays.csv'}"
    compose(network="file", overrides=[sites, "radio.mcs=0", "network.least_rate=20000"])
    compose(network="file", overrides=[delays, "network.measured_bytes=285000"])
    with pytest.raises(SettingsError, match=r"radio.mcs .* the network file \(delays\) does not read it"):
        compose(network="file", overrides=[delays, "radio.mcs=0"])
    with pytest.raises(SettingsError, match=r"network.replay .* the network file \(sites\) does not read it"):
        compose(network="file", overrides=[sites, "network.replay=resample"])


def test_a_run_has_as_many_devices_as_its_file() -> None:
    sites = f"network.path={EXAMPLES / 'campus.csv'}"
    assert compose(task="digits", network="file", overrides=[sites]).settings.task.devices == 12
    assert compose(task="digits", network="file", overrides=[sites, "task.devices=5"]).settings.task.devices == 5
    assert built("file", sites, "task.devices=5").links.devices == 5
    with pytest.raises(DataError, match="has 12 devices; 13 were asked for"):
        built("file", sites, "task.devices=13")
    with pytest.raises(SettingsError, match="network `file`: give its path"):
        built("file")
    with pytest.raises(DataError, match="no such file"):
        compose(network="file", overrides=["network.path=nothing.csv"])


def test_sites_are_the_same_in_both_formats() -> None:
    flat, geo = (built("file", f"network.path={EXAMPLES / name}") for name in ("campus.csv", "campus.geojson"))
    assert flat.links.link_gateway.tolist() == geo.links.link_gateway.tolist()
    transfer = [one.links.expected_latency - one.expected_compute[one.links.link_device] for one in (flat, geo)]
    np.testing.assert_allclose(*transfer, rtol=1e-9)
    assert geo.expected_compute.tolist() == [20 + 5 * i for i in range(12)]


def test_better_radios_reach_further() -> None:
    near, far = (
        built("nycmesh", "task.devices=40", f"radio.device_antenna_dbi={gain}", "network.gateways=3")
        for gain in (0, 15)
    )
    assert len(far.links.link_device) > len(near.links.link_device)


def test_noise_is_on_where_there_is_radio() -> None:
    def thousand(network: str, *overrides: str) -> np.ndarray:
        found = built(network, "task.devices=20", *overrides)
        device, gateway = int(found.links.link_device[0]), int(found.links.link_gateway[0])
        return np.array([found.delays.to_gateway(device, gateway, MODEL) for _ in range(1000)])

    quiet, noisy = thousand("nycmesh", "network.link_noise=0"), thousand("nycmesh")
    assert len(set(quiet)) == 1
    assert len(set(noisy)) == 1000
    assert noisy.mean() == pytest.approx(quiet[0], rel=0.1), "on average as expected"
    assert np.quantile(noisy, 0.99) > 2 * np.median(noisy), "a long tail"
    assert len(set(thousand("uniform"))) == 1
    assert len(set(thousand("uniform", "network.link_noise=0.3"))) == 1000
    with pytest.raises(SettingsError, match="the network nycmesh-paper does not read it"):
        built("nycmesh-paper", "network.link_noise=0.3")


def test_fleets(tmp_path: Path) -> None:
    def seconds(fleet: str, seed: int = 1) -> np.ndarray:
        composed = compose(task="null", network="nycmesh", overrides=[f"network.fleet={fleet}"])
        return build_fleet(composed.settings, 50, seed).compute_seconds

    assert len(set(seconds("rpi4"))) == 1
    assert set(seconds("raspberry-pi")) == {*seconds("rpi4"), *seconds("rpi400")}
    mixed = seconds("mixed")
    assert len(set(mixed)) == 50, "no two are alike"
    assert mixed.max() > 100 > 50 > np.median(mixed) > 5 > mixed.min(), "from laptop to Pi Zero"
    assert len(set(seconds("lognormal"))) > 45, "but for those at the cap"
    assert seconds("mixed").tolist() == seconds("mixed").tolist() != seconds("mixed", seed=2).tolist()
    (tmp_path / "mine.csv").write_text("name,compute_s\nslow,100\nquick,10\n")
    assert set(seconds(str(tmp_path / "mine.csv"))) == {10, 100}
    with pytest.raises(SettingsError, match=r"network.fleet = 'rpi5': there is raspberry-pi, rpi4"):
        seconds("rpi5")


def test_a_second_table_must_be_one() -> None:
    paths = [f"network.path={EXAMPLES / 'delays.csv'}", f"network.download_path={EXAMPLES / 'campus.csv'}"]
    with pytest.raises(SettingsError, match="not a table of delays"):
        built("file", *paths)


def test_shown_by_name() -> None:
    assert network_by_name("nycmesh-paper").network.links.devices == 184
    assert network_by_name("uniform", overrides=["task.devices=7"]).network.links.devices == 7
    shown = network_by_name(str(EXAMPLES / "campus.csv"))
    assert (shown.network.name, shown.short_name, shown.network.links.devices) == ("file", "campus", 12)
    with pytest.raises(SettingsError, match=r"unknown network 'nycmes'; did you mean nycmesh\?"):
        network_by_name("nycmes")
    with pytest.raises(SettingsError, match="model size 0"):
        network_by_name("uniform", model_bytes=0)


STREET = f"{EXAMPLES.parent / 'own_network.py'}:street"


def test_a_user_network_is_built_with_its_options_and_the_wire() -> None:
    network = built(STREET, "task.devices=30", "network.gateways=4", "network.options.metres=800")
    assert (network.name, network.links.devices, network.links.gateways) == ("street", 30, 4)
    longer = built(STREET, "task.devices=30", "network.gateways=4", "network.options.metres=8000", "network.fleet=rpi4")
    assert len(longer.links.link_device) < len(network.links.link_device)
    slower = built(STREET, "task.devices=30", "network.link_latency=3")
    assert slower.delays.to_device(int(slower.links.link_gateway[0]), 0, 0) == 3.0
    assert network_by_name(STREET).short_name == "own_network"
    assert network_by_name(STREET).network.links.devices == 184


def test_two_options_of_a_user_network_are_both_kept() -> None:
    composed = compose(network=STREET, overrides=["network.options.metres=1", "network.options.lanes=2"])
    assert composed.settings.network.options == {"metres": 1, "lanes": 2}
    with pytest.raises(SettingsError, match=r"network.spacing .* the network FILE.py:NAME does not read it"):
        compose(network=STREET, overrides=["network.spacing=3"])
    with pytest.raises(SettingsError, match=r"network.options .* the network uniform does not read it"):
        compose(network="uniform", overrides=["network.options.metres=1"])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return 5", r"mine.py:build: returned int 5; return a NetworkDescription"),
        ("return None", r"mine.py:build: returned NoneType None; return a NetworkDescription"),
        ("raise ValueError('no idea')", r"mine.py:build: raised ValueError: no idea \(line 3 of .*mine.py\)"),
        ("return uniform(3, 2, 10, 1)", r"mine.py:build: returned a network of 3 devices; 20 were asked for"),
    ],
)
def test_a_bad_user_network_is_named(tmp_path: Path, body: str, message: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(f"from async_hfl.network.topologies.uniform import uniform\ndef build(request):\n    {body}\n")
    with pytest.raises(NetworkError, match=message):
        built(f"{file}:build", "task.devices=20")


def test_a_user_network_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"there is no file none\.py"):
        built("none.py:build")
    file = tmp_path / "mine.py"
    file.write_text("def other(request): ...\n")
    with pytest.raises(SettingsError, match=r"has no function 'build'; it has: other"):
        built(f"{file}:build")
    file.write_text("1 / 0\n")
    with pytest.raises(PolicyError, match="failed while loading: ZeroDivisionError"):
        built(f"{file}:build")
