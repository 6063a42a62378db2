"""Transfer times of async_hfl's own network model, for the cases that ns-3 simulates."""

from __future__ import annotations

import numpy as np

from async_hfl.core.arrays import Floats
from async_hfl.network.delays.noise import TRANSFER_SIGMA, NoiseFactors
from async_hfl.network.radio.medium import SharedMedium
from async_hfl.network.radio.propagation.hybrid_buildings import path_loss
from async_hfl.network.radio.propagation.surroundings import Surroundings
from async_hfl.network.radio.wifi.goodput import Wifi, cycle_s, download_goodput, efficiencies, upload_goodput
from async_hfl.network.radio.wifi.radio import Radio
from ns3_probe.transfers import STAGGER_S, WifiCase, WifiTimes

_DRAWS = 50
_SEED = 1


def predicted(case: WifiCase) -> WifiTimes:
    """Return the mean times over many draws of the noise that a simulated run applies."""
    around = Surroundings(frequency_mhz=case.frequency_mhz)
    height = np.array([case.height_m])
    loss = path_loss(np.array([case.distance_m]), height, height, around)
    radio = Radio(transmit_dbm=case.transmit_dbm)
    wifi = Wifi(radio, radio, mcs=case.mcs)
    rate = float((upload_goodput if case.direction == "up" else download_goodput)(loss, wifi)[0])
    if rate == 0.0:
        return WifiTimes(None, None)
    # Connection and slow start take about one cycle.
    alone = cycle_s(wifi.candidates()[0]) + case.size_bytes / rate
    noise = NoiseFactors(_SEED, "validate", case.stations, TRANSFER_SIGMA)
    sources = np.arange(case.stations, dtype=np.uint64)
    draws = noise.peek(sources, np.arange(_DRAWS, dtype=np.uint64)[:, None])
    antithetic = np.exp(-(TRANSFER_SIGMA**2)) / draws  # exp(-x) for each exp(x): the joint mean is nearly 1
    sharing = efficiencies(wifi, case.stations)
    took = [_shared(alone * factors, sharing, case.direction == "up") for factors in (*draws, *antithetic)]
    return WifiTimes(float(np.mean([mean for mean, _ in took])), float(np.mean([end for _, end in took])))


def _shared(airtimes: Floats, sharing: tuple[float, ...], upload: bool) -> tuple[float, float]:
    """Return (mean time of a transfer, last end) for transfers that start one after another on one shared medium."""
    medium = SharedMedium[int](sharing)
    took = 0.0
    at = 0.0
    for station, airtime in enumerate(airtimes.tolist()):
        start = STAGGER_S * station
        while (due := medium.next_end()) is not None and due[0] <= start:
            at, ended = medium.end()
            took += at - STAGGER_S * ended
        medium.start(start, station, airtime, upload)
    while len(medium):
        at, ended = medium.end()
        took += at - STAGGER_S * ended
    return took / len(airtimes), at
