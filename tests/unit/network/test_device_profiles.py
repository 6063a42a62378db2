"""Device profiles: time, power, energy, files."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from async_hfl.core.errors import DataError, SettingsError
from async_hfl.network.fleet import (
    CPU_CLASSES,
    DeviceProfile,
    Fleet,
    Power,
    authors_compute_seconds,
    cpu_class,
    raspberry_pi,
    read_profiles,
)


def test_the_authors_figure() -> None:
    """CIFAR-10 on a Raspberry Pi 400, 5 epochs over 600 samples: the 30.44 s in the authors' delays."""
    profile = raspberry_pi("rpi400", "cifar10")
    assert profile.compute_seconds == pytest.approx(30.44, abs=0.005)
    work = 61.572e6 * 130 * 600 / 1.5e9
    assert profile.power.compute_w == pytest.approx(6.31 - 5.65e-4 * work)
    assert profile.power.transmit_w == 4.211


def test_mnist_by_hand() -> None:
    """Work is 229.3e6 x 130 x 600 / 1.5e9 = 11,923.6."""
    profile = raspberry_pi("rpi4", "mnist")
    assert profile.compute_seconds == pytest.approx(8.09e-4 * 11_923.6 + 9.45, abs=1e-3)
    assert profile.power.compute_w == pytest.approx(6.49 - 1.32e-4 * 11_923.6, abs=1e-3)


def test_more_work_takes_longer() -> None:
    one = raspberry_pi("rpi4", "mnist").compute_seconds
    assert raspberry_pi("rpi4", "mnist", epochs=10).compute_seconds > one
    assert raspberry_pi("rpi4", "mnist", samples=1200).compute_seconds > one
    assert raspberry_pi("rpi4", "mnist", macs=458.6e6).compute_seconds > one
    assert raspberry_pi("rpi4", "cifar10", samples=1).compute_seconds == 1.0  # the fit would be negative


def test_energy_by_hand() -> None:
    power = Power(6.0, 4.0, 3.0, 2.0)
    fleet = Fleet.of([DeviceProfile("a", 1.0, power), DeviceProfile("b", 2.0, Power(1.0, 1.0, 1.0))], [0, 1, 0])
    assert fleet.compute_seconds.tolist() == [1.0, 2.0, 1.0]
    tens, fives, twos = (np.full(3, seconds) for seconds in (10.0, 5.0, 2.0))
    assert fleet.energy_joules(tens, fives, twos).tolist() == [86.0, 17.0, 86.0]


def test_cpu_classes_are_relative_to_a_raspberry_pi_4() -> None:
    assert cpu_class("rpi4", 20.0).compute_seconds == 20.0
    assert cpu_class("laptop", 20.0).compute_seconds < cpu_class("rpi-zero", 20.0).compute_seconds
    assert {cpu_class(name, 1.0).name for name in CPU_CLASSES} == set(CPU_CLASSES)


def test_compute_times_as_the_authors_draw_them() -> None:
    """min(lognormal(4, 3) + 30, 15000): median 30 + e^4 = 84.6 s, about 5 of 184 at the limit."""
    drawn = authors_compute_seconds(20_000, 1)
    assert drawn.min() >= 30.0
    assert drawn.max() == 15_000.0
    assert np.median(drawn) == pytest.approx(30 + math.exp(4), rel=0.05)
    assert (drawn == 15_000.0).mean() == pytest.approx(0.033, abs=0.005)
    assert authors_compute_seconds(10, 1).tolist() == drawn[:10].tolist()


def test_a_file_of_profiles(tmp_path: Path) -> None:
    file = tmp_path / "devices.csv"
    file.write_text("# mine\nname,compute_s,transmit_w\ncamera,12.5,0.8\n\nhub,2,3\n")
    camera, hub = read_profiles(file)
    assert camera == DeviceProfile("camera", 12.5, Power(0.0, 0.8, 0.0))
    assert hub.compute_seconds == 2.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("name,compute_s\n", "no profile"),
        ("name,seconds\na,1\n", "has no column 'compute_s'; it needs name, compute_s"),
        ("name,compute_s,watts\na,1,2\n", "unknown column 'watts'"),
        ("# x\nname,compute_s\na,1\nb\n", "line 4: 1 cells, but its first line names 2 columns"),
        ("name,compute_s\na,fast\n", "line 2: compute_s is 'fast', which is not a number"),
        ("name,compute_s\na,0\n", "line 2: device profile a: compute_seconds = 0.0"),
        ("name,compute_s,idle_w\na,1,-1\n", "line 2: device profile: idle_w = -1.0"),
    ],
)
def test_errors_name_the_line(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "devices.csv"
    file.write_text(text)
    with pytest.raises(DataError, match=message):
        read_profiles(file)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no such file; .*CSV file of profiles"):
        read_profiles(tmp_path / "none.csv")


def test_invalid_devices() -> None:
    with pytest.raises(SettingsError, match="choose from rpi4, rpi400"):
        raspberry_pi("rpi5")  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="0 epochs"):
        raspberry_pi("rpi4", epochs=0)
    with pytest.raises(SettingsError, match="CPU class 'abacus'"):
        cpu_class("abacus", 1.0)
