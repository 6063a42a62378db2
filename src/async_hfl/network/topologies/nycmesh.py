"""`nycmesh` and `nycmesh-2024`: real sites of NYC Mesh, with links by radio.

Gateways stand at the hubs, supernodes and points of presence that together serve the sites best (`coverage.py`); only
when these are used up at other sites, in the same way. What a hub serves is judged by the path loss without shadowing,
as its planner would, so gateways are the same for every seed. Devices are a draw by the seed from all other sites that
have a link (shadowing included); sites without one are left out. A smaller draw is the beginning of a larger one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from async_hfl.core.arrays import Floats, Ints
from async_hfl.core.errors import SettingsError
from async_hfl.core.randomness import stream
from async_hfl.network.description import NetworkDescription
from async_hfl.network.positions import Positions
from async_hfl.network.radio.links import Air, LinkRules, best_links
from async_hfl.network.radio.places import Places
from async_hfl.network.topologies.coverage import greedy_cover, service
from async_hfl.network.topologies.mesh_sites import CREDIT, FRAME, MeshDate, MeshSites, mesh_sites
from async_hfl.network.topologies.rated_network import USUAL_WIRE, RatedLinks, Wire, rated_network

DATES: dict[str, MeshDate] = {"nycmesh": "2022-04-04", "nycmesh-2024": "2024-07-23"}


def nycmesh(
    name: str,
    devices: int,
    gateways: int,
    model_bytes: int,
    seed: int,
    air: Air,
    compute: Callable[[int], Floats],
    rules: LinkRules | None = None,
    wire: Wire = USUAL_WIRE,
) -> NetworkDescription:
    """`compute` gives so many devices' seconds of one local training."""
    rules = rules or LinkRules()
    sites = mesh_sites(DATES[name])
    if devices < 1 or gateways < 1 or devices + gateways > len(sites.places):
        raise SettingsError(
            f"network {name}: {devices} devices and {gateways} gateways; at least one of each, "
            f"and no more together than its {len(sites.places)} sites"
        )
    at_gateways = choose_gateways(sites, gateways, air, rules)
    others = np.setdiff1d(np.arange(len(sites.places)), at_gateways)
    hubs = sites.places.of(at_gateways)
    linked = best_links(sites.places.of(others), hubs, air, rules, seed)
    reached = np.unique(linked.device)
    if devices > len(reached):
        raise SettingsError(
            f"network {name}: its {gateways} gateways reach {len(reached)} of the other {len(others)} sites; {devices} "
            "devices were asked for (--set task.devices=N for fewer, network.gateways=G for more gateways)"
        )
    drawn = reached[stream(seed, "network", "sites").permutation(len(reached))[:devices]]
    number = np.full(len(others), -1, np.int64)
    number[drawn] = np.arange(devices)
    kept = number[linked.device] >= 0
    links = RatedLinks(
        number[linked.device[kept]], linked.gateway[kept], linked.download_rate[kept], linked.upload_rate[kept]
    )
    there = sites.places.of(others[drawn])
    positions = Positions(
        there.x,
        there.y,
        hubs.x,
        hubs.y,
        estimated=False,
        frame=FRAME,
        device_height=there.height,
        gateway_height=hubs.height,
        device_names=tuple(f"NYC Mesh {key}" for key in there.key.tolist()),
        gateway_names=tuple(f"NYC Mesh {key}" for key in hubs.key.tolist()),
    )
    notes = _notes(sites, gateways, len(others), len(reached), at_gateways)
    return rated_network(name, devices, gateways, links, compute(devices), model_bytes, wire, positions, notes, CREDIT)


def choose_gateways(sites: MeshSites, count: int, air: Air, rules: LinkRules) -> Ints:
    """Rows of the sites, hubs first; see `coverage.py`."""
    median = replace(air, shadowing_db=0.0)
    hubs, rest = np.flatnonzero(sites.hub), np.flatnonzero(~sites.hub)
    by_hub = _served(sites.places, hubs, median, rules)
    chosen = hubs[greedy_cover(by_hub, min(count, len(hubs)))]
    if count > len(hubs):
        others = _served(sites.places, rest, median, rules)
        more = greedy_cover(others, count - len(hubs), np.maximum.reduce(by_hub))
        chosen = np.concatenate((chosen, rest[more]))
    return chosen


def _served(places: Places, hubs: Ints, air: Air, rules: LinkRules) -> Floats:
    """hubs x sites: how well each hub would serve each site; its own best of all."""
    site = np.tile(np.arange(len(places)), len(hubs))
    hub = np.repeat(hubs, len(places))
    loss = air.path_loss(places.of(site), places.of(hub))
    slower = np.minimum(air.download(loss), air.upload(loss))
    return service(slower, rules.least_rate).reshape(len(hubs), len(places))


def _notes(sites: MeshSites, gateways: int, others: int, reached: int, at_gateways: Ints) -> tuple[str, ...]:
    found = [
        f"installed sites of NYC Mesh as of {sites.date}",
        f"{gateways} gateways at the hubs that serve the sites best; {reached:,} of {others:,} other sites have a link",
    ]
    if not sites.hub[at_gateways].all():
        found.append(f"{int((~sites.hub[at_gateways]).sum())} gateways stand at ordinary sites: there are no more hubs")
    if sites.left_out:
        found.append(f"{sites.left_out} installed sites outside the city are left out")
    if sites.unknown_height:
        found.append(f"{sites.unknown_height} sites of unknown height stand at the median, {sites.median_height:.0f} m")
    return tuple(found)
