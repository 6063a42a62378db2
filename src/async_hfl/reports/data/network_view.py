"""A network as plain columns, ready to be drawn: sites, links and their quality, association, delays.

figures/network.py draws it as a picture, pages/network_page.py as a page.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np

from async_hfl.core.arrays import Floats, Ints
from async_hfl.core.randomness import stream
from async_hfl.core.topology import nearest_gateway
from async_hfl.network.description import NetworkDescription
from async_hfl.network.positions import MapFrame, Positions
from async_hfl.network.topologies.mesh_sites import EAST, NORTH, SOUTH, WEST
from async_hfl.network.topologies.nycmesh_paper import nycmesh_paper

MOST_DEVICES_DRAWN = 6000
ROUNDS = 20_000
"""The number of rounds sampled for a distribution."""
QUALITY_CLASSES = 4
NEAREST = "each device with its fastest gateway"
_AS_FAST = 1.01
"""Links that take at most this many times the time of a device's fastest link count as equally fast."""
_DISTINCT = 1.02
_GOLDEN_ANGLE = math.pi * (3 - math.sqrt(5))


@dataclass(frozen=True, slots=True, eq=False)
class Delays:
    """Sampled rounds of random devices of a network: seconds, sorted."""

    name: str
    rounds: Floats
    """Download, training and upload."""
    transfers: Floats
    """Download and upload alone."""


def tail(values: Floats) -> dict[str, float]:
    """Return 99th percentile over median, and skewness (0 for a symmetric distribution, 2 for an exponential one)."""
    middle, rare = np.quantile(values, [0.5, 0.99])
    spread = float(values.std())
    skewness = float((((values - values.mean()) / spread) ** 3).mean()) if spread > 0 else 0.0
    return {"p99_over_median": float(rare / middle), "skewness": skewness}


@dataclass(frozen=True, slots=True, eq=False)
class NetworkView:
    name: str
    devices: int
    """The number of all devices; `drawn` holds those that the map shows."""
    drawn: Ints
    device_x: Floats
    device_y: Floats
    gateway_x: Floats
    gateway_y: Floats
    """Coordinates in metres, of the drawn devices and of all gateways."""
    frame: MapFrame | None
    schematic: bool
    """True if the network has no geographic positions, and these only serve to draw it."""
    device_height: Floats | None
    gateway_height: Floats | None
    device_names: tuple[str, ...]
    gateway_names: tuple[str, ...]
    gateway_of: Ints
    """The gateway of each drawn device; -1 for none."""
    load: Ints
    """The number of devices of each gateway, drawn or not."""
    links: int
    link_device: Ints
    """Indices into the drawn devices."""
    link_gateway: Ints
    link_seconds: Floats
    """Time to send a model over the link and back."""
    link_class: Ints
    """0 for the fastest links to 3 for the slowest."""
    class_edges: tuple[float, ...]
    compute: Floats
    """Expected training time of the drawn devices."""
    delays: Delays
    reference: Delays | None
    """Another network to compare with."""
    model_bytes: int
    association: str
    """The origin of the association, in words."""
    notes: tuple[str, ...]
    credit: str
    outline: tuple[tuple[Floats, Floats], ...]
    """Rings of longitude and latitude, drawn as the background."""

    @property
    def headline(self) -> str:
        count = f"{self.devices:,} devices, {len(self.gateway_x):,} gateways, {self.links:,} links"
        return f"{count}; {self.association}"

    def as_json(self) -> dict[str, Any]:
        """Return the figures without the map."""
        chances = (0.0, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)
        return {
            "network": self.name,
            "devices": self.devices,
            "gateways": len(self.gateway_x),
            "links": self.links,
            "model_bytes": self.model_bytes,
            "devices_by_gateway": self.load.tolist(),
            "association": self.association,
            "quantiles": list(chances),
            "round_s": np.quantile(self.delays.rounds, chances).tolist(),
            "transfers_s": np.quantile(self.delays.transfers, chances).tolist(),
            "round_tail": tail(self.delays.rounds),
            "transfers_tail": tail(self.delays.transfers),
            "notes": list(self.notes),
        }


