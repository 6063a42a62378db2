"""Building of networks from settings: a built-in network by the registry, a user's by the function in their file."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from async_hfl.assembly.build.fleet import build_fleet
from async_hfl.assembly.settings.network_kinds import BY_RADIO, DEPLOYED, READ_BY, network_kind
from async_hfl.assembly.settings.schema import Settings
from async_hfl.assembly.user_code.loading import is_user_code, load_function
from async_hfl.assembly.user_code.objects import shown
from async_hfl.core.errors import NetworkError, SettingsError
from async_hfl.decisions.user_function import UserCall
from async_hfl.network.delays.noisy import NoiseSpread, NoisyDelays
from async_hfl.network.description import NetworkDescription, SharedAir
from async_hfl.network.radio.air import Air, make_air
from async_hfl.network.radio.links import LinkRules
from async_hfl.network.radio.propagation.surroundings import Surroundings
from async_hfl.network.radio.wifi.goodput import Wifi, efficiencies
from async_hfl.network.radio.wifi.radio import Radio
from async_hfl.network.topologies.rated_network import Wire
from async_hfl.network.topologies.registry import NETWORKS
from async_hfl.network.topologies.request import NOISE_SETTINGS, NetworkRequest

_NO_NOISE = NoiseSpread(0.0, 0.0, 0.0)


def build_network(settings: Settings, model_bytes: int, seed: int) -> NetworkDescription:
    """Build the network that the settings describe, with noise and contention on top."""
    network = _noiseless_network(settings, _request(settings, model_bytes, seed))
    if not (is_user_code(settings.network.name) and settings.network.contention == "auto"):
        network = replace(network, air=_shared_air(settings))
    spread = _noise_spread(settings)
    if spread == _NO_NOISE:
        return network
    return replace(network, delays=NoisyDelays.around(network.delays, network.links, spread, seed))


def _noiseless_network(settings: Settings, request: NetworkRequest) -> NetworkDescription:
    """Build the network with its mean delays, which are the latencies that policies expect."""
    name = settings.network.name
    if is_user_code(name):
        return _user_network(name, request)
    if name == DEPLOYED:
        raise SettingsError("the network `deployed` is real: `async-hfl cluster` starts its processes, `run` simulates")
    if name not in NETWORKS:
        raise SettingsError(f"network.name = {name!r}: `async-hfl networks` lists them all")
    return NETWORKS[name].build(request)


def _user_network(name: str, request: NetworkRequest) -> NetworkDescription:
    call = UserCall(f"network {shown(name)}", "", NetworkError)
    network = call.call(load_function("--network", name), request)
    if not isinstance(network, NetworkDescription):
        raise call.error(f"returned {type(network).__name__} {network!r:.80}; return a NetworkDescription")
    if network.links.devices != request.devices:
        raise call.error(
            f"returned a network of {network.links.devices} devices; {request.devices} were asked for (request.devices)"
        )
    return network


def _request(settings: Settings, model_bytes: int, seed: int) -> NetworkRequest:
    network = settings.network
    rules = LinkRules()
    links = rules.links if network.links_per_device == "auto" else network.links_per_device
    return NetworkRequest(
        devices=settings.task.devices,
        gateways=network.gateways,
        model_bytes=model_bytes,
        seed=seed,
        settings=msgspec.structs.asdict(network),
        compute=lambda devices: build_fleet(settings, devices, seed).compute_seconds,
        make_air=lambda: _air(settings),
        wire=Wire(network.link_latency, network.backhaul_rate, network.backhaul_latency),
        link_rules=LinkRules(network.least_rate, links, max(rules.candidates, links)),
    )


def _shared_air(settings: Settings) -> SharedAir | None:
    network = settings.network
    by_radio = network_kind(network) in BY_RADIO
    if network.contention is False or (network.contention == "auto" and not by_radio):
        return None
    efficiency = efficiencies(_wifi(settings)) if by_radio else (1.0,)
    return SharedAir(efficiency, network.link_latency)


def _noise_spread(settings: Settings) -> NoiseSpread:
    network = settings.network
    kind = network_kind(network)
    if not READ_BY[kind] >= NOISE_SETTINGS:
        return _NO_NOISE
    default = NoiseSpread().link if kind in BY_RADIO else 0.0
    link = default if network.link_noise == "auto" else network.link_noise
    return NoiseSpread(link, network.compute_noise, network.backhaul_noise)


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
    return make_air(around, _wifi(settings))


def _wifi(settings: Settings) -> Wifi:
    radio = settings.radio
    gateway = Radio(radio.gateway_transmit_dbm, radio.gateway_antenna_dbi, radio.noise_figure_db, radio.detection_dbm)
    device = Radio(radio.device_transmit_dbm, radio.device_antenna_dbi, radio.noise_figure_db, radio.detection_dbm)
    return Wifi(device, gateway, radio.mcs, radio.width_mhz)
