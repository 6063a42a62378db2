"""A recorded network as a topology: the links that carried models, with their recorded transfer times.

A link that was not used in both directions is left out. The latency is the shortest time that any message took on that
tier; the rest of a transfer's time is assumed to be proportional to its bytes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from async_hfl.core.arrays import Floats
from async_hfl.core.errors import DataError
from async_hfl.core.randomness import stream_seed
from async_hfl.core.topology import feasible_links
from async_hfl.network.delays.recorded import RecordedValues, Replay, TraceDelays
from async_hfl.network.description import NetworkDescription
from async_hfl.network.files.traces import BACKHAUL_TRANSFERS, DEVICE_TRANSFERS, Trace, TraceRow
from async_hfl.network.link_lookup import LinkLookup
from async_hfl.network.topologies.rated_network import DEFAULT_WIRE, Wire

Link = tuple[int, int]
_LEAST_PACE = 1e-12
"""Seconds per byte for a model that took no longer than the shortest message."""


def links_of(trace: Trace) -> dict[Link, tuple[list[TraceRow], list[TraceRow]]]:
    """Return (device, gateway) -> its downloads and uploads of models, for every link that has both."""
    ways: dict[str, dict[Link, list[TraceRow]]] = {way: defaultdict(list) for way in DEVICE_TRANSFERS}
    for row in trace.rows:
        if row.what in DEVICE_TRANSFERS and row.device is not None and row.gateway is not None:
            ways[row.what][row.device, row.gateway].append(row)
    down, up = ways["download"], ways["upload"]
    return {link: (down[link], up[link]) for link in sorted(down) if link in up}


def devices_of(trace: Trace) -> tuple[int, ...]:
    """Return the devices that have a link, by their numbers in the trace."""
    return tuple(sorted({device for device, _ in links_of(trace)}))


def trace_network(
    trace: Trace, devices: int, model_bytes: int, seed: int, replay: Replay, wire: Wire = DEFAULT_WIRE
) -> NetworkDescription:
    """Build a network from the first `devices` devices of the trace. `wire` is used if the trace has no backhaul
    transfers."""
    of_link = links_of(trace)
    if not of_link:
        raise DataError(f"{trace.path}: no link of this trace carried a model both ways; there is nothing to replay")
    # The gateways do not depend on the number of devices, as in every network.
    gateway_numbers = sorted({gateway for _, gateway in of_link})
    numbers = sorted({device for device, _ in of_link})[:devices]
    device_row, gateway_row = ({number: row for row, number in enumerate(of)} for of in (numbers, gateway_numbers))
    of_link = {link: rows for link, rows in of_link.items() if link[0] in device_row}
    device = np.array([device_row[one] for one, _ in of_link], np.int64)
    gateway = np.array([gateway_row[one] for _, one in of_link], np.int64)

    latency = _least_seconds(trace, DEVICE_TRANSFERS)
    down = [_paces(rows, latency) for rows, _ in of_link.values()]
    up = [_paces(rows, latency) for _, rows in of_link.values()]
    trainings = _trainings(trace, numbers)
    compute = _means(trainings)
    expected = 2 * latency + model_bytes * (_means(down) + _means(up)) + compute[device]
    links = feasible_links(len(numbers), len(gateway_numbers), device, gateway, expected)

    root = stream_seed(seed, "network", "trace")
    backhaul_latency, to_cloud, to_gateway = _backhaul(trace, gateway_numbers, wire)
    smallest = min((row.bytes or model_bytes for downs, ups in of_link.values() for row in (*downs, *ups)))
    # `model_bytes` is the mean of both directions: a change in int4 has a quarter of it, a control message much less.
    least_model_bytes = max(1, min(smallest, model_bytes) // 5)
    recorded = {"download": down, "upload": up, "compute": trainings, "to_cloud": to_cloud, "to_gateway": to_gateway}
    values = (RecordedValues(values, replay, stream_seed(root, way)) for way, values in recorded.items())
    delays = TraceDelays(LinkLookup.of(links), least_model_bytes, latency, backhaul_latency, *values)
    transfers = sum(len(downs) + len(ups) for downs, ups in of_link.values())
    notes = (
        f"recorded in {trace.path}: {transfers:,} models over {len(of_link):,} links, replayed "
        + ("in their order" if replay == "order" else "in random order"),
    )
    return NetworkDescription("file", links, compute, delays, notes=notes)


def _paces(rows: Sequence[TraceRow], latency: float) -> list[float]:
    """Return the seconds per byte of each transfer, in order of time."""
    return [max(((row.seconds or 0.0) - latency) / (row.bytes or 1), _LEAST_PACE) for row in rows]


def _means(recorded: Sequence[Sequence[float]]) -> Floats:
    return np.array([float(np.mean(values)) for values in recorded])


def _least_seconds(trace: Trace, ways: Sequence[str]) -> float:
    """Return the shortest time of all messages of these kinds, with or without a model."""
    known = {*ways, *(f"small_{way}" for way in ways)}
    return min((row.seconds for row in trace.rows if row.what in known and row.seconds is not None), default=0.0)


def _trainings(trace: Trace, numbers: Sequence[int]) -> list[list[float]]:
    """Return the training times of each device. A device without a recorded training gets those of all others."""
    found: dict[int, list[float]] = {number: [] for number in numbers}
    recorded = []
    for row in trace.rows:
        if row.what == "training" and row.seconds is not None and row.device is not None:
            recorded.append(row.seconds)
            if row.device in found:
                found[row.device].append(row.seconds)
    if not recorded:
        raise DataError(f"{trace.path}: contains no training, so the compute times are unknown")
    return [found[number] or recorded for number in numbers]


def _backhaul(trace: Trace, numbers: Sequence[int], wire: Wire) -> tuple[float, list[list[float]], list[list[float]]]:
    """Return the latency, and the paces of each gateway in both directions. A gateway without records gets the paces of
    all gateways."""
    rows = [row for row in trace.rows if row.what in BACKHAUL_TRANSFERS]
    if not rows:
        usual = [[1.0 / wire.backhaul_rate] for _ in numbers]
        return wire.backhaul_latency, usual, usual
    latency = _least_seconds(trace, BACKHAUL_TRANSFERS)
    ways: list[list[list[float]]] = []
    for way in BACKHAUL_TRANSFERS:
        recorded = [row for row in rows if row.what == way] or rows
        by_gateway = [[row for row in recorded if row.gateway == number] for number in numbers]
        ways.append([_paces(of or recorded, latency) for of in by_gateway])
    return latency, ways[0], ways[1]