def network_view(
    network: NetworkDescription,
    model_bytes: int,
    seed: int,
    gateway_of: Ints | None = None,
    association: str = NEAREST,
    title: str = "",
) -> NetworkView:
    """Prepare a network for drawing.

    `gateway_of` is the association to draw (default: each device with its fastest gateway). `title` replaces the
    network's own name. Sampling advances the network's random streams, so do not pass the network of a live run.
    """
    links = network.links
    everywhere = np.ones(len(links.link_device), np.bool_)
    fastest = nearest_gateway(links, everywhere, _preference(network))
    whole = fastest if gateway_of is None else gateway_of
    every = -(-links.devices // MOST_DEVICES_DRAWN)
    drawn = np.arange(0, links.devices, every)
    places = network.positions or _schematic(np.where(whole < 0, fastest, whole), links.gateways)
    schematic = network.positions is None
    notes = [
        *(["the gateways' positions are not published; they are estimated"] if places.estimated else []),
        *(["a drawing, not a map: this network has no geographic positions"] if schematic else []),
        *network.notes,
        *([f"the map shows one device in {every}"] if every > 1 else []),
    ]
    seconds = links.expected_latency - network.expected_compute[links.link_device]
    edges = _class_edges(seconds)
    row = np.full(links.devices, -1, np.int64)
    row[drawn] = np.arange(len(drawn))
    shown = row[links.link_device] >= 0
    height, names, outline = places.device_height, places.device_names, _outline(places.frame)
    credit = network.credit or ("Sites: NYC Mesh (nycmesh.net)" if network.name == "nycmesh-paper" else "")
    credits = [credit, "Outline: New York City Department of City Planning" if outline else ""]
    return NetworkView(
        name=title or network.name,
        devices=links.devices,
        drawn=drawn,
        device_x=places.device_x[drawn],
        device_y=places.device_y[drawn],
        gateway_x=places.gateway_x,
        gateway_y=places.gateway_y,
        frame=places.frame,
        schematic=schematic,
        device_height=None if height is None else height[drawn],
        gateway_height=places.gateway_height,
        device_names=tuple(names[number] for number in drawn) if names else (),
        gateway_names=places.gateway_names,
        gateway_of=whole[drawn],
        load=np.bincount(whole[whole >= 0], minlength=links.gateways),
        links=len(links.link_device),
        link_device=row[links.link_device[shown]],
        link_gateway=links.link_gateway[shown],
        link_seconds=seconds[shown],
        link_class=np.clip(np.searchsorted(edges[1:-1], seconds[shown], side="left"), 0, QUALITY_CLASSES - 1),
        class_edges=tuple(edges.tolist()),
        compute=network.expected_compute[drawn],
        delays=sampled_delays(network, title or network.name, fastest, model_bytes, seed),
        reference=None if network.name == "nycmesh-paper" else _paper(model_bytes, seed),
        model_bytes=model_bytes,
        association=association,
        notes=tuple(notes),
        credit="; ".join(text for text in credits if text),
        outline=outline,
    )


def _class_edges(seconds: Floats) -> Floats:
    """Return the quartiles of the links' times or, if some are too close to tell apart, a geometric scale."""
    edges: Floats = np.quantile(seconds, np.linspace(0, 1, QUALITY_CLASSES + 1))
    if (edges[1:] < _DISTINCT * edges[:-1]).any() and edges[0] > 0:
        edges = np.geomspace(edges[0], edges[-1], QUALITY_CLASSES + 1)
    return edges


def _preference(network: NetworkDescription) -> Floats:
    """Return a cost per link: its latency or, among a device's equally fast links, its length."""
    links, places = network.links, network.positions
    if places is None:
        return links.expected_latency
    seconds = links.expected_latency - network.expected_compute[links.link_device]
    best = np.full(links.devices, np.inf)
    np.minimum.at(best, links.link_device, seconds)
    length = np.hypot(
        places.device_x[links.link_device] - places.gateway_x[links.link_gateway],
        places.device_y[links.link_device] - places.gateway_y[links.link_gateway],
    )
    fast = seconds <= _AS_FAST * best[links.link_device]
    preference: Floats = np.where(fast, length / (1.0 + length.max()), 1.0 + seconds)
    return preference


def sampled_delays(network: NetworkDescription, name: str, gateway_of: Ints, model_bytes: int, seed: int) -> Delays:
    """Sample rounds of random devices over their links, from the network's own delay model."""
    linked = np.flatnonzero(gateway_of >= 0)
    count = max(ROUNDS, min(len(linked), 10 * ROUNDS))
    device = stream(seed, "picture").permutation(np.resize(linked, count))[:ROUNDS].tolist()
    delays = network.delays
    transfers, rounds = np.empty(len(device)), np.empty(len(device))
    for number, one in enumerate(device):
        gateway = int(gateway_of[one])
        down = delays.to_device(gateway, one, model_bytes)
        computing = delays.compute(one)
        up = delays.to_gateway(one, gateway, model_bytes)
        transfers[number] = down + up
        rounds[number] = down + computing + up
    return Delays(name, np.sort(rounds), np.sort(transfers))


def _paper(model_bytes: int, seed: int) -> Delays:
    paper = nycmesh_paper()
    links = paper.links
    fastest = nearest_gateway(links, np.ones(len(links.link_device), np.bool_), links.expected_latency)
    # Its delays are those of a model of any size; a tiny model would be delayed like a control message.
    return sampled_delays(paper, paper.name, fastest, max(model_bytes, 600_000), seed)


def _schematic(gateway_of: Ints, gateways: int) -> Positions:
    """Place gateways on a ring and the devices of each in a sunflower spiral around it."""
    size = np.sqrt(np.maximum(np.bincount(gateway_of, minlength=gateways), 1))
    widest = float(size.max()) * 1.6
    radius = 0.0 if gateways == 1 else widest / math.sin(math.pi / gateways) if gateways > 2 else widest
    angle = np.pi / 2 - 2 * np.pi * np.arange(gateways) / gateways
    gateway_x, gateway_y = radius * np.cos(angle), radius * np.sin(angle)
    place = np.zeros(len(gateway_of), np.int64)
    for gateway in range(gateways):
        own = np.flatnonzero(gateway_of == gateway)
        place[own] = np.arange(1, len(own) + 1)
    out = np.sqrt(place + 1.5)
    device_x = gateway_x[gateway_of] + out * np.cos(place * _GOLDEN_ANGLE)
    device_y = gateway_y[gateway_of] + out * np.sin(place * _GOLDEN_ANGLE)
    return Positions(device_x, device_y, gateway_x, gateway_y, estimated=False)


def _outline(frame: MapFrame | None) -> tuple[tuple[Floats, Floats], ...]:
    """Return the shore of New York for networks that lie there."""
    if frame is None or not (WEST <= frame.longitude <= EAST and SOUTH <= frame.latitude <= NORTH):
        return ()
    text = (resources.files("async_hfl.network") / "data" / "new_york_outline.csv").read_text(encoding="utf-8")
    rings: dict[str, list[tuple[float, float]]] = {}
    for row in csv.DictReader(text.splitlines()):
        rings.setdefault(row["ring"], []).append((float(row["longitude"]), float(row["latitude"])))
    return tuple((np.array([x for x, _ in ring]), np.array([y for _, y in ring])) for ring in rings.values())
