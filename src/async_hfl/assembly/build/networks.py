"""From settings to a network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from async_hfl.assembly.build.fleet import build_fleet
from async_hfl.assembly.settings.network_kinds import BY_RADIO, DEPLOYED, READ_BY, network_kind
from async_hfl.assembly.settings.schema import Settings
from async_hfl.core.arrays import Floats
from async_hfl.core.errors import SettingsError
from async_hfl.network.delays.noisy import NoiseSpread, NoisyDelays
from async_hfl.network.description import NetworkDescription, SharedAir
from async_hfl.network.files.delays import DelayMatrix
from async_hfl.network.files.sites import OwnSites
from async_hfl.network.radio.air import air
from async_hfl.network.radio.links import Air, LinkRules
from async_hfl.network.radio.propagation.surroundings import Surroundings
from async_hfl.network.radio.wifi.goodput import Wifi, efficiencies
from async_hfl.network.radio.wifi.radio import Radio
from async_hfl.network.topologies.from_file import check_devices, network_of_delays, network_of_sites, read_own_network
from async_hfl.network.topologies.nycmesh import DATES, nycmesh
from async_hfl.network.topologies.nycmesh_paper import nycmesh_paper
from async_hfl.network.topologies.random_geometric import Square, random_geometric
from async_hfl.network.topologies.rated_network import Wire
from async_hfl.network.topologies.trace_network import trace_network
from async_hfl.network.topologies.uniform import UniformRanges, uniform

_NO_NOISE = NoiseSpread(0.0, 0.0, 0.0)
_USUAL_RADIO_LINKS = LinkRules().links


def build_network(settings: Settings, model_bytes: int, seed: int) -> NetworkDescription:
    quiet = replace(_quiet_network(settings, model_bytes, seed), air=_shared_air(settings))
    spread = _spread(settings)
    if spread == _NO_NOISE:
        return quiet
    return replace(quiet, delays=NoisyDelays.around(quiet.delays, quiet.links, spread, seed))


def _shared_air(settings: Settings) -> SharedAir | None:
    network = settings.network
    by_radio = network_kind(network) in BY_RADIO
    if network.contention is False or (network.contention == "auto" and not by_radio):
        return None
    efficiency = efficiencies(_wifi(settings)) if by_radio else (1.0,)
    return SharedAir(efficiency, network.link_latency)


def _spread(settings: Settings) -> NoiseSpread:
    network = settings.network
    kind = network_kind(network)
    if not {"link_noise", "compute_noise", "backhaul_noise"} <= READ_BY[kind]:
        return _NO_NOISE
    usual = NoiseSpread().link if kind in BY_RADIO else 0.0
    link = usual if network.link_noise == "auto" else network.link_noise
    return NoiseSpread(link, network.compute_noise, network.backhaul_noise)


def _quiet_network(settings: Settings, model_bytes: int, seed: int) -> NetworkDescription:
    """As it is on average; its latencies are what policies expect, noise or not."""
    network, devices = settings.network, settings.task.devices
    if network.name == DEPLOYED:
        raise SettingsError("the network `deployed` is real: `async-hfl cluster` starts its processes, `run` simulates")
    if network.name == "nycmesh-paper":
        return nycmesh_paper(devices, network.gateways, network.compute)
    if network.name == "uniform":
        links = None if network.links_per_device == "auto" else network.links_per_device
        return uniform(devices, network.gateways, model_bytes, seed, links, _ranges(settings))
    compute = partial(_compute, settings, seed)
    if network.name in DATES:
        return nycmesh(
            network.name,
            devices,
            network.gateways,
            model_bytes,
            seed,
            _air(settings),
            compute,
            _rules(settings),
            _wire(settings),
        )
    if network.name == "random-geometric":
        return random_geometric(
            devices,
            network.gateways,
            model_bytes,
            seed,
            _air(settings),
            compute,
            Square(spacing=network.spacing),
            _rules(settings),
            _wire(settings),
        )
    if network.name == "file":
        return _own_network(settings, model_bytes, seed, compute)
    raise SettingsError(f"network.name = {network.name!r}: `async-hfl networks` lists them all")


def _own_network(
    settings: Settings, model_bytes: int, seed: int, compute: Callable[[int], Floats]
) -> NetworkDescription:
    network, devices = settings.network, settings.task.devices
    if not network.path:
        raise SettingsError("network file: which? Give it with --set network.path=FILE (sites, delays or a trace)")
    own = read_own_network(Path(network.path))
    check_devices(own, devices)
    if isinstance(own, OwnSites):
        return network_of_sites(
            own, devices, model_bytes, seed, _air(settings), compute, _rules(settings), _wire(settings)
        )
    if isinstance(own, DelayMatrix):
        measured = None if network.measured_bytes == "auto" else network.measured_bytes
        return network_of_delays(own, devices, model_bytes, compute, measured, _downloads(settings), _wire(settings))
    return trace_network(own, devices, model_bytes, seed, network.replay, _wire(settings))


def _downloads(settings: Settings) -> DelayMatrix | None:
    path = settings.network.download_path
    if not path:
        return None
    found = read_own_network(Path(path))
    if not isinstance(found, DelayMatrix):
        raise SettingsError(f"network.download_path = {path}: not a table of delays, as {settings.network.path} is")
    return found


def _compute(settings: Settings, seed: int, devices: int) -> Floats:
    return build_fleet(settings, devices, seed).compute_seconds


def _ranges(settings: Settings) -> UniformRanges:
    network = settings.network
    return UniformRanges(
        min_rate=network.min_rate,
        max_rate=network.max_rate,
        min_compute=network.min_compute,
        max_compute=network.max_compute,
        link_latency=network.link_latency,
        backhaul_rate=network.backhaul_rate,
        backhaul_latency=network.backhaul_latency,
    )


def _rules(settings: Settings) -> LinkRules:
    network = settings.network
    links = _USUAL_RADIO_LINKS if network.links_per_device == "auto" else network.links_per_device
    return LinkRules(network.least_rate, links, max(LinkRules().candidates, links))


def _wire(settings: Settings) -> Wire:
    network = settings.network
    return Wire(network.link_latency, network.backhaul_rate, network.backhaul_latency)


def _air(settings: Settings) -> Air:
    radio = settings.radio
    around = Surroundings(
        frequency_mhz=radio.frequency_mhz,
        environment=radio.environment,
        city_size=radio.city_size,
        rooftop_m=radio.rooftop_m,
        street_width_m=radio.street_width_m,
        street_orientation_deg=radio.street_orientation_deg,
        building_extent_m=radio.building_extent_m,
        building_separation_m=radio.building_separation_m,
        line_of_sight_limit_m=radio.line_of_sight_limit_m,
        rooftop_limit_m=radio.rooftop_limit_m,
        shadowing_outdoor_db=radio.shadowing_db,
    )
    return air(around, _wifi(settings))


def _wifi(settings: Settings) -> Wifi:
    radio = settings.radio
    gateway = Radio(radio.gateway_transmit_dbm, radio.gateway_antenna_dbi, radio.noise_figure_db, radio.detection_dbm)
    device = Radio(radio.device_transmit_dbm, radio.device_antenna_dbi, radio.noise_figure_db, radio.detection_dbm)
    return Wifi(device, gateway, radio.mcs, radio.width_mhz)
