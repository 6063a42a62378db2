"""Wi-Fi from radios to bytes per second, by hand and by invariants."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_hfl.core.errors import SettingsError
from async_hfl.network.radio.wifi.airtime import FRAME_BYTES, block_ack_s, data_s, frames_together
from async_hfl.network.radio.wifi.contention import FIRST_WINDOW, contention
from async_hfl.network.radio.wifi.error_rate import frame_success
from async_hfl.network.radio.wifi.goodput import (
    Wifi,
    clean_goodput,
    cycle_s,
    download_goodput,
    efficiencies,
    upload_goodput,
)
from async_hfl.network.radio.wifi.modes import control_rate, modes
from async_hfl.network.radio.wifi.radio import Radio, noise_dbm, snr_db

SLOWEST = modes()[0]


def test_the_rates_of_the_standard() -> None:
    assert [mode.bits_per_second / 1e6 for mode in modes()] == [6.5, 13, 19.5, 26, 39, 52, 58.5, 65]
    wide = [mode.bits_per_second / 1e6 for mode in modes(40)]
    assert wide == pytest.approx([13.5, 27, 40.5, 54, 81, 108, 121.5, 135])
    assert [control_rate(mode) / 1e6 for mode in modes()] == [6, 12, 12, 24, 24, 24, 24, 24]


def test_a_link_budget_by_hand() -> None:
    """k T B at 20 MHz is -100.97 dBm; 7 dB of noise figure make it -93.97; 16.02 dBm less 90 dB is 19.99 above that."""
    assert noise_dbm(Radio()) == pytest.approx(-93.965, abs=1e-3)
    ratio = snr_db(np.array([90.0, 98.0, 98.1]), Radio(), Radio())
    assert ratio[:2] == pytest.approx([19.986, 11.986], abs=1e-3)
    assert ratio[2] == -math.inf  # below -82 dBm the frame is not detected


def test_frames_by_hand() -> None:
    """1,024 bytes of data are a frame of 1,114 and 1,120 in an aggregate; at 6.5 Mb/s three of them fit into 5.484 ms:
    22 + 8 x 3,360 bits are 1,035 symbols of 4 us, after 36 us of preamble. The block acknowledgement is 32 bytes at
    6 Mb/s: 12 symbols, 20 us of preamble, 16 us of gap."""
    assert FRAME_BYTES == 1114
    assert frames_together(SLOWEST) == 3
    assert data_s(SLOWEST, 3 * 1120) == pytest.approx(4176e-6)
    assert block_ack_s(SLOWEST) == pytest.approx(84e-6)
    assert [frames_together(mode) for mode in modes()] == [3, 7, 11, 15, 23, 31, 35, 39]


def test_contention_by_hand() -> None:
    """Alone: the mean of 0..15 slots, no collision. Two that never double: each starts with probability 2 / 17."""
    alone = contention(1.0)
    assert (alone.idle_slots, alone.collisions) == pytest.approx(((FIRST_WINDOW - 1) / 2, 0.0))
    assert contention(2.0).collisions < 0.07
    costs = [contention(senders).collisions for senders in (1.0, 1.5, 2.0, 4.0, 8.0, 32.0)]
    assert costs == sorted(costs)
    # Bianchi's fixed point: tau and p agree.
    tau = 2.0 / 17
    for _ in range(200):
        p = 1 - (1 - tau) ** 7
        tau = 0.5 * tau + 0.5 * 2 * (1 - 2 * p) / ((1 - 2 * p) * 17 + p * 16 * (1 - (2 * p) ** 6))
    assert contention(8.0).collisions == pytest.approx((1 - (1 - tau) ** 8) / (8 * tau * (1 - tau) ** 7) - 1, rel=1e-6)


def test_goodput_of_the_slowest_rate() -> None:
    """Three segments in a cycle of 4.92 ms; ns-3 gets 625 kB/s."""
    assert cycle_s(SLOWEST) == pytest.approx(4.92e-3, rel=0.01)
    assert clean_goodput(SLOWEST) == pytest.approx(625e3, rel=0.01)


@given(st.integers(0, 7), st.floats(0.0, 40.0), st.floats(0.01, 5.0), st.integers(1, 3000))
def test_goodput_grows_with_the_signal(mcs: int, ratio: float, more: float, size: int) -> None:
    low, high = frame_success(modes()[mcs], np.array([ratio, ratio + more]), size)
    assert 0.0 <= low <= high + 1e-12 <= 1.0 + 1e-12


def test_longer_frames_fail_more_often() -> None:
    ratio = np.array([20.5])
    chances = [frame_success(modes()[7], ratio, size)[0] for size in (100, 500, 1000, 1500)]
    assert chances == sorted(chances, reverse=True)
    assert chances[1] == pytest.approx(chances[0] ** 5)


def test_the_best_rate_is_at_least_any_constant_one() -> None:
    losses = np.linspace(40.0, 110.0, 200)
    best = upload_goodput(losses, Wifi(mcs="best"))
    for mcs in range(8):
        assert (best >= upload_goodput(losses, Wifi(mcs=mcs))).all()
    assert (np.diff(best) <= 1e-6).all()
    assert best[0] == pytest.approx(clean_goodput(modes()[7]))
    assert best[-1] == 0.0


def test_up_and_down_differ_with_the_radios() -> None:
    """A gateway with more power and a better receiver: the link works both ways if the device is heard."""
    wifi = Wifi(device=Radio(), gateway=Radio(transmit_dbm=26.0), mcs="best")
    losses = np.array([88.0, 97.0, 99.0])
    up, down = upload_goodput(losses, wifi), download_goodput(losses, wifi)
    assert down[0] > up[0] > 0
    assert down[1] > up[1] > 0
    assert (up[2], down[2]) == (0.0, 0.0)  # the acknowledgements would not be heard
    same = Wifi(mcs="best")
    assert upload_goodput(losses, same).tolist() == download_goodput(losses, same).tolist()


def test_antennas_reach_further() -> None:
    far = np.array([105.0])
    assert upload_goodput(far, Wifi())[0] == 0.0
    assert upload_goodput(far, Wifi(gateway=Radio(antenna_dbi=10.0)))[0] > 0.0


def test_throughput_of_several_senders() -> None:
    shares = efficiencies(Wifi(), 16)
    assert shares[0] == 1.0
    assert list(shares) == sorted(shares, reverse=True)
    assert shares[7] == pytest.approx(0.79, abs=0.03)


@pytest.mark.parametrize(
    ("change", "message"),
    [({"mcs": 8}, "mcs = 8"), ({"mcs": "fast"}, "mcs = 'fast'"), ({"width_mhz": 80}, "a channel of 80 MHz")],
)
def test_wifi_is_checked(change: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        replace(Wifi(), **change)  # type: ignore[arg-type]


def test_radios_are_checked() -> None:
    with pytest.raises(SettingsError, match="transmit_dbm"):
        Radio(transmit_dbm=math.inf)
