"""`nycmesh` and `nycmesh-2024`: real sites of NYC Mesh, with links by radio.

Gateways stand at the hubs, supernodes and points of presence that together serve the sites best; once these are used
up, at other sites chosen in the same way. The choice ignores shadowing, as a planner would have to, so gateways are the
same for every seed. Devices are drawn by the seed from all other sites that have a link, shadowing included; sites
without a link are left out. A smaller draw is a prefix of a larger one.

Gateways are chosen by greedy maximum coverage: the next gateway is always the hub that adds most. A site counts by the
best of its gateways: half for being reached at all, the other half in proportion to the rate. Counting reach alone,
every further gateway would go to an isolated site at the edge as soon as most sites are reached. Greedy coverage is
within 1 - 1/e of the best choice (Nemhauser, Wolsey and Fisher 1978), which is hard to find. It also gives an order:
the first six of seven gateways are the six of a network with six.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from async_hfl.core.arrays import Floats, Ints
from async_hfl.core.errors import InvariantViolation, SettingsError
from async_hfl.core.randomness import stream
from async_hfl.network.delays.rates import RatedLinks
from async_hfl.network.description import NetworkDescription
from async_hfl.network.positions import Positions
from async_hfl.network.radio.air import Air
from async_hfl.network.radio.links import LinkRules, best_links
from async_hfl.network.radio.places import Places
from async_hfl.network.topologies.mesh_sites import CREDIT, FRAME, MeshDate, MeshSites, mesh_sites
from async_hfl.network.topologies.rated_network import rated_network
from async_hfl.network.topologies.request import RADIO_SETTINGS, NetworkEntry, NetworkRequest

DATES: dict[str, MeshDate] = {"nycmesh": "2022-04-04", "nycmesh-2024": "2024-07-23"}
REACHED = 0.5
"""Share of a site's worth for being reached at all; the rest is for the rate."""
_TOLERANCE = 1e-9
"""Gains that differ by less count as equal: they are sums of the same numbers in another order."""


def nycmesh(name: str, request: NetworkRequest) -> NetworkDescription:
    devices, gateways, seed = request.devices, request.gateways, request.seed
    air, rules = request.make_air(), request.link_rules
    sites = mesh_sites(DATES[name])
    if devices < 1 or gateways < 1 or devices + gateways > len(sites.places):
        raise SettingsError(
            f"network {name}: {devices} devices and {gateways} gateways; at least one of each, "
            f"and no more together than its {len(sites.places)} sites"
        )
    at_gateways = choose_gateways(sites, gateways, air, rules)
    others = np.setdiff1d(np.arange(len(sites.places)), at_gateways)
    hubs = sites.places.take(at_gateways)
    linked = best_links(sites.places.take(others), hubs, air, rules, seed)
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
    there = sites.places.take(others[drawn])
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
    compute, size = request.compute(devices), request.model_bytes
    return rated_network(name, devices, gateways, links, compute, size, request.wire, positions, notes, CREDIT)


def choose_gateways(sites: MeshSites, count: int, air: Air, rules: LinkRules) -> Ints:
    """Return the rows of the sites that become gateways, hubs first."""
    median = replace(air, shadowing_db=0.0)
    hubs, rest = np.flatnonzero(sites.hub), np.flatnonzero(~sites.hub)
    by_hub = _site_worth(sites.places, hubs, median, rules)
    chosen = hubs[greedy_cover(by_hub, min(count, len(hubs)))]
    if count > len(hubs):
        others = _site_worth(sites.places, rest, median, rules)
        more = greedy_cover(others, count - len(hubs), np.maximum.reduce(by_hub))
        chosen = np.concatenate((chosen, rest[more]))
    return chosen


def _site_worth(places: Places, hubs: Ints, air: Air, rules: LinkRules) -> Floats:
    """Return a hubs x sites array: how well each hub would serve each site."""
    site = np.tile(np.arange(len(places)), len(hubs))
    hub = np.repeat(hubs, len(places))
    loss = air.path_loss(places.take(site), places.take(hub))
    slower = np.minimum(air.download(loss), air.upload(loss))
    return service(slower, rules.least_rate).reshape(len(hubs), len(places))


def service(rate: Floats, least_rate: float) -> Floats:
    """Return how well links of these rates serve a site: 0 below the least rate, 1 at the highest rate of all."""
    highest = float(rate.max(initial=0.0))
    if highest < least_rate:
        return np.zeros_like(rate)
    worth: Floats = np.where(rate >= least_rate, REACHED + (1.0 - REACHED) * rate / highest, 0.0)
    return worth


def greedy_cover(worth: Floats, count: int, served: Floats | None = None) -> Ints:
    """Choose `count` rows of `worth` (hubs x sites) greedily and return them in the order of choice.

    `served` is how well each site is served already. Among equal gains the hub that serves all sites better by itself
    is chosen, then the lower row.
    """
    hubs, sites = worth.shape
    if not 0 <= count <= hubs:
        raise InvariantViolation(f"{count} of {hubs} hubs")
    alone = worth.sum(axis=1)
    best = np.zeros(sites) if served is None else served
    free = np.ones(hubs, np.bool_)
    chosen = np.empty(count, np.int64)
    for number in range(count):
        gain = np.where(free, np.maximum(worth - best, 0.0).sum(axis=1), -1.0)
        leading = np.flatnonzero(gain >= gain.max() - _TOLERANCE)
        row = leading[np.lexsort((leading, -alone[leading]))[0]]
        chosen[number] = row
        free[row] = False
        best = np.maximum(best, worth[row])
    return chosen


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


_READS = frozenset({"gateways"}) | RADIO_SETTINGS
NETWORK_2022 = NetworkEntry(partial(nycmesh, "nycmesh"), _READS, by_radio=True)
NETWORK_2024 = NetworkEntry(partial(nycmesh, "nycmesh-2024"), _READS, by_radio=True)
